"""`assemble_prompt_context`: what a turn that begins now is to be told.

The one function behind a preview and the beginning of a turn. It reads the sources in scope above
the marks, at most the newest thousand entries of all of them together, so that what a turn
costs does not grow with the logs; what lies before those is counted from the numbers. It moves
nothing: marks move when the turn that carries the text is kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from actors.events.reminder import reminder_block
from actors.events.scope import ScopedSource
from actors.events.summary import News, summarize_events
from protocol.events import Event, read_entry
from protocol.grammars.rendering import render
from protocol.ids import SourceId
from protocol.messages.events import Gap
from protocol.messages.ropes import NewBlock
from protocol.tokenizer import Tokenizer
from store.events import EventLogs, StoredEvent

# Entries that one turn reads, of all sources together.
READ_MAX: Final = 1000
_PAGE: Final = 64
# Entries that are remembered decoded, for the next session that is told of them, and their size.
_DECODED_MAX: Final = 4096
_DECODED_BYTES: Final = 4096
# What a grammar may put before the block: the end of a turn and a role's header.
_HEAD_TOKENS: Final = 8

Marks = dict[SourceId, int]


class PromptContext(NamedTuple):
    """What is new. `text` is empty, and `block` None, when nothing is. `events` are those it stands
    for, of which `folded` are only counted; `marks` what has been seen with it."""

    text: str
    block: NewBlock | None
    tokens: int
    events: int
    folded: int
    gaps: list[Gap]
    marks: Marks


class TokenCount:
    """What reminders cost under `tokenizer`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def block(self, text: str) -> int:
        rendered = render(reminder_block(text).block, text)
        return _HEAD_TOKENS + len(self._tokenizer.encode(rendered))

    def line(self, text: str) -> int:
        # And the end of the line.
        return len(self._tokenizer.encode(text)) + 1


def assemble_prompt_context(
    sources: Sequence[ScopedSource],
    *,
    namespace: str,
    marks: Mapping[SourceId, int],
    logs: EventLogs,
    tokenizer: Tokenizer,
    tokens_max: int,
) -> PromptContext:
    """What is new to a session of `namespace` that has seen `marks`, of `sources`.

    Raises BudgetExceeded if `tokens_max` holds no reminder at all, CorruptObject for a log that is
    not whole.
    """
    ordered = sorted(sources, key=lambda source: (source.label(namespace), source.id))
    unseen = [_Unseen(source, marks.get(source.id, 0)) for source in ordered]
    _read_newest(unseen, logs)
    news = [
        News(each.source.label(namespace), each.events, each.earlier, each.gap)
        for each in unseen
        if each.source.head > each.mark
    ]
    summary = summarize_events(news, tokens_max, TokenCount(tokenizer))
    return PromptContext(
        text=summary.text,
        block=reminder_block(summary.text) if summary.text else None,
        tokens=summary.tokens,
        events=summary.whole + summary.folded,
        folded=summary.folded,
        gaps=[each.gap for each in news if each.gap is not None],
        marks={
            **marks,
            **{each.source.id: max(each.mark, each.source.head) for each in unseen},
        },
    )


@dataclass
class _Unseen:
    """A source from above `mark`. `next` counts down: the number of the next entry to be taken;
    `page` are read entries up to it, in order."""

    source: ScopedSource
    mark: int
    taken: list[Event] = field(default_factory=list)
    page: list[StoredEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.first = max(self.mark + 1, self.source.first)
        self.next = self.source.head

    @property
    def events(self) -> list[Event]:
        return self.taken[::-1]

    @property
    def earlier(self) -> int:
        """Entries that are there and were not taken."""
        return max(0, self.next - self.first + 1)

    @property
    def gap(self) -> Gap | None:
        last = min(self.first - 1, self.source.head)
        count = last - self.mark
        if count <= 0:
            return None
        return Gap(
            source=self.source.id, first=self.mark + 1, last=last, count=count, cause="retention"
        )

    def newest(self, logs: EventLogs) -> StoredEvent | None:
        """The next entry, read with those before it; what is missing there is a gap from now on."""
        if not self.page and self.next >= self.first:
            after = max(self.first - 1, self.next - _PAGE)
            read = logs.read(self.source.id, after, self.next - after)
            self.page = read
            if not read or read[0].seq > after + 1:
                # Trimmed since its range was asked for.
                self.first = read[0].seq if read else self.next + 1
        return self.page[-1] if self.page else None

    def take(self) -> None:
        body = self.page.pop().body
        self.taken.append(_small(body) if len(body) <= _DECODED_BYTES else read_entry(body)[1])
        self.next -= 1


@lru_cache(maxsize=_DECODED_MAX)
def _small(body: bytes) -> Event:
    return read_entry(body)[1]


def forget_decoded() -> None:
    """Drop the entries that are remembered decoded: what was erased leaves no copy behind."""
    _small.cache_clear()


def _read_newest(unseen: Sequence[_Unseen], logs: EventLogs) -> None:
    """Take the newest READ_MAX entries of all together, newest first."""
    waiting: list[tuple[int, int]] = []

    def wait(place: int) -> None:
        entry = unseen[place].newest(logs)
        if entry is not None:
            heapq.heappush(waiting, (-entry.hlc, place))

    for place in range(len(unseen)):
        wait(place)
    for _ in range(READ_MAX):
        if not waiting:
            return
        _, place = heapq.heappop(waiting)
        unseen[place].take()
        wait(place)
