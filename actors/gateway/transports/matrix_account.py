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
from store.keys import read_private

FILE: Final = "matrix.json"
_FILE_BYTES_MAX: Final = 65_536
_KEY_BYTES_MAX: Final = 4096


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
    is not one, StoreFault for one that others may read: it holds an access token."""
    path = home / FILE
    if not path.exists():
        return None
    data = read_private(path, _FILE_BYTES_MAX)
    try:
        return msgspec.json.decode(data, type=Account)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ContentError(f"{path}: {error}; `huginn matrix login` writes it anew") from error


def read_key(home: Path, account: Account) -> str:
    """The API key that `account`'s answers are asked with. Raises StoreFault for a file that is not
    there or that others may read, ContentError for one that holds no key."""
    path = home / account.key_file
    try:
        key = read_private(path, _KEY_BYTES_MAX).decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise ContentError(f"{path} is not one line of ASCII text: no API key") from error
    if not key:
        raise ContentError(f"{path} is empty: put an API key there")
    return key


def private_files(home: Path) -> list[Path]:
    """The files of the account in `home` that are nobody else's to read, whatever is in them."""
    path = home / FILE
    try:
        account = msgspec.json.decode(path.read_bytes(), type=Account)
    except (OSError, msgspec.ValidationError, msgspec.DecodeError):
        return [path]
    return [path, home / account.key_file]


def write_account(home: Path, account: Account) -> None:
    """Keep `account` in `home`, in place of another. Raises OSError."""
    path = home / FILE
    unfinished = path.with_suffix(UNFINISHED)
    unfinished.unlink(missing_ok=True)
    write_unfinished(unfinished, msgspec.json.encode(account), mode=0o600)
    os.replace(unfinished, path)
    sync_directory(home)
