"""A turn writes its new tokens' rows to disk, and next to nothing beside them: 40 real turns.

A real model (the tests') answers over a directory of pages, with a restart at half. What a turn
adds to the directory is looked up in the directory, and held against the bytes that its new tokens
take in the back end: not against what the store says that it wrote.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from msgspec import structs

from actors.worker.tiers import Tiers
from actors.worker.writer import PageWriter
from protocol.blocks import BlockType, Role
from protocol.ids import ProfileId
from protocol.record import object_id
from protocol.tokens import pack
from store.pages.memory import MemoryPageTier
from tests.exact_models import MODELS
from tests.grammar_talks import GrammarTalk, some_text
from tests.page_samples import TestClock, disk, files_below
from tests.worker_rooms import Bench, opened

MODEL = MODELS["tiny"]
PROFILE = structs.replace(MODEL.profile(), context_tokens=4096)
TURNS, RESTART = 40, 20
NEW_TOKENS_MIN = 24
ANSWER_TOKENS = 24
SHARE_MAX = 1.05
# A row of the index: digests of a chain, its parent, its sections, its domain, and their numbers.
INDEX_ROW_BYTES_MAX = 600


class Seen(NamedTuple):
    """A file as it lies there: whoever writes it again leaves another one of these."""

    inode: int
    bytes: int
    changed_ns: int


class TurnBytes(NamedTuple):
    """`pages`: in new page files. `beside`: by how much everything else under the root grew."""

    tokens: int
    pages: int
    beside: int


@asynccontextmanager
async def worker(root: Path) -> AsyncIterator[tuple[Bench, PageWriter]]:
    clock = TestClock()
    host, store = MemoryPageTier(clock, 2**30), disk(root, clock)
    writer = PageWriter(store, host)
    profile = object_id(PROFILE)
    assert isinstance(profile, ProfileId)
    async with opened(
        MODEL.open(PROFILE),
        profile=profile,
        chunk_tokens=MODEL.chunk_tokens,
        tiers=Tiers(host, store, writer, gain_tokens_min=1, tail_tokens_min=1),
    ) as bench:
        yield bench, writer
        await bench.quiet()


@dataclass
class Conversation:
    """Grows by a turn at a time; `kept` is how many of its tokens have been fed and kept."""

    root: Path
    random: Random = field(default_factory=lambda: Random(7))
    talk: GrammarTalk | None = None
    kept: int = 0

    async def turn(self, bench: Bench, writer: PageWriter, number: int) -> TurnBytes:
        """A question, its answer, and on two turns of three the settling of it: what is not
        settled is fed and kept with the next question."""
        before, beside = self.files(), self.beside()
        grammar = MODEL.grammar(bench.backend)
        text = f"{number} " + some_text(self.random, 30)
        # Spelled by the model that is loaded now: the one before the restart is closed.
        talk = GrammarTalk(grammar, self.talk.blocks if self.talk else ())
        talk = talk.say(Role.USER, BlockType.USER_TURN, text.ljust(NEW_TOKENS_MIN, "."))
        segments, opener = talk.spelled()
        found = await bench.answer(
            segments,
            response=f"r{number}",
            opener=pack(opener),
            tokens_max=ANSWER_TOKENS,
            stop_ids=sorted(grammar.stop_ids),
        )
        receipt = await bench.receipt(f"r{number}", looks=100_000)
        assert receipt.pages_refused == []
        assert receipt.reused_tokens == self.kept
        self.talk, kept = talk.answer(found.ids), receipt.prompt_tokens
        if number % 3:
            await bench.settle(self.talk.spelled()[0])
            kept += len(found.ids)
        await bench.quiet()
        writer.flush()
        tokens, self.kept = kept - self.kept, kept
        after = self.files()
        assert {path: after.get(path) for path in before} == before, "nothing is written again"
        pages = sum(seen.bytes for path, seen in after.items() if path not in before)
        return TurnBytes(tokens, pages, self.beside() - beside)

    def files(self) -> dict[Path, Seen]:
        """Every file of pages."""
        stats = {path: path.stat() for path in files_below(self.root)}
        return {
            path: Seen(stat.st_ino, stat.st_size, stat.st_ctime_ns) for path, stat in stats.items()
        }

    def beside(self) -> int:
        """The bytes of everything else: the index, and the lock."""
        return sum(path.stat().st_size for path in self.root.glob("*") if path.is_file())


@pytest.mark.req("KV-3")
async def test_forty_turns_write_their_new_tokens_rows_and_no_more(tmp_path: Path) -> None:
    talk = Conversation(tmp_path / "pages")
    turns: list[TurnBytes] = []
    for numbers in (range(RESTART), range(RESTART, TURNS)):
        async with worker(talk.root) as (bench, writer):
            token = bench.backend.memory.kv_token
            turns += [await talk.turn(bench, writer, number) for number in numbers]
    for turn in turns:
        assert turn.tokens >= NEW_TOKENS_MIN
        # At least: rows that were not written would cost nothing.
        assert turn.tokens * token < turn.pages <= SHARE_MAX * turn.tokens * token
    tokens, pages = (sum(getattr(turn, name) for turn in turns) for name in ("tokens", "pages"))
    assert tokens == talk.kept > TURNS * NEW_TOKENS_MIN
    assert pages == sum(seen.bytes for seen in talk.files().values()) <= SHARE_MAX * tokens * token
    # While it runs, the index has a log of what it wrote last; this is what is left of both.
    assert talk.beside() <= INDEX_ROW_BYTES_MAX * len(talk.files())
    assert pages + talk.beside() <= SHARE_MAX * tokens * token


async def test_control_what_is_written_once_more_is_seen(tmp_path: Path) -> None:
    """The same turns of another domain, which shares no page."""
    talk = Conversation(tmp_path / "pages")
    async with worker(talk.root) as (bench, writer):
        for number in range(6):
            await talk.turn(bench, writer, number)
        assert talk.talk is not None
        before = talk.files()
        longer = talk.talk.say(Role.USER, BlockType.USER_TURN, "and then? ".ljust(NEW_TOKENS_MIN))
        segments, opener = longer.spelled()
        await bench.answer(segments, response="again", opener=pack(opener), domain="bob")
        receipt = await bench.receipt("again", domain="bob", looks=100_000)
        await bench.quiet()
        writer.flush()
        new = (receipt.prompt_tokens - talk.kept) * bench.backend.memory.kv_token
    written = sum(seen.bytes for path, seen in talk.files().items() if path not in before)
    assert written > 4 * SHARE_MAX * new
