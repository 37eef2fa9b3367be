"""Compacting a log: the next generation of it, with what is still needed.

Dropped are repeats: evidence of outputs that were known already, of an invocation that nobody
contradicted. Kept are, in their order, the first evidence of each invocation (who said it first
and when), every spot check and the evidence that it checked, all that was ever said of what is
quarantined, and, behind them, which inputs are gone. So the index over the new log has the same
guards, but for testimonies that repeated.

The new log begins with a checkpoint: the head of the old one, signed by the room. It is written
off to the side and counts once the old one is gone, which happens in the transaction in which the
index over it is swapped in. A crash before that leaves the old log, and a rest that the next
compaction removes; after it the new one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, Literal

from actors.muninn.evidence import EvidenceLog, Examined, Kept, reopened
from actors.muninn.index import Index
from protocol.derivation import EVIDENCE_BYTES_MAX, DerivationEvidence
from protocol.errors import AuthorityError, CorruptObject, RequestError
from protocol.ids import InvocationId
from protocol.record import Record, decode_record, encode_record
from protocol.signing import Signer, pack_signed, unpack_signed, verify
from store.commit import settled
from store.tables import Change, Drop, LogHead, Tables

# What the room signs, before the payload.
CHECKPOINT_CONTEXT: Final = b"huginn.checkpoint/1\0"
_CHECKPOINT_BYTES_MAX: Final = 4096
# Entries that one transaction takes; between two of them others may run.
_BATCH: Final = 128


class Checkpoint(Record):
    """That the log in which this stands continues the log `log`, which ended with entry `seq` and
    `digest`."""

    v: Literal[1]
    domain: str
    log: str
    seq: int
    digest: bytes


def sign_checkpoint(signer: Signer, domain: str, source: EvidenceLog, head: LogHead) -> bytes:
    checkpoint = Checkpoint(v=1, domain=domain, log=source.name, seq=head.seq, digest=head.digest)
    return pack_signed(signer, CHECKPOINT_CONTEXT, encode_record(checkpoint))


def open_checkpoint(signed: bytes, sealer: bytes, domain: str) -> Checkpoint:
    """The checkpoint in `signed`, if the key `sealer` signed it for `domain`. Raises
    CorruptObject."""
    try:
        payload, signature = unpack_signed(signed, size_max=_CHECKPOINT_BYTES_MAX)
        checkpoint = decode_record(Checkpoint, payload)
        if not verify(sealer, CHECKPOINT_CONTEXT + payload, signature):
            raise AuthorityError("evidence", "the room did not sign it")
    except RequestError as error:
        raise CorruptObject(f"a log begins with no checkpoint of this room: {error}") from error
    if checkpoint.domain != domain:
        raise CorruptObject(f"a log of {domain} begins with a checkpoint of another domain")
    return checkpoint


@dataclass
class _Needed:
    """What of a log has to stay, entry by entry."""

    index: Index
    checked: set[bytes]
    first: set[InvocationId] = field(default_factory=set)
    expired: dict[InvocationId, Kept] = field(default_factory=dict)

    def takes(self, entry: Kept) -> bool:
        """Whether `entry` stays in its place. Raises CorruptObject, StoreFault."""
        said = reopened(entry)
        if said is None:
            return False
        key = said.key if isinstance(said, Examined) else said
        guard = self.index.guard(key)
        if guard is None:
            raise CorruptObject(f"{key} is in the log and not in its index")
        if not isinstance(said, Examined):
            if guard.state == "expired":
                self.expired[key] = entry
            return guard.state == "quarantined"
        is_first = key not in self.first
        self.first.add(key)
        is_check = said.evidence.verifier is not None
        is_checked = said.id.digest in self.checked
        return is_first or is_check or is_checked or guard.state == "quarantined"


async def compacted(
    tables: Tables, index: Index, source: EvidenceLog, head: LogHead, signer: Signer
) -> EvidenceLog:
    """The generation after `source`, written from it. `index` is the sound index over `source`,
    which ends at `head`.

    Raises CorruptObject for a log or an index that is not what was written, StoreFault. What was
    written by then is no generation.
    """
    target = source.next()
    needed = _Needed(index, _checked(source))
    signed = sign_checkpoint(signer, source.domain, source, head)
    batch: list[Change] = [Drop(target.name), target.append(Kept(v=1, checkpoint=signed))]
    at = source.start
    for at, entry in source.walk():
        if needed.takes(entry):
            batch.append(target.append(entry))
        if len(batch) >= _BATCH or at.seq % _BATCH == 0:
            await settled(tables.apply_soon(batch))
            batch = []
            await asyncio.sleep(0)
    if at != head:
        raise CorruptObject(f"log {source.name} does not end where its index says")
    batch += [target.append(entry) for entry in needed.expired.values()]
    await settled(tables.apply_soon(batch))
    return target


def _checked(source: EvidenceLog) -> set[bytes]:
    """The digests of the ids of all evidence that some spot check was made of."""
    found: set[bytes] = set()
    for _, entry in source.walk():
        if entry.evidence is None:
            continue
        try:
            payload, _ = unpack_signed(entry.evidence, size_max=EVIDENCE_BYTES_MAX)
            verifier = decode_record(DerivationEvidence, payload).verifier
        except RequestError as error:
            raise CorruptObject(f"log {source.name} holds what is no evidence: {error}") from error
        if verifier is not None:
            found.add(verifier.digest)
    return found
