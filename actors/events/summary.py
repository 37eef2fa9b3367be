"""The reminder's text within its budget: whole lines for the newest events, counts for the rest.

Past the budget the older events are folded by kind and subject, with how many there were and the
last state; what does not even fit so is a number in the last line. Nothing is left out without
being counted (EVT-8): whole + folded = the events that the text stands for.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from actors.events.reminder import (
    HEADING,
    event_line,
    folded_line,
    gap_line,
    gaps_line,
    more_line,
)
from protocol.errors import BudgetExceeded
from protocol.events import Event
from protocol.messages.events import Gap


class Count(Protocol):
    """What text costs in tokens."""

    def block(self, text: str) -> int:
        """As a reminder, with its fence and header."""

    def line(self, text: str) -> int:
        """As a line of one, nearly."""


# No line is shorter than this in tokens of any vocabulary that has words.
_LINE_TOKENS_MIN: Final = 8
# Of the budget, for whole lines once not all fit: the rest goes to what is folded.
_WHOLE_SHARE: Final = 0.7
# More gaps than this are told in one line.
_GAP_LINES_MAX: Final = 16


@dataclass(frozen=True)
class News:
    """What one source has that a lineage has not seen: `events`, the newest, in order; `earlier`
    ones before them that were not read; and `gap`, what is not there any more."""

    label: str
    events: Sequence[Event]
    earlier: int = 0
    gap: Gap | None = None


class Summary(NamedTuple):
    """The text, empty if there is nothing to tell; its tokens, fence included; how many events it
    tells whole, and how many it only counts."""

    text: str
    tokens: int
    whole: int
    folded: int


class _Line(NamedTuple):
    """One line in its place: `source` by its position, `order` within the source."""

    source: int
    order: tuple[int, int]
    text: str
    events: int
    whole: bool


@dataclass
class _Group:
    label: str
    source: int
    newest: Event
    count: int = 0


@dataclass
class _Draft:
    """Lines chosen so far, newest first; `total` events have to be accounted for."""

    total: int
    gaps: list[_Line]
    lines: list[_Line] = field(default_factory=list)

    def text(self) -> str:
        parts = [line.text for line in sorted([*self.gaps, *self.lines])]
        more = self.total - sum(line.events for line in self.lines)
        if more:
            parts.append(more_line(more))
        return "\n".join([HEADING, *parts]) if parts else ""


def summarize_events(news: Sequence[News], tokens_max: int, count: Count) -> Summary:
    """The text of `news`, sources in the order given, of at most `tokens_max` tokens.

    Raises BudgetExceeded, with both numbers, if not even the number of the events fits.
    """
    total = sum(len(each.events) + each.earlier for each in news)
    draft = _Draft(total, _gap_lines(news))
    if total * _LINE_TOKENS_MIN <= tokens_max and not any(each.earlier for each in news):
        draft.lines = [
            _whole(source, each.label, event)
            for source, each in enumerate(news)
            for event in each.events
        ]
        if (found := _fitting(draft, tokens_max, count)) is not None:
            return found
    _fold(draft, news, tokens_max, count)
    while (found := _fitting(draft, tokens_max, count)) is None:
        if draft.lines:
            # Newest first: what is given up first is what tells of the oldest.
            del draft.lines[-(1 + len(draft.lines) // 10) :]
        elif len(draft.gaps) > 1:
            draft.gaps = _all_gaps(news)
        else:
            tokens = count.block(draft.text())
            raise BudgetExceeded(
                f"a reminder of {total} events takes at least {tokens} tokens, {tokens_max} are "
                "allowed: raise the reminder's budget",
                tokens=tokens,
                tokens_max=tokens_max,
            )
    return found


def _fitting(draft: _Draft, tokens_max: int, count: Count) -> Summary | None:
    text = draft.text()
    tokens = count.block(text) if text else 0
    if tokens > tokens_max:
        return None
    whole = sum(line.events for line in draft.lines if line.whole)
    return Summary(text, tokens, whole, draft.total - whole)


def _fold(draft: _Draft, news: Sequence[News], tokens_max: int, count: Count) -> None:
    """Fill `draft` with whole lines of the newest events and folded lines of older ones, by what
    each line costs alone: near enough to be checked once."""
    gaps = [line.text for line in draft.gaps]
    frame = count.block("\n".join([HEADING, *gaps, more_line(draft.total or 1)]))
    room = tokens_max - frame
    spent = 0
    draft.lines = []
    rest = _newest_first(news)
    for source, event in rest:
        line = _whole(source, news[source].label, event)
        spent += count.line(line.text)
        if spent > room * _WHOLE_SHARE:
            rest = _chain((source, event), rest)
            break
        draft.lines.append(line)
    spent = sum(count.line(line.text) for line in draft.lines)
    for group in _groups(rest, news):
        text = folded_line(group.label, group.newest, group.count)
        spent += count.line(text)
        if spent > room:
            break
        # Before the whole lines of its source, and in the order of the newest that it stands for.
        order = (0, group.newest.seq)
        draft.lines.append(_Line(group.source, order, text, group.count, whole=False))


def _groups(rest: Iterator[tuple[int, Event]], news: Sequence[News]) -> list[_Group]:
    """What is left, by source, kind and subject; the group with the newest event first."""
    groups: dict[tuple[int, str, str], _Group] = {}
    for source, event in rest:
        key = (source, event.kind, event.subject)
        group = groups.setdefault(key, _Group(news[source].label, source, event))
        group.count += 1
    return list(groups.values())


def _newest_first(news: Sequence[News]) -> Iterator[tuple[int, Event]]:
    streams = [
        [(-event.hlc, source, event) for event in reversed(each.events)]
        for source, each in enumerate(news)
    ]
    merged = heapq.merge(*streams, key=lambda item: item[:2])
    return ((source, event) for _, source, event in merged)


def _chain(
    first: tuple[int, Event], rest: Iterator[tuple[int, Event]]
) -> Iterator[tuple[int, Event]]:
    yield first
    yield from rest


def _whole(source: int, label: str, event: Event) -> _Line:
    return _Line(source, (1, event.seq), event_line(label, event), 1, whole=True)


def _gap_lines(news: Sequence[News]) -> list[_Line]:
    """The gaps, each before the lines of its source."""
    lines = [
        _Line(source, (-1, 0), gap_line(each.label, each.gap.first, each.gap.last), 0, whole=False)
        for source, each in enumerate(news)
        if each.gap is not None
    ]
    return lines if len(lines) <= _GAP_LINES_MAX else _all_gaps(news)


def _all_gaps(news: Sequence[News]) -> list[_Line]:
    gaps = [each.gap for each in news if each.gap is not None]
    text = gaps_line(len(gaps), sum(gap.count for gap in gaps))
    return [_Line(-1, (-1, 0), text, 0, whole=False)]
