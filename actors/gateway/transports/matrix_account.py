"""The Matrix account that a service answers with, as kept: `matrix.json` of the data directory.

`huginn matrix login` writes the file (0600: it holds an access token), `huginn matrix logout`
removes it. A service that finds one at its start answers there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from protocol.errors import ContentError
from store.files import UNFINISHED, sync_directory, write_unfinished

FILE: Final = "matrix.json"


class Account(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`url`: the homeserver's client API. `user`: the account (`@name:server`), `device` and
    `token`: its login. `allow`: the users who are answered. `key_file`: the file in the data
    directory whose one line is the API key that answers are asked with; `persona`: whose the
    sessions are."""

    url: str
    user: str
    device: str
    token: str
    allow: tuple[str, ...]
    key_file: str = "operator.key"
    persona: str = "assistant"


def read_account(home: Path) -> Account | None:
    """The account of the installation in `home`; None: none. Raises ContentError for a file that
    is not one."""
    path = home / FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=Account)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ContentError(f"{path}: {error}; `huginn matrix login` writes it anew") from error


def write_account(home: Path, account: Account) -> None:
    """Keep `account` in `home`, in place of another. Raises OSError."""
    path = home / FILE
    unfinished = path.with_suffix(UNFINISHED)
    unfinished.unlink(missing_ok=True)
    write_unfinished(unfinished, msgspec.json.encode(account), mode=0o600)
    os.replace(unfinished, path)
    sync_directory(home)
