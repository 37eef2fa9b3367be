"""Summaries: within their budget, newest whole, and every event counted somewhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.events.context import TokenCount
from actors.events.reminder import HEADING
from actors.events.summary import News, Summary, summarize_events
from protocol.errors import BudgetExceeded
from protocol.event_log import Position
from protocol.events import Event
from protocol.ids import EventId, SourceId
from protocol.messages.events import Gap
from tests.event_logs import entry_after
from tests.fake_tokenizer import FakeTokenizer

COUNT = TokenCount(FakeTokenizer())
SOURCE = SourceId.of(b"source")


def event(seq: int, subject: str, kind: str = "MergeSucceeded", **fields: Any) -> Event:
    """Number `seq`, and a minute later than the one before."""
    head = Position(seq - 1, EventId.of(b"before") if seq > 1 else None, (seq - 1) * 60 * 10**9)
    return entry_after(head, subject, kind=kind, body={}, hlc=seq * 60 * 10**9, **fields).event


def gap(first: int, last: int) -> Gap:
    return Gap(source=SOURCE, first=first, last=last, count=last - first + 1, cause="retention")


def accounted(text: str) -> int:
    """The events that a text stands for, added up from its lines."""
    total = 0
    for line in text.splitlines()[1:]:
        if "EventStreamGap" in line:
            continue
        more = re.fullmatch(r"and (\d+) more events?", line)
        times = re.search(r", (\d+) times", line)
        total += int(more[1]) if more else int(times[1]) if times else 1
    return total


def summed(news: list[News], tokens_max: int = 20_000) -> Summary:
    found = summarize_events(news, tokens_max, COUNT)
    total = sum(len(each.events) + each.earlier for each in news)
    assert found.whole + found.folded == total == accounted(found.text)
    assert found.tokens <= tokens_max
    assert found.tokens == (COUNT.block(found.text) if found.text else 0)
    return found


def test_nothing_new_is_no_text() -> None:
    assert summed([]) == Summary("", 0, 0, 0)
    assert summed([News("a", [])]).text == ""


def test_sources_in_order_and_events_in_time() -> None:
    news = [
        News("a", [event(1, "a1"), event(4, "a4")]),
        News("b", [event(2, "b2"), event(3, "b3")], gap=gap(1, 9)),
    ]
    lines = summed(news).text.splitlines()
    assert lines[0] == HEADING
    assert [re.findall(r": (\w+) merged|(EventStreamGap)", line)[0] for line in lines[1:]] == [
        ("a1", ""),
        ("a4", ""),
        ("", "EventStreamGap"),
        ("b2", ""),
        ("b3", ""),
    ]


@pytest.mark.req("EVT-8")
def test_past_the_budget_the_newest_are_whole_and_the_rest_is_folded() -> None:
    failed = [
        event(seq, f"s{seq % 3}", "MergeFailed", before="merging", after=f"blocked{seq}")
        for seq in range(1, 61)
    ]
    found = summed([News("a", failed)], 1500)
    lines = found.text.splitlines()
    assert 0 < found.whole < 60
    # The groups stand before, with how many and the last state of those that they stand for.
    folded = [line for line in lines[1:] if "times" in line]
    assert {re.findall(r": (\w+) merge failed", line)[0] for line in folded} == {"s0", "s1", "s2"}
    newest_folded = 60 - found.whole
    assert f"blocked{newest_folded}]" in found.text
    assert lines[-1].endswith("blocked60]")
    assert found.text == summed([News("a", failed)], 1500).text


@pytest.mark.req("EVT-8")
def test_what_does_not_fit_folded_is_a_number_in_the_last_line() -> None:
    different = [event(seq, f"story-{seq}") for seq in range(1, 501)]
    found = summed([News("a", different, earlier=7000)], 1200)
    assert re.fullmatch(r"and 7\d\d\d more events", found.text.splitlines()[-1])
    assert "story-500 merged" in found.text


def test_many_gaps_are_one_line() -> None:
    news = [News(f"s{index:02}", [], gap=gap(1, 10)) for index in range(30)]
    assert summed(news).text.splitlines()[1:] == [
        "EventStreamGap: 300 events of 30 sources not kept"
    ]


def test_a_budget_that_holds_nothing_is_an_error_with_both_numbers() -> None:
    with pytest.raises(BudgetExceeded, match="70 are allowed") as caught:
        summarize_events([News("a", [event(1, "x")])], 70, COUNT)
    assert caught.value.details["tokens_max"] == 70
    assert int(caught.value.details["tokens"] or 0) > 70


@pytest.mark.req("EVT-8", "EVT-4")
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(("x", "y", "x" * 110)), max_size=40),
            st.integers(0, 9),
            st.booleans(),
        ),
        max_size=20,
    ),
    st.integers(400, 6000),
)
def test_every_event_is_told_or_counted_within_any_budget(
    drawn: list[tuple[list[str], int, bool]], tokens_max: int
) -> None:
    news, hlc = [], 0
    for index, (subjects, earlier, lost) in enumerate(drawn):
        events = []
        for subject in subjects:
            hlc += 1
            events.append(event(hlc, subject))
        news.append(News(f"s{index}", events, earlier, gap(1, 3) if lost else None))
    summed(news, tokens_max)
