"""The account: kept with nobody else's eyes on it, and refused in words when it is not one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from actors.gateway.transports.matrix_account import (
    FILE,
    Account,
    private_files,
    read_account,
    read_key,
    write_account,
)
from protocol.errors import ContentError, StoreFault

ACCOUNT = Account(
    url="http://127.0.0.1:1", user="@bot:h", device="D", token="secret", allow=("@a:h",)
)


def test_what_is_written_is_read_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    assert read_account(tmp_path) is None
    write_account(tmp_path, ACCOUNT)
    write_account(tmp_path, ACCOUNT)
    assert read_account(tmp_path) == ACCOUNT
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"url":1}', b"\xff"])
def test_what_is_no_account_is_refused_with_its_path(tmp_path: Path, body: bytes) -> None:
    (tmp_path / FILE).write_bytes(body)
    (tmp_path / FILE).chmod(0o600)
    with pytest.raises(ContentError, match=FILE):
        read_account(tmp_path)
    # What it names cannot be known, but itself it is nobody's to read.
    assert private_files(tmp_path) == [tmp_path / FILE]


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_token_or_a_key_that_others_may_read_is_not_used(tmp_path: Path, mode: int) -> None:
    write_account(tmp_path, ACCOUNT)
    key = tmp_path / ACCOUNT.key_file
    key.write_text("hg-the-key\n", "ascii")
    key.chmod(0o600)
    assert read_key(tmp_path, ACCOUNT) == "hg-the-key"
    assert private_files(tmp_path) == [tmp_path / FILE, key]
    key.chmod(mode)
    with pytest.raises(StoreFault, match=f"chmod 600 {key}"):
        read_key(tmp_path, ACCOUNT)
    (tmp_path / FILE).chmod(mode)
    with pytest.raises(StoreFault, match=f"chmod 600 {tmp_path / FILE}"):
        read_account(tmp_path)


@pytest.mark.parametrize(("body", "match"), [(b"", "is empty"), (b"\xff", "ASCII")])
def test_a_file_that_holds_no_key_is_refused_with_its_path(
    tmp_path: Path, body: bytes, match: str
) -> None:
    with pytest.raises(StoreFault, match=ACCOUNT.key_file):
        read_key(tmp_path, ACCOUNT)
    key = tmp_path / ACCOUNT.key_file
    key.write_bytes(body)
    key.chmod(0o600)
    with pytest.raises(ContentError, match=match):
        read_key(tmp_path, ACCOUNT)
