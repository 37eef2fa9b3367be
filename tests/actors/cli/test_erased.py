"""`huginn fsck --erased` on a real data directory: clean, with what is left, and of no erasure."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from actors.authority.erasures import TABLE, KeptErasure, fingerprint
from actors.config import load
from actors.events.book import LEASES, turn_key
from actors.gateway.keys import ApiKeys
from actors.gateway.transports.matrix_inbox import Inbox, Letter
from actors.runtime.plan import database_path, prepare
from actors.runtime.world import SystemClock, SystemEntropy
from protocol.ids import TextId
from protocol.messages.erasure import Erase, ErasureRow
from protocol.record import encode_record
from store.blobs import BlobFiles
from store.pages.header import domain_digest
from store.sqlite import Database
from store.sqlite_objects import SqliteObjectStore
from store.sqlite_tables import SqliteTables
from tests.erasure_house import texts
from tests.huginn import huginn

PUBLIC_KEY = b"a" * 32


@pytest.fixture
async def used(home: Path) -> Path:
    """A data directory as a start leaves it."""
    await prepare(load({"home": str(home)}, {}).config, SystemClock(), SystemEntropy())
    for name in ("authority", "gateway"):
        with Database(database_path(home, name)) as database:
            database.scrub()
    SqliteObjectStore(Database(database_path(home, "ropes")), BlobFiles(home / "blobs")).close()
    return home


@pytest.fixture
def erased(used: Path) -> Path:
    """One in which alice was erased."""
    erasure_of(used, order_of("alice"))
    return used


def looked(home: Path, *words: str) -> dict[str, Any]:
    result = huginn("fsck", *words, "--json", home=home)
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if document["ok"] else 1)
    return document


def problems(home: Path, *words: str) -> list[tuple[str, str]]:
    return [(each["where"], each["what"]) for each in looked(home, *words)["problems"]]


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("name", ["alice", "home/alice", "of-alice", "erasure-alice", "all"])
def test_who_left_nothing_is_clean_by_every_name(erased: Path, name: str) -> None:
    found = looked(erased, "--erased", name)
    assert found["ok"], found
    assert (found["erased"], found["erasures"]) == (name, 1)
    assert f"1 erasures of '{name}' looked for" in human(erased, name)


def human(home: Path, name: str) -> str:
    """What people are told, without the breaks of its lines."""
    return " ".join(huginn("fsck", "--erased", name, home=home).stdout.split())


@pytest.mark.req("AUT-8")
def test_a_name_of_no_erasure_is_no_proof(erased: Path) -> None:
    found = looked(erased, "--erased", "alcie")
    assert not found["ok"]
    assert found["erasures"] == 0
    (problem,) = found["problems"]
    assert (problem["kind"], problem["where"]) == ("unknown", "alcie")
    assert problem["what"] == "no erasure is called so: there are alice"
    assert "0 erasures of 'alcie' looked for" in human(erased, "alcie")


@pytest.mark.req("AUT-8")
def test_where_nothing_was_ever_erased_that_is_told(used: Path) -> None:
    assert not looked(used, "--erased", "alice")["ok"]
    ((_, what),) = problems(used, "--erased", "alice")
    assert "none was ever asked for here" in what
    assert looked(used, "--erased", "all")["ok"]
    assert "0 erasures of 'all' looked for" in human(used, "all")


@pytest.mark.req("AUT-8")
def test_pages_and_keys_that_are_left_are_found(erased: Path) -> None:
    erasure_of(erased, order_of("bob"))
    name = domain_digest("of-alice").hex()
    folder, key = erased / "pages" / name, erased / "keys" / f"pages-{name}.secret"
    folder.mkdir(parents=True)
    (erased / "pages").chmod(0o700)
    key.touch(mode=0o600)
    assert {where for where, _ in problems(erased, "--erased", "alice")} == {str(folder), str(key)}
    assert looked(erased, "--erased", "bob")["ok"]
    # Also of one that was never asked for, beside that it was not.
    erasure_of(erased, order_of("carol"), id="erasure-alice")
    assert len(problems(erased, "--erased", "of-alice")) == 3


@pytest.mark.req("AUT-8")
def test_objects_that_nobody_has_are_found(erased: Path) -> None:
    database = Database(database_path(erased, "ropes"))
    store = SqliteObjectStore(database, BlobFiles(erased / "blobs"))
    store.put_many("alice", texts("a secret", 3))
    store.drop_namespace("alice")
    store.scrub()
    store.close()
    ((_, what),) = problems(erased, "--erased", "alice")
    assert what == "3 objects are in no namespace"


@pytest.mark.req("AUT-8")
def test_a_key_is_found_though_others_have_the_domain(erased: Path) -> None:
    tables = SqliteTables(Database(database_path(erased, "gateway")))
    (row,) = ApiKeys(tables.keyed("keys")).principals()
    # Of the domain that the operator is in.
    left = type(row)(**{**as_fields(row), "principal": "alice"})
    ApiKeys(tables.keyed("keys")).add("hg-left-and-enough-characters", left)
    tables.scrub()
    tables.close()
    for name in ("alice", "all"):
        expected = [("the gateway room", "the key of alice is there still")]
        assert problems(erased, "--erased", name) == expected


def as_fields(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def test_what_somebody_has_again_is_not_looked_for(used: Path) -> None:
    """The operator's is in use: what it has is no trace of an erasure, if it is younger."""
    order = order_of("operator")
    order = Erase(**{**as_fields(order), "domains": ["operator"]})
    erasure_of(used, order)
    key = used / "keys" / f"pages-{domain_digest('operator').hex()}.secret"
    key.touch(mode=0o600)
    assert looked(used, "--erased", "operator")["ok"]
    # What was asked for after the key was made did not destroy it.
    erasure_of(used, order, asked_ns=key.stat().st_mtime_ns + 1)
    ((where, what),) = problems(used, "--erased", "operator")
    assert (where, what) == (str(key), "of operator is older than its erasure")


