"""Turns: which way they go, and how they are shown."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest

from actors.events.alignment import Anchor, Seen
from actors.events.reminder import reminder_block
from actors.events.turns import STEPS, Kept, Placed, State, Step, Turn, is_live, listed, step
from protocol.errors import Conflict
from protocol.ids import BlockId, NodeId, SequenceId
from protocol.record import decode_record, encode_record

KEPT = Kept(root=NodeId.of(b"root"), sequence=SequenceId.of(b"sequence"), blocks=2)


def turn(**changes: Any) -> Turn:
    fields: dict[str, Any] = {
        "v": 1,
        "id": "turn-1",
        "number": 1,
        "state": "open",
        "response": "resp-1",
        "began_ns": 10,
        "lease_ns": 40,
        "marks_before": [],
        "marks_after": [],
        "gaps": [],
        "events": 5,
        "folded": 2,
        "placed": [],
        "messages": 3,
        "keep": 0,
        "tail": [],
        **changes,
    }
    return Turn(**fields)


@pytest.mark.parametrize(("state", "way"), list(product(get_args(State), get_args(Step))))
def test_a_turn_goes_the_ways_of_the_table_and_no_other(state: State, way: Step) -> None:
    if (state, way) in STEPS:
        assert step(turn(state=state), way) == STEPS[state, way]
        return
    with pytest.raises(Conflict, match=f"turn-1 is {state}: it cannot {way}") as caught:
        step(turn(state=state), way)
    assert caught.value.details == {"reason": f"turn_{state}", "turn": "turn-1"}


def test_nothing_leaves_a_finished_turn_and_nothing_finishes_an_unfinished_one() -> None:
    assert {after for (state, _), after in STEPS.items() if state == "finished"} == {"finished"}
    assert {after for (state, _), after in STEPS.items() if state == "unfinished"} == {"unfinished"}


@pytest.mark.req("EVT-5")
def test_a_lease_holds_an_open_turn_until_it_runs_out() -> None:
    assert is_live(turn(), 40, 39)
    assert not is_live(turn(), 40, 40)
    assert not is_live(turn(state="finished"), 40, 0)


def test_a_turn_reads_back() -> None:
    placed = Placed.at(1, Anchor(4, BlockId.of(b"message"), after=True))
    kept = turn(placed=[placed], kept=KEPT, reminder=reminder_block("told"), history_digest=b"d")
    assert decode_record(Turn, encode_record(kept)) == kept
    assert placed.anchor == Anchor(4, BlockId.of(b"message"), after=True)
    assert kept.history == Seen(3, b"d")
    assert turn().history is None


def test_the_next_turn_finds_an_answer_more() -> None:
    assert turn().messages_after == 3
    assert turn(state="finished").messages_after == 4
    assert turn().injected == 3


def test_a_turn_as_it_is_shown() -> None:
    row = listed(turn(reminder=reminder_block("told")), None, live=True)
    assert (row.state, row.reminders, row.injected, row.sequence) == ("open", ["told"], 3, None)
    # Its lease ran out, and nobody continued it yet.
    assert listed(turn(), "turn-0", live=False).state == "unfinished"
    finished = listed(turn(state="finished", kept=KEPT), None, live=False)
    assert (finished.state, finished.sequence, finished.reminders) == (
        "finished",
        KEPT.sequence,
        [],
    )
