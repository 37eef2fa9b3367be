from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from protocol.blocks import BlockType, ContextBlock, Representation, Role, text_block
from protocol.errors import NotVisible, RopeError
from protocol.ids import BlockId
from protocol.record import object_id
from protocol.rope import Diff, Entry, Reason, Rope, build, diff, reasons
from tests.rope_model import Store

A, B, C, D = (text_block(Role.USER, BlockType.USER_TURN, text) for text in "abcd")


class Blocks:
    """A block loader that counts."""

    def __init__(self, *blocks: ContextBlock) -> None:
        self.blocks = {object_id(block): block for block in blocks}
        self.loads = 0

    def __call__(self, wanted: BlockId) -> ContextBlock:
        self.loads += 1
        if wanted not in self.blocks:
            raise NotVisible(f"no block {wanted}")
        return self.blocks[wanted]


def _entry(block: ContextBlock, size: int = 1) -> Entry:
    block_id = object_id(block)
    assert isinstance(block_id, BlockId)
    return Entry(block_id, size)


def _diff(a: Sequence[ContextBlock], b: Sequence[ContextBlock]) -> Diff:
    left, right = (build([_entry(block) for block in side]) for side in (a, b))
    store = Store({**left.nodes, **right.nodes})
    return diff(Rope(left.root, store), Rope(right.root, store))


def _why(a: Sequence[ContextBlock], b: Sequence[ContextBlock]) -> list[str]:
    return [reason.value for reason in reasons(_diff(a, b), Blocks(*a, *b))]


@pytest.mark.req("SEQ-7")
def test_one_block_changed() -> None:
    changes = {
        "role": {"role": Role.MODEL},
        "content": {"source": B.source},
        "rendering": {"rendering": {"path": "x.py"}},
    }
    for reason, fields in changes.items():
        changed = msgspec.structs.replace(A, **fields)
        assert _why([C, A, D], [C, changed, D]) == [reason]
    for fields in ({"trust": False}, {"name": "n"}, {"type": BlockType.FILE}):
        assert _why([A], [msgspec.structs.replace(A, **fields)]) == ["rendering"]
    kept = Representation(kind="summary-of", of=BlockId(bytes(32)))
    assert _why([A], [msgspec.structs.replace(A, representation=kept)]) == ["content"]


@pytest.mark.req("SEQ-7")
def test_checks_are_made_in_their_order() -> None:
    other = msgspec.structs.replace(B, role=Role.MODEL, rendering={"title": "t"})
    assert _why([A], [other]) == ["role"]
    assert _why([A], [msgspec.structs.replace(other, role=Role.USER)]) == ["content"]


@pytest.mark.req("SEQ-7")
def test_inserted_and_removed() -> None:
    assert _why([A, B], [A, C, B]) == ["inserted"]
    assert _why([A, B], [A, B, C]) == ["inserted"]
    assert _why([A, C, B], [A, B]) == ["removed"]
    assert _why([A], []) == ["removed"]
    assert _why([A, B], [D, A]) == ["inserted", "removed"]


@pytest.mark.req("SEQ-7")
def test_moved_blocks_are_a_matter_of_order() -> None:
    assert _why([A, B], [B, A]) == ["order", "order"]
    assert _why([A, B, C, D], [D, A, B, C]) == ["order", "order"]
    # What moved and what changed are told apart.
    changed = msgspec.structs.replace(C, role=Role.TOOL)
    assert _why([A, B, C], [B, A, changed]) == ["order", "order"]
    assert _why([A, B, D, C], [B, A, D, changed]) == ["order", "order", "role"]
    # The first block of a run speaks for it.
    assert _why([A, C, B, D], [B, changed, A, D]) == ["order", "inserted"]


def test_equal_sequences_have_no_reason() -> None:
    assert _why([A, B], [A, B]) == []


def test_only_what_is_asked_for_is_loaded() -> None:
    blocks = [text_block(Role.USER, BlockType.USER_TURN, str(number)) for number in range(40)]
    changed = [msgspec.structs.replace(block, trust=False) for block in blocks]
    both = [changed[at] if at % 4 == 0 else blocks[at] for at in range(40)]
    load = Blocks(*blocks, *changed)
    answers = reasons(_diff(blocks, both), load)
    assert next(answers) is Reason.RENDERING
    assert load.loads == 2
    assert [*answers] == [Reason.RENDERING] * 9
    assert load.loads == 20


def test_block_that_cannot_be_shown_is_the_loader_s_answer() -> None:
    with pytest.raises(NotVisible):
        next(reasons(_diff([A], [B]), Blocks(A)))


def test_one_block_with_two_sizes_is_named() -> None:
    left, right = build([_entry(A, 1)]), build([_entry(A, 2)])
    store = Store({**left.nodes, **right.nodes})
    difference = diff(Rope(left.root, store), Rope(right.root, store))
    with pytest.raises(RopeError, match="wrong size"):
        next(reasons(difference, Blocks(A)))
