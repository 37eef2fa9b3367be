"""Evidence: what is accepted as such, and the log of it that a domain keeps.

An execution is accepted from a room that counts, over its own signature, of exactly the invocation
that it states, with the outputs that the invocation's contract declares. Ids are computed here.

The log is the truth and the index its shadow. It is hash-chained and only ever appended to; each
domain has its own, in generations named `evidence-<domain>-<n>`. A generation that is damaged, or
that the operator disowns, is put aside unread and the next one begins, with an opening entry so
that its name is found again; nothing in it is repaired. One that is nearly full is compacted
(`compaction.py`) into the next one, which begins with a signed checkpoint and counts once the
other is gone: the two change places in one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from protocol.derivation import (
    EVIDENCE_BYTES_MAX,
    Derivation,
    DerivationEvidence,
    DerivationInvocation,
    check_pair,
    open_evidence,
)
from protocol.errors import ContentError, CorruptObject, RequestError
from protocol.families import FAMILIES
from protocol.ids import EvidenceId, InvocationId, framed_digest, parse_any
from protocol.messages.muninn import Body, Origin
from protocol.record import Record, decode_record, encode_record, object_id
from store.tables import Append, LogHead, LogTable, Tables, entry_digest, log_start

_PREFIX: Final = "evidence"


@dataclass(frozen=True)
class Examined:
    """One evidence that holds: its invocation, itself, and what they are called."""

    key: InvocationId
    invocation: DerivationInvocation
    id: EvidenceId
    evidence: DerivationEvidence
    signed: bytes
    origin: Origin | None = None

    @property
    def outputs_digest(self) -> bytes:
        """What two executions are compared by: 32 bytes over labels and ids, in order."""
        said = [f"{output.label} {output.id}" for output in self.evidence.outputs]
        return framed_digest("huginn.outputs/1", "\n".join(said).encode("utf-8"))


def examine(
    invocation: DerivationInvocation,
    signed: bytes,
    executors: Collection[bytes],
    bodies: Collection[Body] = (),
    origin: Origin | None = None,
) -> Examined:
    """The evidence in `signed`, if it is one of `executors`' of exactly `invocation`.

    Raises AuthorityError (step `evidence`), EncodingError, RecordError, ContentError for what does
    not fit, CorruptObject for a body that is not its output's.
    """
    if len(signed) > EVIDENCE_BYTES_MAX:
        raise ContentError(f"evidence of {len(signed)} bytes, at most {EVIDENCE_BYTES_MAX}")
    examined = _paired(invocation, signed, origin)
    evidence = examined.evidence
    if evidence.executor not in executors:
        raise ContentError("the evidence is signed by a key whose word does not count here")
    family = FAMILIES.get(invocation.transform_contract)
    if family is None:
        raise ContentError(f"no family has the contract {invocation.transform_contract}")
    family.check(Derivation(invocation, evidence.outputs))
    for body in bodies:
        named = [output.id for output in evidence.outputs if output.label == body.label]
        if len(named) != 1:
            raise ContentError(f"a body for '{body.label:.80}', which is not one output")
        parse_any(named[0]).check(body.body)
    return examined


def _paired(invocation: DerivationInvocation, signed: bytes, origin: Origin | None) -> Examined:
    evidence = open_evidence(signed)
    check_pair(invocation, evidence)
    parameters = None if origin is None else origin.parameters
    if parameters is not None and object_id(parameters) != invocation.parameters:
        raise ContentError(f"other parameters than {invocation.parameters}, which are named")
    return Examined(
        key=evidence.invocation,
        invocation=invocation,
        id=EvidenceId.of(encode_record(evidence)),
        evidence=evidence,
        signed=signed,
        origin=origin,
    )


class Kept(Record):
    """One entry of a log. With a record and signed evidence: that, with where its inputs can be
    had. With a key alone: its inputs were found to be gone. With a checkpoint: the opening of a
    compacted generation. With nothing: the opening of another. `at_ns`: when it was written down,
    in wall nanoseconds."""

    v: Literal[1]
    key: InvocationId | None = None
    invocation: DerivationInvocation | None = None
    evidence: bytes | None = None
    origin: Origin | None = None
    checkpoint: bytes | None = None
    at_ns: int | None = None


OPENING: Final = Kept(v=1)


def kept(examined: Examined, at_ns: int | None = None) -> Kept:
    return Kept(
        v=1,
        key=examined.key,
        invocation=examined.invocation,
        evidence=examined.signed,
        origin=examined.origin,
        at_ns=at_ns,
    )


def reopened(entry: Kept) -> Examined | InvocationId | None:
    """What a log's entry holds: evidence of whichever executor, the invocation whose inputs are
    gone, or nothing (an opening). Raises CorruptObject for what was never appended."""
    try:
        if entry.invocation is not None and entry.evidence is not None:
            examined = _paired(entry.invocation, entry.evidence, entry.origin)
            if entry.key == examined.key:
                return examined
        elif entry.invocation is None and entry.evidence is None:
            return entry.key
    except RequestError as error:
        raise CorruptObject(f"an entry of a log is no evidence: {error}") from error
    raise CorruptObject("an entry of a log does not hold together")


def domain_stem(domain: str) -> str:
    """What the names of a domain's tables and logs are made of: 32 hexadecimal digits."""
    return framed_digest("huginn.domain/1", domain.encode("utf-8")).hex()[:32]


