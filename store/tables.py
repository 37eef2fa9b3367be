"""Tables and logs: what a room keeps that is not an object.

A keyed table maps bytes to bytes and remembers the order of first insertion. A log is append-only,
or dropped whole, and hash-chained: entry n carries the digest of entry n-1, so a changed, removed
or inserted entry shows, and a remembered head shows a cut tail.

    digest(n) = SHA-256 framed with "huginn.log/1" over u64be(n) ‖ digest(n-1) ‖ body
    digest(0) = SHA-256 framed with "huginn.log-start/1" over the log's name

Changes are values. `apply` makes many of them one transaction, over all the tables of a file: so
a grant and its audit entry, or a balance and its ledger line, are there together or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from protocol.errors import ContentError, CorruptObject, LimitExceeded
from protocol.ids import framed_digest
from protocol.limits import RECORD_BYTES_MAX

# A key is an id or a few of them joined; it lies in an index, which wants it short.
KEY_BYTES_MAX: Final = 1024
# Entries that one snapshot reads while a log is walked.
LOG_PAGE_ENTRIES: Final = 256
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Put:
    """Sets `key` in the keyed table `table`. A key that is there keeps its place in the order."""

    table: str
    key: bytes
    value: bytes


@dataclass(frozen=True)
class Delete:
    """Removes `key` from `table`, if it is there."""

    table: str
    key: bytes


@dataclass(frozen=True)
class Trim:
    """Removes the oldest keys of `table` that begin with `prefix` (b"": all) until at most `keep`
    of these are left."""

    table: str
    keep: int
    prefix: bytes = b""


@dataclass(frozen=True)
class Append:
    """Adds `body` to the log `log`."""

    log: str
    body: bytes


@dataclass(frozen=True)
class Drop:
    """Removes the log `log` with all its entries: the next one appended is its first."""

    log: str


Change = Put | Delete | Trim | Append | Drop


class LogHead(NamedTuple):
    """Where a log ends: the number of its last entry (0: none) and the digest that covers all."""

    seq: int
    digest: bytes


class LogEntry(NamedTuple):
    """One entry; `seq` counts from 1 without gaps."""

    seq: int
    previous: bytes
    digest: bytes
    body: bytes


class KeyedTable(Protocol):
    """One table. A written change is durable when the method returns. Any thread may call."""

    name: str

    def put(self, key: bytes, value: bytes) -> None:
        """Sets the key (1 to 1024 bytes) to the value (at most 16 MiB).

        Raises ContentError for what is not `bytes` or an empty key, LimitExceeded for too many.
        """

    def get(self, key: bytes) -> bytes | None:
        """The value, or None if the key is not there."""

    def delete(self, key: bytes) -> bool:
        """Removes the key; whether it was there."""

    def items(self, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Keys that begin with `prefix` and their values, in the order of first insertion."""

    def count(self) -> int:
        """How many keys there are."""

    def trim(self, keep: int, prefix: bytes = b"") -> int:
        """Removes the oldest keys that begin with `prefix` until at most `keep` (>= 0) of these are
        left; how many went."""


class LogTable(Protocol):
    """One log. An entry is durable when `append` returns. Any thread may call."""

    name: str

    def append(self, body: bytes) -> int:
        """Adds an entry of at most 16 MiB; its number."""

    def head(self) -> LogHead:
        """Where the log ends now."""

    def entries(self, after: int = 0) -> Iterator[LogEntry]:
        """The entries with numbers above `after`, in order, up to the end that it then finds."""

    def verify(self, trusted: LogHead | None = None) -> LogHead:
        """The head, after every entry was hashed anew and the chain runs through all of them.

        `trusted` is a head that was remembered elsewhere: the log has to run through it. Raises
        CorruptObject that names the first entry at fault.
        """


