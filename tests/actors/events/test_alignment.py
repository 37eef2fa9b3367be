"""Alignment: reminders stay with their messages as long as a history holds them."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.events import alignment
from actors.events.alignment import (
    Anchor,
    block_id,
    check_messages,
    fresh_from,
    newest_anchor,
    realign,
    seen,
    woven,
)
from actors.events.reminder import reminder_block
from protocol.blocks import Role, text_block
from protocol.errors import ContentError
from protocol.ids import BlockId
from protocol.messages.ropes import NewBlock
from tests.events_rooms import model, said, texts, user

SYSTEM = said(Role.SYSTEM, "Be brief.")
TALK = [user("ok"), model("a"), user("ok"), model("b"), user("go")]


def ids(blocks: list[NewBlock]) -> list[BlockId]:
    return [block_id(block) for block in blocks]


def at(blocks: list[NewBlock], *positions: int) -> list[Anchor]:
    return [Anchor(p, block_id(blocks[p]), after=False) for p in positions]


def positions(found: list[Anchor | None]) -> list[int | None]:
    return [None if anchor is None else anchor.position for anchor in found]


def held(
    before: list[NewBlock], anchored: tuple[int, ...], now: list[NewBlock]
) -> list[int | None]:
    return positions(realign(at(before, *anchored), ids(now)))


@pytest.mark.req("EVT-12")
def test_appending_moves_nothing() -> None:
    assert held(TALK, (0, 2, 4), [*TALK, model("c"), user("ok")]) == [0, 2, 4]


@pytest.mark.req("EVT-12")
def test_an_inserted_message_shifts_what_follows() -> None:
    assert held(TALK, (0, 2, 4), [SYSTEM, *TALK]) == [1, 3, 5]
    assert held(TALK, (0, 2, 4), [*TALK[:1], SYSTEM, *TALK[1:]]) == [0, 3, 5]


@pytest.mark.req("EVT-12")
def test_an_edit_loses_its_own_anchor_alone() -> None:
    edited = [*TALK[:2], user("no"), *TALK[3:]]
    assert held(TALK, (0, 2, 4), edited) == [0, None, 4]


def test_a_cut_loses_what_it_cuts() -> None:
    assert held(TALK, (0, 2, 4), TALK[:3]) == [0, 2, None]
    assert held(TALK, (0, 2, 4), [user("new")]) == [None, None, None]


def test_of_equal_messages_the_one_in_place_and_then_the_earliest() -> None:
    same = [user("ok")] * 5
    assert held(same, (1, 3), same) == [1, 3]
    assert held(same, (4,), same[:3]) == [0]
    assert held(same, (3, 4), same[:3]) == [0, 1]


def test_order_is_kept() -> None:
    swapped = [user("b"), user("a")]
    assert held([user("a"), user("b"), user("c")], (0, 1), [model("c"), *swapped]) == [None, 1]


def test_several_reminders_may_stand_at_one_message() -> None:
    anchors = [*at(TALK, 0), Anchor(0, block_id(TALK[0]), after=True), *at(TALK, 2)]
    assert positions(realign(anchors, ids([SYSTEM, *TALK]))) == [1, 1, 3]


def _longest(wanted: list[BlockId], messages: list[BlockId]) -> int:
    """How many of `wanted` can be found in order, by trying everything."""
    for count in range(len(wanted), 0, -1):
        for some in combinations(wanted, count):
            place = iter(messages)
            if all(any(message == one for message in place) for one in some):
                return count
    return 0


ALPHABET = st.lists(st.sampled_from("abc"), max_size=7).map(lambda ls: [user(x) for x in ls])


@given(ALPHABET, ALPHABET)
def test_as_many_as_can_be_are_found_in_order(before: list[NewBlock], now: list[NewBlock]) -> None:
    found = alignment._in_order(ids(before), ids(now))
    places = [place for place in found if place >= 0]
    assert places == sorted(set(places))
    assert all(before[i] == now[p] for i, p in enumerate(found) if p >= 0)
    assert len(places) == _longest(ids(before), ids(now))


@given(ALPHABET, ALPHABET)
def test_what_is_found_is_the_same_message_in_the_same_order(
    before: list[NewBlock], now: list[NewBlock]
) -> None:
    found = realign(at(before, *range(len(before))), ids(now))
    places = [anchor.position for anchor in found if anchor is not None]
    assert places == sorted(set(places))
    assert all(a is None or now[a.position] == before[i] for i, a in enumerate(found))
    exact = [i for i, block in enumerate(before) if now[i : i + 1] == [block]]
    assert all(found[i] == at(before, i)[0] for i in exact)


def test_a_history_of_one_word_is_aligned_in_good_time() -> None:
    """Too many equal pairs to try: each at its first place."""
    same = [user("ok")] * 3000
    shifted = [model("x"), *same]
    anchors = [Anchor(p + 5000, block_id(same[0]), after=False) for p in range(1500)]
    found = realign(anchors, ids(shifted))
    assert positions(found) == list(range(1, 1501))


# -- the newest turn's place --------------------------------------------------------------------


def test_the_newest_reminder_stands_before_the_last_message_of_the_users() -> None:
    assert newest_anchor(TALK, ids(TALK), 0) == at(TALK, 4)[0]
    with_system = [SYSTEM, user("hi")]
    assert newest_anchor(with_system, ids(with_system), 0).position == 1


def test_what_is_old_is_not_stood_before() -> None:
    """A tool's result or a second try: nothing goes in front of what was computed."""
    talk = [user("hi"), model("call"), said(Role.TOOL, "result")]
    assert newest_anchor(talk, ids(talk), 1) == Anchor(2, block_id(talk[2]), after=True)
    assert newest_anchor(talk[:1], ids(talk[:1]), 1) == Anchor(0, block_id(talk[0]), after=True)


def test_positions_count_from_the_beginning_of_the_conversation() -> None:
    assert newest_anchor([user("hi")], ids([user("hi")]), 0, offset=6).position == 6


def test_what_is_new_begins_after_a_history_that_is_there_again() -> None:
    before = seen(ids(TALK))
    assert fresh_from(ids([*TALK, user("more")]), before) == 5
    assert fresh_from(ids(TALK), before) == 5
    assert fresh_from(ids(TALK[:4]), before) == 0
    assert fresh_from(ids([SYSTEM, *TALK]), before) == 0
    assert fresh_from(ids(TALK), None) == 0


def test_reminders_are_woven_in_in_their_order() -> None:
    r = [reminder_block(text) for text in "rst"]
    before, after = at(TALK, 2)[0], Anchor(4, block_id(TALK[4]), after=True)
    conversation = woven(TALK, {before: [r[0], r[1]], after: [r[2]]})
    assert texts(conversation) == ["ok", "a", "r", "s", "ok", "b", "go", "t"]
    assert woven(TALK, {}) == TALK


# -- what a turn may begin with -----------------------------------------------------------------


def test_a_turn_brings_messages_and_no_reminder() -> None:
    check_messages(TALK)
    with pytest.raises(ContentError, match="at least one"):
        check_messages([])
    with pytest.raises(ContentError, match="made here"):
        check_messages([user("hi"), reminder_block("1122 merged")])


def test_a_message_is_what_its_block_names() -> None:
    lie = NewBlock(block=user("hi").block, content=b"ho")
    with pytest.raises(ContentError, match="its content is"):
        check_messages([lie])
    assert text_block(Role.USER, user("hi").block.type, "hi") == user("hi").block
