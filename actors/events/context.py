"""`assemble_prompt_context`: what a turn that begins now is to be told.

The one function behind a preview and the beginning of a turn. It reads the sources in scope above
the marks: of all of them together at most the newest thousand entries, and at most 8 MiB of them,
so that what a turn costs grows neither with the logs nor with what is in them. It looks at their
times and sizes first and reads only what it takes; what lies before that is counted from the
numbers. It moves nothing: marks move when the turn that carries the text is kept.
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
from store.events import EntrySize, EventLogs

# Entries that one turn reads, of all sources together.
READ_MAX: Final = 1000
# And bytes of them, which are read on the room's loop: a thousand entries of 8 KB, where a line of
# some hundred characters is told of each; a few of the largest that there are.
READ_BYTES_MAX: Final = 8 * 1024 * 1024
# Entries whose sizes are looked at together: they are a few numbers each.
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
    `page` are the sizes of entries up to it, in order. `events` are what was taken, once read."""

    source: ScopedSource
    mark: int
    events: list[Event] = field(default_factory=list)
    page: list[EntrySize] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.first = max(self.mark + 1, self.source.first)
        self.next = self.source.head

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

    def newest(self, logs: EventLogs) -> EntrySize | None:
        """The next entry, looked up with those before it."""
        if not self.page and self.next >= self.first:
            after = max(self.first - 1, self.next - _PAGE)
            self.page = logs.sizes(self.source.id, after, self.next - after)
            self._begin(after + 1, self.page[0].seq if self.page else self.next + 1)
        return self.page[-1] if self.page else None

    def take(self) -> None:
        self.page.pop()
        self.next -= 1

    def read(self, logs: EventLogs) -> None:
        """Read what was taken."""
        count = self.source.head - self.next
        if count:
            page = logs.read(self.source.id, self.next, count)
            self._begin(self.next + 1, page[0].seq if page else self.source.head + 1)
            self.events = [_decoded(entry.body) for entry in page]

    def _begin(self, asked: int, found: int) -> None:
        """The log gave number `found` where `asked` was the first: what is missing was trimmed
        since its range was asked for, and is a gap from now on."""
        if found > asked:
            self.first = found


def _decoded(body: bytes) -> Event:
    return _small(body) if len(body) <= _DECODED_BYTES else read_entry(body)[1]


@lru_cache(maxsize=_DECODED_MAX)
def _small(body: bytes) -> Event:
    return read_entry(body)[1]


def forget_decoded() -> None:
    """Drop the entries that are remembered decoded: what was erased leaves no copy behind."""
    _small.cache_clear()


def _read_newest(unseen: Sequence[_Unseen], logs: EventLogs) -> None:
    """Take the newest READ_MAX entries of all together, newest first, and read them. A source whose
    next entry is larger than what is left of READ_BYTES_MAX is taken no further."""
    waiting: list[tuple[int, int]] = []

    def wait(place: int) -> None:
        entry = unseen[place].newest(logs)
        if entry is not None:
            heapq.heappush(waiting, (-entry.hlc, place))

    for place in range(len(unseen)):
        wait(place)
    count, room = 0, READ_BYTES_MAX
    while waiting and count < READ_MAX:
        _, place = heapq.heappop(waiting)
        size = unseen[place].page[-1].size
        if size <= room:
            count, room = count + 1, room - size
            unseen[place].take()
            wait(place)
    for each in unseen:
        each.read(logs)
