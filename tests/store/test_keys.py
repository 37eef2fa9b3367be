from __future__ import annotations

import itertools
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protocol.errors import ContentError, StoreFault
from store.keys import KeyStore


class Drawn:
    """Entropy that is different each time and the same in each test."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self, nbytes: int) -> bytes:
        return next(self._numbers).to_bytes(nbytes, "big")


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys", entropy=Drawn())


def test_a_key_is_made_once(keys: KeyStore) -> None:
    key = keys.ed25519("worker")
    assert bytes(key) == bytes(keys.ed25519("worker")) == (1).to_bytes(32, "big")
    assert bytes(KeyStore(keys.root, entropy=Drawn()).ed25519("worker")) == bytes(key)
    assert bytes(keys.ed25519("other")) != bytes(key)
    assert key.verify_key.verify(key.sign(b"message")) == b"message"


def test_what_writes_that_died_left_is_swept(keys: KeyStore) -> None:
    key = bytes(keys.ed25519("worker"))
    half = keys.root / ".pages.secret.0123456789abcdef.unfinished"
    half.write_bytes(b"half")
    # One that died between giving the name and taking the other away.
    os.link(keys.root / "worker.ed25519", keys.root / ".worker.ed25519.01.unfinished")
    (keys.root / "stranger").write_bytes(b"")
    assert keys.sweep() == 2
    assert sorted(path.name for path in keys.root.iterdir()) == ["stranger", "worker.ed25519"]
    assert bytes(keys.ed25519("worker")) == key
    assert keys.sweep() == 0
    (keys.root / ".directory.unfinished").mkdir()
    with pytest.raises(StoreFault, match="tidied"):
        keys.sweep()


def test_a_secret_is_made_once(keys: KeyStore) -> None:
    secret = keys.secret("domain.a", 32)
    assert len(secret) == 32
    assert keys.secret("domain.a", 32) == secret
    for nbytes in (0, 15, 4097):
        with pytest.raises(ContentError, match="16 to 4096"):
            keys.secret("domain.b", nbytes)


def test_a_text_is_one_line_made_once(keys: KeyStore) -> None:
    assert keys.text_once("operator.key", lambda: "hg-abc") == "hg-abc"
    assert keys.text_once("operator.key", lambda: "hg-def") == "hg-abc"
    assert (keys.root / "operator.key").read_bytes() == b"hg-abc\n"
    for text in ("", "two\nlines", "é", "tab\t"):
        with pytest.raises(ContentError, match="one line"):
            keys.text_once("other.key", lambda text=text: text)
    assert not keys.exists("other.key")
    (keys.root / "operator.key").write_bytes(b"\xff\xfe\n")
    with pytest.raises(StoreFault, match="not one line"):
        keys.text_once("operator.key", lambda: "x")


@pytest.mark.req("AUT-8")
def test_keys_at_rest_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keys = KeyStore(tmp_path / "a" / "keys", entropy=Drawn())
        keys.ed25519("worker")
        keys.secret("domain", 32)
        keys.text_once("operator.key", lambda: "hg-abc")
    finally:
        os.umask(before)
    assert stat.S_IMODE(keys.root.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in keys.root.iterdir()}
    assert modes == dict.fromkeys(["worker.ed25519", "domain.secret", "operator.key"], 0o600)


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610, 0o666])
def test_a_file_open_to_others_is_refused_and_kept(keys: KeyStore, mode: int) -> None:
    keys.ed25519("worker")
    path = keys.root / "worker.ed25519"
    before = path.read_bytes()
    path.chmod(mode)
    with pytest.raises(StoreFault, match="chmod 600") as refused:
        keys.ed25519("worker")
    assert str(path) in refused.value.message
    assert path.read_bytes() == before
    path.chmod(0o600)
    assert bytes(keys.ed25519("worker")) == before


@pytest.mark.req("AUT-8")
def test_a_directory_open_to_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir(mode=0o755)
    with pytest.raises(StoreFault, match="chmod 700"):
        KeyStore(tmp_path / "keys", entropy=Drawn())


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_key_of_the_wrong_length_is_refused_and_kept(keys: KeyStore, length: int) -> None:
    keys.ed25519("worker")
    path = keys.root / "worker.ed25519"
    path.write_bytes(bytes(length))
    with pytest.raises(StoreFault, match="a key of 32 is needed: restore it"):
        keys.ed25519("worker")
    assert path.stat().st_size == length


def test_a_link_is_not_followed(keys: KeyStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(bytes(32))
    (tmp_path / "elsewhere").chmod(0o600)
    (keys.root / "worker.ed25519").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreFault, match="cannot be read"):
        keys.ed25519("worker")


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "A", "ä", "x" * 101, "a\0"])
def test_names_that_are_no_names(keys: KeyStore, name: str) -> None:
    with pytest.raises(ContentError, match="cannot name a key"):
        keys.ed25519(name)
    assert list(keys.root.iterdir()) == []


def test_of_many_who_make_a_key_all_get_the_same(tmp_path: Path) -> None:
    together = threading.Barrier(8)
    drawn = Drawn()

    def make(_: int) -> bytes:
        keys = KeyStore(tmp_path / "keys", entropy=drawn)
        together.wait(60)
        return bytes(keys.ed25519("worker"))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(make, range(8)))) == 1
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["worker.ed25519"]


def test_short_entropy_makes_no_key(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys", entropy=lambda nbytes: bytes(nbytes - 1))
    with pytest.raises(StoreFault, match="31 bytes"):
        keys.ed25519("worker")
    assert not keys.exists("worker.ed25519")


@pytest.mark.req("AUT-8")
def test_a_destroyed_key_is_gone_also_through_another_link(keys: KeyStore, tmp_path: Path) -> None:
    secret = keys.secret("domain", 32)
    os.link(keys.root / "domain.secret", tmp_path / "other-link")
    assert keys.destroy("domain.secret") is True
    assert keys.destroy("domain.secret") is False
    assert (tmp_path / "other-link").read_bytes() == bytes(32)
    assert keys.secret("domain", 32) != secret
