"""The account: kept with nobody else's eyes on it, and refused in words when it is not one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from actors.gateway.transports.matrix_account import FILE, Account, read_account, write_account
from protocol.errors import ContentError

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
    with pytest.raises(ContentError, match=FILE):
        read_account(tmp_path)
