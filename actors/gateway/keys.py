"""API keys: what a client shows, of which only a hash is kept.

A row is found by the SHA-256 of the key that was shown, so looking up takes the same steps for a
key that is nearly right as for any other. The row holds what is public about its principal: the
chain that the authority issued to the key which the API key derives. With the row alone nobody can
sign: the seed comes from the API key, which is here only while its request is.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from protocol.capability import decode_link
from protocol.errors import CorruptObject, DiskFull, EncodingError, RecordError
from protocol.messages.authority import Enroll, Enrolled
from protocol.messages.erasure import Erase
from protocol.record import Record, decode_record, encode_record
from protocol.signing import Signer, principal_seed
from store.tables import KeyedTable

KEY_PREFIX: Final = "hg-"
# 160 bits: beyond any search, and 32 characters of base32 without padding.
KEY_ENTROPY_BYTES: Final = 20
# No key of ours is longer; it bounds what is hashed for a stranger.
KEY_CHARS_MAX: Final = 512
# Rows that are remembered as they were read, of two chains and some names each.
_ROWS_MAX: Final = 1024


class KeyRow(Record):
    """What is kept of a key: its principal, the chains issued to it, and where it may work.

    `admin_chain` is the second handle of one who administers: it grants, revokes and operates, and
    reads nothing. `created_s` is Unix time in seconds.
    """

    v: Literal[1]
    principal: str
    chain: list[bytes]
    namespace: str
    domain: str
    created_s: int
    admin_chain: list[bytes] | None = None

    @property
    def public(self) -> bytes:
        """The principal's public key, which the first link names."""
        return decode_link(self.chain[0]).capability.aud

    @classmethod
    def granted(cls, ask: Enroll, made: Enrolled, created_s: int) -> KeyRow:
        """The row of the principal that was enrolled as `ask` and got the handles of `made`."""
        return cls(
            v=1,
            principal=ask.name,
            chain=made.chain,
            namespace=ask.namespace,
            domain=ask.domain,
            created_s=created_s,
            admin_chain=made.admin_chain,
        )


class KeyHolder(NamedTuple):
    """A row, and the signer that only the key itself gives."""

    row: KeyRow
    signer: Signer


def mint_key(entropy: bytes) -> str:
    """A new API key from `KEY_ENTROPY_BYTES` random bytes."""
    return KEY_PREFIX + base64.b32encode(entropy).decode("ascii").lower()


def key_hash(key: str) -> bytes:
    """Under what a key is kept: the SHA-256 of its UTF-8 bytes."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class ApiKeys:
    """The table of API keys. Small: a row for each principal of this installation."""

    def __init__(self, table: KeyedTable) -> None:
        self._table = table
        # Keys that nobody was told, because there was no room for them, by principal.
        self._untold: dict[str, str] = {}

    def untold(self, principal: str) -> str | None:
        """The key under which `principal` was enrolled when there was no room for its row here:
        enrolling it again under that one is no conflict."""
        return self._untold.get(principal)

    def add(self, key: str, row: KeyRow) -> None:
        """Keep `row` under the hash of `key`; durable when it returns. Raises DiskFull, and then
        the key is `untold`."""
        try:
            self._table.put(key_hash(key), encode_record(row))
        except DiskFull:
            self._untold[row.principal] = key
            raise
        self._untold.pop(row.principal, None)

    def find(self, key: str) -> KeyHolder | None:
        """The holder of `key`, or None for a key that is not here."""
        if not key or len(key) > KEY_CHARS_MAX:
            return None
        kept = self._table.get(key_hash(key))
        return None if kept is None else KeyHolder(_read(kept), Signer(principal_seed(key)))

    def of(self, public: bytes) -> KeyRow | None:
        """The row of the principal whose public key is `public` (32 bytes)."""
        rows = (_read(kept) for _, kept in self._table.items())
        return next((row for row in rows if row.public == public), None)

    def remove(self, principal: str) -> int:
        """Forget every key of `principal`; how many there were."""
        self._untold.pop(principal, None)
        hashes = [key for key, kept in self._table.items() if _row(kept).principal == principal]
        return sum(self._table.delete(key) for key in hashes)

    def principals(self) -> list[KeyRow]:
        """Every row, oldest first."""
        return [_row(kept) for _, kept in self._table.items()]


def traces(table: KeyedTable, ask: Erase) -> list[str]:
    """Whose key is in `table` still, of those whom `ask` took: by name or by key, whatever their
    domain."""
    return [
        f"the key of {row.principal}"
        for row in ApiKeys(table).principals()
        if row.principal in ask.names or row.public in ask.principals
    ]


@lru_cache(maxsize=_ROWS_MAX)
def _read(kept: bytes) -> KeyRow:
    """`_row`, remembered: what a row says is public, and every request reads its own."""
    return _row(kept)


def _row(kept: bytes) -> KeyRow:
    try:
        return decode_record(KeyRow, kept)
    except (EncodingError, RecordError) as error:
        raise CorruptObject(f"a row of the API key table cannot be read: {error}") from error
