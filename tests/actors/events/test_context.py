"""`assemble_prompt_context`: newer than the marks, bounded, ordered, and nothing moves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from actors.events.context import (
    READ_BYTES_MAX,
    READ_MAX,
    Marks,
    PromptContext,
    TokenCount,
    assemble_prompt_context,
)
from actors.events.reminder import reminder_block
from actors.events.scope import ScopedSource
from protocol.event_log import START
from protocol.grammars import GRAMMARS, grammar
from protocol.ids import SourceId
from protocol.signing import Signer
from store.events import EntrySize, EventLogs, StoredEvent
from tests.event_logs import (
    SIGNERS,
    entry_after,
    event_logs,
    position,
    source_of,
    stored,
    stored_chain,
)
from tests.fake_tokenizer import FakeTokenizer

BUDGET = 50_000
NAMES = ("ant", "bee", "cat")


class Counting:
    """Logs that count what is read of them: entries and their bytes, and whose sizes alone."""

    def __init__(self, logs: EventLogs) -> None:
        self.logs = logs
        self.entries = 0
        self.bytes = 0
        self.sized = 0

    def read(self, source: SourceId, after: int, limit: int) -> list[StoredEvent]:
        read = self.logs.read(source, after, limit)
        self.entries += len(read)
        self.bytes += sum(len(entry.body) for entry in read)
        return read

    def sizes(self, source: SourceId, after: int, limit: int) -> list[EntrySize]:
        found = self.logs.sizes(source, after, limit)
        self.sized += len(found)
        return found


@pytest.fixture(params=["memory", "sqlite"])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> EventLogs:
    return event_logs(request.param, tmp_path)[0]


def fill(logs: EventLogs, *counts: int) -> None:
    for signer, count in zip(SIGNERS, counts, strict=False):
        logs.append_soon(stored_chain(count, signer=signer)).result()


def scope(logs: EventLogs, names: Sequence[str] = NAMES) -> list[ScopedSource]:
    found = []
    for name, signer in zip(names, SIGNERS, strict=False):
        kept = logs.range(source_of(signer))
        found.append(ScopedSource(source_of(signer), "alice", name, kept.first, kept.head))
    return found


def told(logs: EventLogs, marks: Marks, budget: int = BUDGET) -> PromptContext:
    return assemble_prompt_context(
        scope(logs),
        namespace="alice",
        marks=marks,
        logs=logs,
        tokenizer=FakeTokenizer(),
        tokens_max=budget,
    )


def stories(text: str) -> list[str]:
    return re.findall(r'(\w+) · \S+ \S+ · MergeSucceeded: "story (\d+)"', text)


@pytest.mark.req("EVT-4")
def test_what_is_newer_than_the_marks_by_source_then_time(logs: EventLogs) -> None:
    fill(logs, 3, 2)
    marks = {source_of(SIGNERS[0]): 1}
    found = told(logs, marks)
    assert stories(found.text) == [("ant", "2"), ("ant", "3"), ("bee", "1"), ("bee", "2")]
    assert (found.events, found.folded, found.gaps) == (4, 0, [])
    assert found.marks == {
        source_of(SIGNERS[0]): 3,
        source_of(SIGNERS[1]): 2,
        source_of(SIGNERS[2]): 0,
    }
    assert found.block == reminder_block(found.text)
    assert marks == {source_of(SIGNERS[0]): 1}
    assert told(logs, marks) == found


@pytest.mark.req("EVT-4")
def test_nothing_new_is_nothing(logs: EventLogs) -> None:
    fill(logs, 3)
    marks = told(logs, {}).marks
    found = told(logs, marks)
    assert (found.text, found.block, found.tokens, found.events) == ("", None, 0, 0)
    assert found.marks == marks


@pytest.mark.req("EVT-9")
def test_what_was_trimmed_unseen_is_a_gap(logs: EventLogs) -> None:
    fill(logs, 10)
    logs.trim(source_of(SIGNERS[0]), 6)
    found = told(logs, {source_of(SIGNERS[0]): 2})
    assert [(gap.first, gap.last, gap.count, gap.cause) for gap in found.gaps] == [
        (3, 6, 4, "retention")
    ]
    assert "ant · EventStreamGap: 4 events not kept, 3 to 6" in found.text
    assert [number for _, number in stories(found.text)] == ["7", "8", "9", "10"]
    assert found.events == 4


@pytest.mark.req("EVT-9")
def test_a_log_that_went_whole_is_a_gap_to_its_end(logs: EventLogs) -> None:
    fill(logs, 5)
    logs.trim(source_of(SIGNERS[0]), 5)
    found = told(logs, {source_of(SIGNERS[0]): 1})
    assert [(gap.first, gap.last) for gap in found.gaps] == [(2, 5)]
    assert found.marks[source_of(SIGNERS[0])] == 5
    assert told(logs, found.marks).text == ""


def test_what_is_trimmed_while_it_is_read_is_a_gap(logs: EventLogs) -> None:
    fill(logs, 10)
    sources = scope(logs)
    logs.trim(source_of(SIGNERS[0]), 4)
    found = assemble_prompt_context(
        sources,
        namespace="alice",
        marks={},
        logs=logs,
        tokenizer=FakeTokenizer(),
        tokens_max=BUDGET,
    )
    assert [(gap.first, gap.last) for gap in found.gaps] == [(1, 4)]
    assert found.events == 6


@pytest.mark.req("EVT-8")
def test_what_a_turn_reads_does_not_grow_with_the_logs(logs: EventLogs) -> None:
    fill(logs, READ_MAX + 800, 300, 10)
    counting = Counting(logs)
    found = assemble_prompt_context(
        scope(logs),
        namespace="alice",
        marks={},
        logs=counting,  # type: ignore[arg-type]
        tokenizer=FakeTokenizer(),
        tokens_max=4000,
    )
    assert counting.entries == READ_MAX
    assert counting.sized <= READ_MAX + 3 * 64
    assert found.events == READ_MAX + 1110
    assert found.tokens <= 4000
    # The newest of all, whichever source has it.
    assert f'"story {READ_MAX + 800}"' in found.text


def fill_sized(logs: EventLogs, signer: Signer, sizes: Sequence[int], start: int = 0) -> None:
    """Appends an entry of about each of `sizes` bytes, one second after the other from `start`."""
    after = START
    entries = []
    for number, size in enumerate(sizes, 1):
        body = {"merge_commit": "c" * size}
        hlc = (start + number) * 10**9
        entry = entry_after(after, f"story {number}", signer=signer, body=body, hlc=hlc)
        entries.append(stored(entry))
        after = position(entry)
    logs.append_soon(entries).result()


def counted(logs: EventLogs, marks: Marks, budget: int = BUDGET) -> tuple[PromptContext, Counting]:
    counting = Counting(logs)
    found = assemble_prompt_context(
        scope(logs),
        namespace="alice",
        marks=marks,
        logs=counting,  # type: ignore[arg-type]
        tokenizer=FakeTokenizer(),
        tokens_max=budget,
    )
    return found, counting


@pytest.mark.req("EVT-8")
def test_what_a_turn_reads_does_not_grow_with_what_is_in_the_logs(logs: EventLogs) -> None:
    """Large entries beyond some MiB are counted, as those beyond the newest thousand are."""
    large, newest = 700_000, 30
    fill_sized(logs, SIGNERS[0], [large] * 40)
    fill_sized(logs, SIGNERS[1], [10] * newest, start=100)
    fill_sized(logs, SIGNERS[2], [large] * 5, start=50)
    found, counting = counted(logs, {source_of(SIGNERS[0]): 3})
    assert READ_BYTES_MAX - 2 * large < counting.bytes <= READ_BYTES_MAX
    assert found.events == 37 + newest + 5
    read = READ_BYTES_MAX // large
    assert counting.entries == newest + read
    assert found.marks == {
        source_of(SIGNERS[0]): 40,
        source_of(SIGNERS[1]): newest,
        source_of(SIGNERS[2]): 5,
    }
    # The newest of all sources together, whole; of the oldest, how many more there were.
    assert [number for name, number in stories(found.text) if name == "bee"] == [
        str(number) for number in range(1, newest + 1)
    ]
    assert [name for name, _ in stories(found.text)].count("cat") == 5
    assert [int(number) for name, number in stories(found.text) if name == "ant"] == list(
        range(41 - (read - 5), 41)
    )
    assert found.folded == 37 - (read - 5)
    assert f"and {found.folded} more" in found.text
    assert told(logs, found.marks).text == ""


@pytest.mark.req("EVT-8")
def test_an_entry_that_does_not_fit_holds_up_its_own_source_alone(logs: EventLogs) -> None:
    full = READ_BYTES_MAX // 2_000_000
    fill_sized(logs, SIGNERS[0], [10, *[2_000_000] * (full + 1)], start=100)
    fill_sized(logs, SIGNERS[1], [10] * 3)
    found, counting = counted(logs, {})
    assert counting.bytes <= READ_BYTES_MAX
    names = [name for name, _ in stories(found.text)]
    assert (names.count("ant"), names.count("bee")) == (full, 3)
    assert (found.events, found.folded) == (full + 5, 2)


def test_what_is_trimmed_between_looking_and_reading_is_a_gap(logs: EventLogs) -> None:
    class Trimming(Counting):
        through = 0

        def sizes(self, source: SourceId, after: int, limit: int) -> list[EntrySize]:
            found = super().sizes(source, after, limit)
            self.logs.trim(source, self.through)
            return found

    fill(logs, 10)
    for through, events in ((4, 6), (10, 0)):
        trimming = Trimming(logs)
        trimming.through = through
        sources = scope(logs)
        found = assemble_prompt_context(
            sources,
            namespace="alice",
            marks={},
            logs=trimming,  # type: ignore[arg-type]
            tokenizer=FakeTokenizer(),
            tokens_max=BUDGET,
        )
        assert [(gap.first, gap.last) for gap in found.gaps] == [(1, through)]
        assert (found.events, found.marks[source_of(SIGNERS[0])]) == (events, 10)


def test_sources_below_are_named_by_their_path(logs: EventLogs) -> None:
    fill(logs, 1)
    kept = logs.range(source_of(SIGNERS[0]))
    below = ScopedSource(source_of(SIGNERS[0]), "alice/team", "builds", kept.first, kept.head)
    found = assemble_prompt_context(
        [below],
        namespace="alice",
        marks={},
        logs=logs,
        tokenizer=FakeTokenizer(),
        tokens_max=BUDGET,
    )
    assert "\nteam/builds · " in found.text


@pytest.mark.parametrize("named", GRAMMARS)
def test_fences_and_headers_are_counted(named: str) -> None:
    """What a grammar makes of the block is no more than was counted; an open turn before it and a
    header take a few bytes of the fake vocabulary each."""
    tokenizer = FakeTokenizer()
    of = grammar(named, tokenizer)
    tokens, _ = of.step(of.initial(), reminder_block("told").block, "told")
    assert len(tokens.content) <= TokenCount(tokenizer).block("told")
