"""Blocks as they came: loaded by their place, and some of them."""

from __future__ import annotations

from actors.assembler.given import Given
from actors.assembler.room import block_id
from tests.events_rooms import user


def test_what_is_kept_of_given_blocks_stays_together() -> None:
    blocks = [user(f"text {number}") for number in range(4)]
    texts = [block.content.decode() for block in blocks]
    given = Given(blocks, [block_id(block.block) for block in blocks], texts)
    assert given.load(2) == (blocks[2].block, "text 2")
    some = given.only([3, 1])
    assert some.texts == ["text 3", "text 1"]
    assert some.ids == [given.ids[3], given.ids[1]]
    assert some.load(0) == (blocks[3].block, "text 3")
