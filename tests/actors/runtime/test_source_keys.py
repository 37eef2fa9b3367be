"""Keys of sources: made once, kept to ourselves."""

from __future__ import annotations

import stat
from pathlib import Path

from actors.runtime.source_keys import StoredSourceKeys
from tests.worker_rooms import CountingEntropy


def test_a_key_is_made_once_and_each_has_its_own(tmp_path: Path) -> None:
    root = tmp_path / "keys"
    keys = StoredSourceKeys(root, CountingEntropy())
    first = keys.signer("source-1").public
    assert keys.signer("source-2").public != first
    assert StoredSourceKeys(root, CountingEntropy(99)).signer("source-1").public == first
    assert {stat.S_IMODE(path.stat().st_mode) for path in root.iterdir()} == {0o600}


def test_a_key_that_was_destroyed_is_another_the_next_time(tmp_path: Path) -> None:
    root = tmp_path / "keys"
    keys = StoredSourceKeys(root, CountingEntropy())
    first = keys.signer("source-1").public
    assert keys.destroy("source-1")
    assert list(root.iterdir()) == []
    assert not keys.destroy("source-1")
    assert keys.signer("source-1").public != first


def test_those_without_a_source_are_destroyed_and_no_other_room_is_touched(tmp_path: Path) -> None:
    root = tmp_path / "keys"
    keys = StoredSourceKeys(root, CountingEntropy())
    for name in ("source-1", "source-2", "events"):
        keys.signer(name)
    (root / "source-3.secret").write_bytes(b"x")
    keys.keep_only(["source-2", "source-9"])
    assert sorted(path.name for path in root.iterdir()) == [
        "events.ed25519",
        "source-2.ed25519",
        "source-3.secret",
    ]
