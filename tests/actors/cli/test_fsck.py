"""`huginn fsck` on a real data directory, with damage of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.cli.service_file import claimed
from actors.config import load
from actors.gateway.transports.matrix_account import Account, write_account
from actors.runtime.plan import database_path, prepare
from actors.runtime.world import SystemClock, SystemEntropy
from protocol.ids import TextId
from store.blobs import BlobFiles
from store.sqlite import Database
from store.sqlite_objects import SqliteObjectStore
from tests.huginn import answered, huginn, refused


@pytest.fixture
async def used(home: Path) -> Path:
    """A data directory as a start leaves it, with an object in it."""
    await prepare(load({"home": str(home)}, {}).config, SystemClock(), SystemEntropy())
    SqliteObjectStore(Database(database_path(home, "ropes")), BlobFiles(home / "blobs")).close()
    return home


def problems(home: Path, *words: str) -> list[dict[str, Any]]:
    """What is found where something is wrong."""
    result = huginn("fsck", *words, "--json", home=home)
    import json

    document = json.loads(result.stdout)
    assert result.exit_code == (0 if document["ok"] else 1)
    found: list[dict[str, Any]] = document["problems"]
    return found


def test_a_clean_home(used: Path) -> None:
    document = answered("fsck", home=used)
    assert document["ok"]
    assert document["problems"] == []
    assert document["logs"] >= 1
    assert "clean" in huginn("fsck", home=used).stdout


def test_open_keys_are_found_and_closed(used: Path) -> None:
    (used / "operator.key").chmod(0o644)
    (used / "keys").chmod(0o755)
    assert [each["kind"] for each in problems(used)] == ["mode", "mode"]
    assert "chmod 600" in huginn("fsck", home=used).stdout
    assert [each["action"] for each in problems(used, "--repair")] == ["repaired", "repaired"]
    assert problems(used) == []
    assert (used / "operator.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("name", ["matrix.json", "matrix.key", "remote-keys/far"])
def test_every_file_with_a_key_in_it_is_looked_at(used: Path, name: str) -> None:
    account = Account(
        url="http://127.0.0.1:1",
        user="@bot:h",
        device="D",
        token="secret",
        allow=("@a:h",),
        key_file="matrix.key",
    )
    write_account(used, account)
    (used / "remote-keys").mkdir(exist_ok=True)
    for path in (used / "matrix.key", used / "remote-keys" / "far"):
        path.write_text("hg-key http://far here", "ascii")
        path.chmod(0o600)
    assert problems(used) == []
    (used / name).chmod(0o640)
    assert [(each["kind"], each["where"]) for each in problems(used)] == [
        ("mode", str(used / name))
    ]
    assert [each["action"] for each in problems(used, "--repair")] == ["repaired"]
    assert problems(used) == []


def test_leftovers_are_found_and_removed(used: Path) -> None:
    (used / "keys" / ".root.ed25519.00.unfinished").write_bytes(b"half a key")
    fetch = used / "models" / ".fetch-abc"
    fetch.mkdir(parents=True)
    (fetch / "part.whl").write_bytes(b"half a wheel")
    orphan = TextId.of(b"an orphan")
    BlobFiles(used / "blobs").put(orphan, b"an orphan")
    kinds = ["orphan", "unfinished", "unfinished"]
    assert sorted(each["kind"] for each in problems(used)) == kinds
    assert {each["action"] for each in problems(used, "--repair")} == {"removed"}
    assert problems(used) == []
    assert not fetch.exists()


def test_a_damaged_file_needs_a_person(used: Path) -> None:
    database_path(used, "gateway").write_bytes(b"not a database, and long enough to be read" * 99)
    (found,) = problems(used, "--repair")
    assert found["kind"] in ("unreadable", "integrity")
    assert "gateway.sqlite" in found["where"]


def test_it_waits_for_nobody(used: Path) -> None:
    with claimed(used):
        refused("fsck", home=used, code="busy")


def test_no_home(tmp_path: Path) -> None:
    refused("fsck", home=tmp_path / "nothing", code="no_home")


def test_pages_are_derived_and_counted_whatever_is_in_them(used: Path) -> None:
    folder = used / "pages" / "d"
    folder.mkdir(mode=0o700, parents=True)
    (used / "pages").chmod(0o700)
    (folder / "one").write_bytes(b"no page at all")
    document = answered("fsck", home=used)
    assert document["ok"]
    assert document["derived_pages"] == 1
    assert "1 derived pages" in " ".join(huginn("fsck", home=used).stdout.split())
