"""The ropes room: what it reads back of what it stores."""

from __future__ import annotations

from random import Random

import pytest

from protocol.assembly import ContextSequence
from protocol.errors import ContentError, StoreFault
from protocol.ids import BlockId, SequenceId, TextId
from protocol.messages import ropes as messages
from protocol.record import encode_record, object_id
from tests.records import Sampler
from tests.rooms import Installation, Principal
from tests.ropes_rooms import PAIRS, commit, committed, read


async def test_objects_come_back_in_the_order_asked_for(
    house: Installation, alice: Principal
) -> None:
    bodies = [(TextId, b"a"), (BlockId, b"a"), (TextId, b"")]
    house.store.put_many("alice", [(kind.of(body), body) for kind, body in bodies])
    objects = [messages.StoredObject(id=str(kind.of(body)), body=body) for kind, body in bodies]
    wanted = [*reversed(objects), objects[0]]
    got = await alice.caller.ask(
        "ropes", "get", messages.GetObjects(ids=[each.id for each in wanted]), messages.Objects
    )
    assert got.objects == wanted


async def test_a_sequence_of_another_contract_is_not_read(
    house: Installation, alice: Principal
) -> None:
    done = await committed(alice, commit(PAIRS))
    other = ContextSequence(
        sequence_contract=Sampler(Random(5)).record(ContextSequence).sequence_contract,
        root=done.root,
    )
    house.store.put_many("alice", [(object_id(other), encode_record(other))])
    with pytest.raises(ContentError, match="another sequence contract"):
        await read(alice, SequenceId.of(encode_record(other)))


@pytest.mark.parametrize(("start", "stop"), [(4, None), (-1, None), (2, 1), (0, 4)])
async def test_a_range_that_is_not_there_is_refused(
    alice: Principal, start: int, stop: int | None
) -> None:
    done = await committed(alice, commit(PAIRS))
    ask = messages.ReadSequence(sequence=done.sequence, start=start, stop=stop)
    with pytest.raises(ContentError, match="of a sequence of 3 blocks"):
        await alice.caller.ask("ropes", "read", ask, messages.SequenceBlocks)


async def test_a_drained_room_closes_its_store(house: Installation, alice: Principal) -> None:
    await house.post.rooms["ropes"].drain()
    with pytest.raises(StoreFault, match="closed"):
        await committed(alice, commit(PAIRS))