@pytest.mark.req("AUT-8")
def test_letters_that_are_left_are_found_in_rows_and_in_free_space(erased: Path) -> None:
    path = database_path(erased, "gateway")
    left_a_letter(erased, "alice/notes")
    ((where, what),) = problems(erased, "--erased", "alice")
    assert where == "the gateway room"
    assert what == "the Matrix message $event is there still"
    # Deleted as a build would that does not overwrite: no row has it, and its bytes are there.
    connection = apsw.Connection(str(path))
    connection.pragma("secure_delete", False)
    connection.execute("DELETE FROM keyed WHERE name = 'matrix-waiting'")
    connection.close()
    assert b"a secret of hers" in path.read_bytes()
    (problem,) = looked(erased, "--erased", "alice")["problems"]
    assert (problem["kind"], problem["where"]) == ("dead space", str(path))
    assert looked(erased, "--erased", "alice", "--repair")["ok"]
    assert b"a secret of hers" not in path.read_bytes()
    assert looked(erased, "--erased", "alice")["problems"] == []


@pytest.mark.req("AUT-8")
def test_a_letter_that_says_an_erased_object_is_found(used: Path) -> None:
    left_a_letter(used, "operator/notes")
    said, other = (str(TextId.of(body)) for body in (b"a secret of hers", b"another"))
    for number, (object, found) in enumerate(((said, 1), (other, 0))):
        order = Erase(
            domains=[],
            namespaces=["operator"],
            spared=[],
            principals=[],
            names=[],
            objects=[fingerprint(object)],
        )
        made = erasure_of(used, order, id=f"erasure-{number}", name=fingerprint(object))
        assert len(problems(used, "--erased", made)) == found


def left_a_letter(home: Path, namespace: str) -> None:
    tables = SqliteTables(Database(database_path(home, "gateway")))
    letter = Letter(
        event="$event",
        room="!room:host",
        sender="@somebody:host",
        body="a secret of hers",
        principal=PUBLIC_KEY,
        namespace=namespace,
    )
    Inbox(tables).take([letter], "s")
    tables.scrub()
    tables.close()


@pytest.mark.req("AUT-8")
def test_what_belongs_to_nothing_is_found_and_keys_are_destroyed(erased: Path) -> None:
    tables = SqliteTables(Database(database_path(erased, "events")))
    tables.keyed(LEASES).put(turn_key("gone", 1), bytes(8))
    tables.close()
    key = erased / "keys" / f"source-{'0' * 32}.ed25519"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    found = problems(erased, "--erased", "alice")
    assert found == [
        ("the events room", "1 rows of leases are of no session"),
        (str(key), "is the key of no source: --repair destroys it"),
    ]
    looked(erased, "--erased", "alice", "--repair")
    assert not key.exists()


def order_of(name: str) -> Erase:
    """What a principal's erasure took that had `home/<name>` and the domain `of-<name>`."""
    return Erase(
        domains=[f"of-{name}"],
        namespaces=[name, f"home/{name}"],
        spared=[],
        principals=[hashlib.sha256(name.encode()).digest() if name != "alice" else PUBLIC_KEY],
        names=[name],
    )


def erasure_of(
    home: Path, order: Erase, *, id: str | None = None, name: str | None = None, asked_ns: int = 1
) -> str:
    """The id of an erasure that the authority keeps as done."""
    name = name or order.names[0]
    row = ErasureRow(
        id=id or f"erasure-{name}",
        target="object" if order.objects else "principal",
        name=name,
        cause="asked",
        asked_ns=asked_ns,
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