class Tables(Protocol):
    """All tables of one file. Names are `[a-z][a-z0-9_-]*`, at most 64 (ContentError).

    A table or log exists as soon as it is named. After `close` everything raises StoreFault.
    """

    def keyed(self, name: str) -> KeyedTable:
        """The keyed table of that name."""

    def log(self, name: str) -> LogTable:
        """The log of that name."""

    def apply(self, changes: Sequence[Change]) -> list[int]:
        """Makes the changes, in order, all or none, durably; what each did.

        That is 1 for a Put, the rows removed for a Delete or Trim, the entry's number for an
        Append, the entries removed for a Drop. Raises as `KeyedTable.put` does.
        """

    def apply_soon(self, changes: Sequence[Change]) -> Future[list[int]]:
        """`apply` that does not wait: the future resolves when the changes are durable."""

    def logs(self) -> list[str]:
        """The names of the logs that have entries, in order."""

    def scrub(self) -> None:
        """Leaves nothing of what was deleted on disk. May take long; others wait meanwhile.

        Raises StoreFault if that could not be done: then it can be asked again.
        """

    def close(self) -> None:
        """Finishes what was asked for and gives up the file. Twice is once."""


def log_start(name: str) -> LogHead:
    """The head of the log `name` before its first entry."""
    return LogHead(0, framed_digest("huginn.log-start/1", name.encode("ascii")))


def entry_digest(seq: int, previous: bytes, body: bytes) -> bytes:
    """The digest of entry `seq` after one with digest `previous` (32 bytes)."""
    return framed_digest("huginn.log/1", seq.to_bytes(8, "big") + previous + body)


def verify_chain(name: str, entries: Iterable[LogEntry], trusted: LogHead | None) -> LogHead:
    """The head that `entries` lead to from the start; raises as `LogTable.verify` says."""
    head = log_start(name)
    passed = trusted is None or trusted == head
    for entry in entries:
        if entry.seq != head.seq + 1 or entry.previous != head.digest:
            raise CorruptObject(f"log {name}: entry {entry.seq} does not follow entry {head.seq}")
        if entry.digest != entry_digest(entry.seq, entry.previous, entry.body):
            raise CorruptObject(f"log {name}: the bytes of entry {entry.seq} do not hash to it")
        head = LogHead(entry.seq, entry.digest)
        passed = passed or trusted == head
    if not passed:
        wanted = 0 if trusted is None else trusted.seq
        raise CorruptObject(f"log {name}: its {head.seq} entries do not run through head {wanted}")
    return head


def check_table_name(name: str) -> str:
    """`name`, if it may name a table or log; raises ContentError."""
    if type(name) is not str or not _NAME.fullmatch(name):
        raise ContentError(f"{name!r:.80} cannot name a table: a-z, then a-z, 0-9, '_' and '-'")
    return name


def check_bytes(what: str, value: bytes, least: int, most: int) -> bytes:
    """`value`, if it is `least` to `most` bytes; raises ContentError or LimitExceeded."""
    if type(value) is not bytes or len(value) < least:
        raise ContentError(f"a {what} is bytes, at least {least}, not {value!r:.40}")
    if len(value) > most:
        raise LimitExceeded(f"a {what} of {len(value)} bytes, at most {most} are allowed")
    return value


def check_change(change: Change) -> None:
    """Raises unless `change` can be made; after this only the disk can refuse it."""
    match change:
        case Put(table, key, value):
            check_table_name(table)
            check_bytes("key", key, 1, KEY_BYTES_MAX)
            check_bytes("value", value, 0, RECORD_BYTES_MAX)
        case Delete(table, key):
            check_table_name(table)
            check_bytes("key", key, 1, KEY_BYTES_MAX)
        case Trim(table, keep, prefix):
            check_table_name(table)
            check_bytes("prefix", prefix, 0, KEY_BYTES_MAX)
            if type(keep) is not int or keep < 0:
                raise ContentError(f"a table is trimmed to 0 keys or more, not {keep!r:.40}")
        case Append(log, body):
            check_table_name(log)
            check_bytes("log entry", body, 0, RECORD_BYTES_MAX)
        case Drop(log):
            check_table_name(log)
        case _:
            raise ContentError(f"a {type(change).__name__} is not a change")
