"""What a ropes room is asked in tests, what a fresh build says, and a store that can hold back."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from random import Random

from protocol.assembly import sequence_of
from protocol.ids import BlockId, NodeId, ObjectId, SequenceId
from protocol.messages import ropes as messages
from protocol.record import encode_record
from protocol.rope import Entry, build
from store.memory_objects import MemoryObjectStore
from tests.block_samples import Pair, file, model, user
from tests.records import Sampler
from tests.rooms import Principal, new_blocks

FIELDS = Sampler(Random(3)).record(messages.AssemblyFields)
PAIRS = [user("a"), model("b"), file("c é\n")]


class Watched(MemoryObjectStore):
    """Counts what is put, and holds it back while `held` is a list."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[list[ObjectId]] = []
        self.held: list[Future[None]] | None = None

    def put_many_soon(
        self, namespace: str, objects: Sequence[tuple[ObjectId, bytes]]
    ) -> Future[None]:
        self.puts.append([id for id, _ in objects])
        if self.held is None:
            return super().put_many_soon(namespace, objects)
        self.held.append(Future())
        return self.held[-1]


def block_id(pair: Pair) -> BlockId:
    return BlockId.of(encode_record(pair[0]))


def entries(pairs: Sequence[Pair]) -> list[messages.Entry]:
    return [
        messages.Entry(block=block_id(pair), content_bytes=len(pair[1].encode())) for pair in pairs
    ]


def commit(pairs: Sequence[Pair], **changes: object) -> messages.Commit:
    """Everything new, in `alice`, on the empty sequence."""
    fields: dict[str, object] = {
        "namespace": "alice",
        "keep": 0,
        "blocks": new_blocks(pairs),
        "entries": entries(pairs),
    }
    return messages.Commit(**{**fields, **changes})  # type: ignore[arg-type]


async def committed(principal: Principal, ask: messages.Commit) -> messages.Committed:
    return await principal.caller.ask("ropes", "commit", ask, messages.Committed)


async def read(principal: Principal, sequence: SequenceId, start: int = 0) -> list[Pair]:
    """The blocks of a sequence from `start` on, with their texts."""
    ask = messages.ReadSequence(sequence=sequence, start=start)
    found = await principal.caller.ask("ropes", "read", ask, messages.SequenceBlocks)
    return [(new.block, new.content.decode()) for new in found.blocks]


def oracle(pairs: Sequence[Pair]) -> NodeId:
    """The root that a fresh build gives."""
    return build([Entry(block_id(pair), len(pair[1].encode())) for pair in pairs]).root


def sequence_id(root: NodeId) -> SequenceId:
    """The id of the sequence whose root that is."""
    return SequenceId.of(encode_record(sequence_of(root)))
