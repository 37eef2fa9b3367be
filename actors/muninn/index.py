"""The index of one domain's evidence: disposable, and distrusted at every read.

Three tables, in one of two generations; the other is where the next index is built off to the
side. `guard` has an entry for each invocation in the log. `row` holds the evidence to serve, of at
most as many invocations as are resident: the least recently used go first. `suspect` holds both
sides of each conflict, for the operator. A header in the table `memo` says which generation and
which log count, and up to where; it changes in the transaction that appends to the log, so the two
disagree only where something was lost.

A value is sealed: it carries the digest of itself under its table and key, so that bytes which
moved or rotted are told from an answer.
"""

from __future__ import annotations

from typing import Final, TypeVar

from actors.muninn.evidence import domain_stem
from actors.muninn.guard import Guard
from protocol import cbor
from protocol.derivation import DerivationInvocation
from protocol.errors import CorruptObject, RequestError
from protocol.ids import InvocationId, framed_digest
from protocol.messages.muninn import Origin
from protocol.record import Record, decode_record, encode_record
from store.tables import Change, Delete, KeyedTable, Put, Tables, Trim

R = TypeVar("R", bound=Record)

MEMO: Final = "memo"
GENERATIONS: Final = 2


class Header(Record):
    """Of one domain: the generation of its index and of its log, the head of that log as the index
    knows it, how many guards and suspects there are, and how many logs were damaged so far."""

    generation: int
    log: int
    seq: int
    digest: bytes
    guards: int
    suspects: int
    damaged: int


class Row(Record):
    """The invocation, the newest evidence of it, as signed, and where its inputs can be had."""

    invocation: DerivationInvocation
    evidence: bytes
    origin: Origin | None = None


class Suspicion(Record):
    """A quarantined invocation: the evidence that came first and the first that differed."""

    invocation: DerivationInvocation
    evidence: list[bytes]


def sealed(table: str, key: bytes, record: Record) -> bytes:
    """The value that keeps `record` under `key` of `table`."""
    payload = encode_record(record)
    return cbor.encode([payload, _digest(table, key, payload)])


def unsealed(kind: type[R], table: str, key: bytes, value: bytes) -> R:
    """The record in such a value; raises CorruptObject for anything else."""
    try:
        match cbor.decode(value):
            case [bytes() as payload, digest] if digest == _digest(table, key, payload):
                return decode_record(kind, payload)
    except RequestError as error:
        raise CorruptObject(f"table {table}: a value cannot be read: {error}") from error
    raise CorruptObject(f"table {table}: a value is not what was put there")


def _digest(table: str, key: bytes, payload: bytes) -> bytes:
    body = cbor.encode([table, key, payload])
    return framed_digest("huginn.memo/1", body)


def read_header(tables: Tables, domain: str) -> Header | None:
    """The header of `domain`; None: there is none. Raises CorruptObject, StoreFault."""
    key = domain.encode("utf-8")
    value = tables.keyed(MEMO).get(key)
    return None if value is None else unsealed(Header, MEMO, key, value)


def put_header(domain: str, header: Header) -> Change:
    key = domain.encode("utf-8")
    return Put(MEMO, key, sealed(MEMO, key, header))


def domains(tables: Tables) -> list[str]:
    """The domains that have a header, oldest first. Raises StoreFault."""
    return [key.decode("utf-8", "replace") for key, _ in tables.keyed(MEMO).items()]


class Index:
    """Generation `generation` of the index of `domain`. Reading raises CorruptObject for a value
    that is not what was put there, and StoreFault."""

    def __init__(self, tables: Tables, domain: str, generation: int) -> None:
        stem = f"{domain_stem(domain)}-{generation}"
        self.generation = generation
        self.guards = tables.keyed(f"guard-{stem}")
        self.rows = tables.keyed(f"row-{stem}")
        self.suspects = tables.keyed(f"suspect-{stem}")

    def guard(self, key: InvocationId) -> Guard | None:
        return self._get(Guard, self.guards, key.digest)

    def row(self, key: InvocationId) -> Row | None:
        return self._get(Row, self.rows, key.digest)

    def resident(self) -> list[tuple[InvocationId, Row]]:
        """Every row, the least recently used first."""
        return [
            (InvocationId(key), unsealed(Row, self.rows.name, key, value))
            for key, value in self.rows.items()
        ]

    def suspicions(self) -> list[tuple[InvocationId, Suspicion]]:
        """Every quarantined invocation, oldest first."""
        return [
            (InvocationId(key), unsealed(Suspicion, self.suspects.name, key, value))
            for key, value in self.suspects.items()
        ]

    def put_guard(self, key: InvocationId, guard: Guard) -> Change:
        return self._put(self.guards, key, guard)

    def put_suspicion(self, key: InvocationId, suspicion: Suspicion) -> Change:
        return self._put(self.suspects, key, suspicion)

    def renew_row(self, key: InvocationId, row: Row) -> list[Change]:
        """The row as the most recently used: a key that stays would keep its old place."""
        return [*self.drop_row(key), self._put(self.rows, key, row)]

    def drop_row(self, key: InvocationId) -> list[Change]:
        return [Delete(self.rows.name, key.digest)]

    def trim_rows(self, resident_max: int) -> Change:
        return Trim(self.rows.name, resident_max)

    def clear(self) -> list[Change]:
        return [Trim(table.name, 0) for table in (self.guards, self.rows, self.suspects)]

    def _get(self, kind: type[R], table: KeyedTable, key: bytes) -> R | None:
        value = table.get(key)
        return None if value is None else unsealed(kind, table.name, key, value)

    def _put(self, table: KeyedTable, key: InvocationId, record: Record) -> Change:
        return Put(table.name, key.digest, sealed(table.name, key.digest, record))
