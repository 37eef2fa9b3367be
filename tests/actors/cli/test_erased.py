"""`huginn fsck --erased` on a real data directory: clean, with what is left, and mended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from actors.authority.erasures import TABLE, KeptErasure
from actors.config import load
from actors.gateway.keys import ApiKeys
from actors.gateway.transports.matrix_inbox import Inbox, Letter
from actors.runtime.plan import database_path, prepare
from actors.runtime.world import SystemClock, SystemEntropy
from protocol.messages.erasure import Erase, ErasureRow
from protocol.record import encode_record
from store.blobs import BlobFiles
from store.pages.header import domain_digest
from store.sqlite import Database
from store.sqlite_objects import SqliteObjectStore
from store.sqlite_tables import SqliteTables
from tests.erasure_house import texts
from tests.huginn import huginn


@pytest.fixture
async def used(home: Path) -> Path:
    """A data directory as a start leaves it."""
    await prepare(load({"home": str(home)}, {}).config, SystemClock(), SystemEntropy())
    for name in ("authority", "gateway"):
        with Database(database_path(home, name)) as database:
            database.scrub()
    SqliteObjectStore(Database(database_path(home, "ropes")), BlobFiles(home / "blobs")).close()
    return home


def looked(home: Path, *words: str) -> dict[str, Any]:
    result = huginn("fsck", *words, "--json", home=home)
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if document["ok"] else 1)
    return document


@pytest.mark.req("AUT-8")
def test_a_domain_that_left_nothing(used: Path) -> None:
    found = looked(used, "--erased", "alice")
    assert found["ok"], found
    assert (found["erased"], found["erasures"]) == ("alice", 0)
    assert looked(used, "--erased", "all")["ok"]


@pytest.mark.req("AUT-8")
def test_pages_and_keys_that_are_left_are_found(used: Path) -> None:
    name = domain_digest("alice").hex()
    folder, key = used / "pages" / name, used / "keys" / f"pages-{name}.secret"
    folder.mkdir(parents=True)
    (used / "pages").chmod(0o700)
    key.touch(mode=0o600)
    found = looked(used, "--erased", "alice")
    assert {each["where"] for each in found["problems"]} == {str(folder), str(key)}
    assert looked(used, "--erased", "bob")["ok"]


@pytest.mark.req("AUT-8")
def test_objects_that_nobody_has_are_found(used: Path) -> None:
    database = Database(database_path(used, "ropes"))
    store = SqliteObjectStore(database, BlobFiles(used / "blobs"))
    store.put_many("alice", texts("a secret", 3))
    store.drop_namespace("alice")
    store.scrub()
    store.close()
    (problem,) = looked(used, "--erased", "alice")["problems"]
    assert problem["what"] == "3 objects are in no namespace"


@pytest.mark.req("AUT-8")
def test_free_space_is_found_and_mended(used: Path) -> None:
    path = database_path(used, "gateway")
    tables = SqliteTables(Database(path))
    keys = ApiKeys(tables.keyed("keys"))
    row = keys.principals()[0]
    for number in range(300):
        keys.add(f"hg-{number}-and-enough-characters", row)
    tables.keyed("keys").trim(0)
    for number in range(20):
        keys.add(f"hg-{number}-and-enough-characters", row)
    # Bytes in a page that is free, as a build that does not overwrite would leave them.
    tables.close()
    clean = path.read_bytes()
    end = int.from_bytes(clean[32:36], "big") * int.from_bytes(clean[16:18], "big")
    assert clean[end - 64 : end] == bytes(64)
    path.write_bytes(clean[: end - 16] + b"a secret of hers" + clean[end:])
    (problem,) = looked(used, "--erased", "alice")["problems"]
    assert (problem["kind"], problem["where"]) == ("dead space", str(path))
    mended = looked(used, "--erased", "alice", "--repair")
    assert mended["ok"]
    assert [each["action"] for each in mended["problems"]] == ["repaired"]
    assert b"a secret" not in path.read_bytes()
    assert looked(used, "--erased", "alice")["problems"] == []


def test_a_live_domain_is_not_looked_for(used: Path) -> None:
    """The operator's is in use: what it has is no trace of an erasure."""
    name = domain_digest("operator").hex()
    (used / "keys" / f"pages-{name}.secret").touch(mode=0o600)
    assert looked(used, "--erased", "operator")["ok"]


@pytest.mark.req("AUT-8")
def test_letters_that_are_left_are_found_in_rows_and_in_free_space(used: Path) -> None:
    path = database_path(used, "gateway")
    tables = SqliteTables(Database(path))
    letter = Letter(
        event="$event",
        room="!room:host",
        sender="@somebody:host",
        body="a secret of hers",
        principal=b"a" * 32,
        namespace="alice/notes",
    )
    Inbox(tables).take([letter], "s")
    tables.scrub()
    tables.close()
    made = the_erasure(used, order_of("alice", b"a" * 32))
    (problem,) = looked(used, "--erased", made)["problems"]
    assert problem["where"] == "the gateway room"
    assert problem["what"] == "the Matrix message $event is there still"
    # Deleted as a build would that does not overwrite: no row has it, and its bytes are there.
    connection = apsw.Connection(str(path))
    connection.pragma("secure_delete", False)
    connection.execute("DELETE FROM keyed WHERE name = 'matrix-waiting'")
    connection.close()
    assert b"a secret of hers" in path.read_bytes()
    (problem,) = looked(used, "--erased", made)["problems"]
    assert (problem["kind"], problem["where"]) == ("dead space", str(path))
    assert looked(used, "--erased", made, "--repair")["ok"]
    assert b"a secret of hers" not in path.read_bytes()
    assert looked(used, "--erased", made)["problems"] == []


def order_of(name: str, public: bytes) -> Erase:
    return Erase(domains=[name], namespaces=[name], spared=[], principals=[public], names=[name])


def the_erasure(home: Path, order: Erase) -> str:
    """The id of an erasure that the authority keeps as done."""
    row = ErasureRow(
        id="erasure-1",
        target="principal",
        name=order.names[0],
        cause="asked",
        asked_ns=1,
        due_ns=1,
        rooms=[],
        done_ns=2,
    )
    tables = SqliteTables(Database(database_path(home, "authority")))
    kept = KeptErasure(v=1, row=row, order=order, swept=True)
    tables.keyed(TABLE).put(row.id.encode(), encode_record(kept))
    tables.scrub()
    tables.close()
    return row.id
