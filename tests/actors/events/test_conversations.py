"""Conversations: what is remembered is bounded, and forgetting changes nothing but time."""

from __future__ import annotations

from typing import Any

from actors.events.alignment import block_id
from actors.events.conversations import Conversations
from actors.events.turns import Kept
from protocol.ids import NodeId, SequenceId
from protocol.messages import ropes
from tests.actors.events.test_turns import turn
from tests.events_rooms import model, user

CALL: Any = None
KEPT = Kept(root=NodeId.of(b"root"), sequence=SequenceId.of(b"sequence"), blocks=3)
BLOCKS = [user("a"), model("b"), user("a")]


class Ropes:
    """In place of the ropes room: has one sequence, and notes what is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def ask_for(self, call: Any, room: str, op: str, record: Any, reply: Any) -> Any:
        self.asked.append(record)
        if op == "read":
            return ropes.SequenceBlocks(
                root=KEPT.root, count=3, blocks=BLOCKS[record.start : record.stop]
            )
        return ropes.Committed(
            root=KEPT.root,
            sequence=KEPT.sequence,
            blocks=record.keep + len(record.entries),
            amplification_nodes=1,
        )


async def test_a_conversation_is_read_once() -> None:
    asked = Ropes()
    conversations = Conversations(asked.ask_for)
    finished = turn(state="finished", kept=KEPT)
    assert await conversations.of(CALL, "s", finished) == BLOCKS
    assert await conversations.of(CALL, "s", finished) == BLOCKS
    assert len(asked.asked) == 1
    conversations.forget("s", 1)
    conversations.forget("s", 1)
    assert await conversations.of(CALL, "s", finished) == BLOCKS


async def test_an_open_turns_is_some_of_a_kept_one_and_what_is_new() -> None:
    conversations = Conversations(Ropes().ask_for)
    new = user("new")
    assert await conversations.of(CALL, "s", turn(base=KEPT, keep=2, tail=[new])) == [
        *BLOCKS[:2],
        new,
    ]
    assert await conversations.of(CALL, "t", turn(base=KEPT, keep=0, tail=[new])) == [new]
    assert await conversations.of(CALL, "u", turn(tail=[new])) == [new]


async def test_what_is_kept_goes_on_from_its_base() -> None:
    asked = Ropes()
    conversations = Conversations(asked.ask_for)
    kept = await conversations.keep(CALL, "alice", BLOCKS, base=KEPT, keep=2)
    assert kept.blocks == 5
    (commit,) = asked.asked
    assert (commit.base, commit.keep, len(commit.blocks)) == (KEPT.root, 2, 2)
    assert [entry.block for entry in commit.entries] == [block_id(block) for block in BLOCKS]
    await conversations.keep(CALL, "alice", BLOCKS, base=None, keep=0)
    assert asked.asked[-1].base is None


async def test_memory_is_bounded_and_the_oldest_used_goes_first() -> None:
    conversations = Conversations(Ropes().ask_for, bytes_max=3000)
    for number in range(1, 4):
        conversations.remember("s", number, [user("x" * 700)])
        conversations.recall("s", 1)
    assert conversations.recall("s", 2) is None
    assert conversations.recall("s", 1) is not None
    assert conversations.recall("s", 3) is not None
    # What is larger than all of it is remembered alone.
    conversations.remember("s", 4, [user("x" * 9000)])
    assert conversations.recall("s", 4) is not None
    assert conversations.recall("s", 3) is None