class EvidenceLog:
    """Generation `generation` (0 …) of the log of `domain`."""

    def __init__(self, tables: Tables, domain: str, generation: int) -> None:
        self.domain = domain
        self._tables = tables
        self._generation = generation
        self.name = f"{_PREFIX}-{domain_stem(domain)}-{generation}"
        self._log: LogTable = tables.log(self.name)

    def next(self) -> EvidenceLog:
        """The generation after this one."""
        return EvidenceLog(self._tables, self.domain, self._generation + 1)

    @property
    def start(self) -> LogHead:
        return log_start(self.name)

    def head(self) -> LogHead:
        """Where it ends. Raises StoreFault."""
        return self._log.head()

    def append(self, entry: Kept) -> Append:
        """The change that adds `entry`."""
        return Append(self.name, encode_record(entry))

    def after(self, head: LogHead, entry: Append) -> LogHead:
        """The head once `entry` was added behind `head`."""
        seq = head.seq + 1
        return LogHead(seq, entry_digest(seq, head.digest, entry.body))

    def walk(self) -> Iterator[tuple[LogHead, Kept]]:
        """Every entry and the head that it makes, from the start, each hashed anew.

        Raises CorruptObject at the first that is not what was appended, StoreFault.
        """
        head = self.start
        for entry in self._log.entries():
            digest = entry_digest(head.seq + 1, head.digest, entry.body)
            if (entry.seq, entry.previous, entry.digest) != (head.seq + 1, head.digest, digest):
                raise CorruptObject(f"log {self.name}: entry {entry.seq} is not what was appended")
            head = LogHead(entry.seq, digest)
            yield head, self._decoded(entry.seq, entry.body)

    def read(self, seq: int) -> Kept | None:
        """Entry `seq`, if it is there and can be read. Raises StoreFault."""
        for entry in self._log.entries(after=seq - 1):
            return self._decoded(seq, entry.body) if entry.seq == seq else None
        return None

    def _decoded(self, seq: int, body: bytes) -> Kept:
        try:
            return decode_record(Kept, body)
        except RequestError as error:
            raise CorruptObject(f"log {self.name}: entry {seq} is no evidence: {error}") from error


def last_generation(tables: Tables, domain: str) -> int | None:
    """The newest generation that has entries and counts; None: the domain has no log. A compacted
    one beside the one that it was to replace was never finished. Raises StoreFault."""
    prefix = f"{_PREFIX}-{domain_stem(domain)}-"
    found = {int(name.removeprefix(prefix)) for name in tables.logs() if name.startswith(prefix)}
    whole = (n for n in found if n - 1 not in found or not _is_compacted(tables, domain, n))
    return max(whole, default=None)


def _is_compacted(tables: Tables, domain: str, generation: int) -> bool:
    try:
        first = EvidenceLog(tables, domain, generation).read(1)
    except CorruptObject:
        return False
    return first is not None and first.checkpoint is not None
