"""A page, a header or a row of the index is damaged, gone, or another's: the answer is the cold.

A real model (the tests') over a directory of pages that somebody had a hand in, while nothing ran
or behind a worker's back. The state and the greedy answer are those of a plain loop that keeps
nothing, what is reused ends before the damage, the receipt says why, and nothing of it stays: the
next worker finds every page sound and uses them all.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import apsw
import pytest

from actors.worker.tiers import Tiers
from actors.worker.writer import PageWriter
from protocol.ids import StateId
from protocol.messages.assembler import Segment
from protocol.messages.worker import Receipt
from protocol.page import PageRows
from protocol.tokens import TokenIds, pack
from store.pages.disk import PageStore
from store.pages.memory import MemoryPageTier
from store.pages.seal import SEAL_BYTES
from store.pages.tier import BOTH, PageInfo, Refused
from tests.bare_worker import Bare, bare_answer
from tests.exact_models import MODELS
from tests.grammar_talks import GrammarTalk, next_input
from tests.kept_states import EAGER
from tests.page_samples import TestClock, disk, files_below, overwrite
from tests.worker_rooms import Bench, opened

MODEL = MODELS["tiny"]
DOMAIN = "alice"
PLACES = ("first", "middle", "last")


class Told(NamedTuple):
    """The conversation, what a worker must come to, and a directory that has its pages."""

    segments: list[Segment]
    opener: TokenIds
    expected: Bare
    root: Path
    infos: list[PageInfo]


class Place(NamedTuple):
    """A page that is to be damaged: its file, and another page's. In it come the header, the full
    rows from `full` on with their seal, and the sliding ones from `sliding` on with theirs."""

    file: Path
    other: Path
    full: int
    sliding: int


class Worker(NamedTuple):
    bench: Bench
    store: PageStore
    writer: PageWriter


@asynccontextmanager
async def worker(root: Path) -> AsyncIterator[Worker]:
    """A worker that knows nothing but the directory."""
    clock = TestClock()
    host, store = MemoryPageTier(clock, 2**30), disk(root, clock)
    writer = PageWriter(store, host)
    options = {"profile": MODEL.profile_id(), "chunk_tokens": MODEL.chunk_tokens}
    async with opened(MODEL.open(), tiers=Tiers(host, store, writer, **EAGER), **options) as bench:
        yield Worker(bench, store, writer)
        await bench.quiet()


async def asked(bench: Bench, told: Told, name: str) -> tuple[Bare, Receipt]:
    """The state and the answer, and the receipt."""
    result = await bench.answer(
        told.segments,
        response=name,
        opener=pack(told.opener),
        tokens_max=MODEL.answer_tokens,
        stop_ids=sorted(MODEL.grammar(bench.backend).stop_ids),
    )
    receipt = await bench.receipt(name, looks=100_000)
    assert isinstance(receipt.state_digest, StateId)
    return Bare(result.ids, receipt.state_digest), receipt


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    backend = MODEL.open()
    talk, random = GrammarTalk(MODEL.grammar(backend)), Random(24)
    for _ in range(3):
        talk = next_input(talk, random, MODEL.words_max).answer(backend.tokenizer.encode("so"))
    segments, opener = next_input(talk, random, MODEL.words_max).spelled()
    expected = bare_answer(
        backend,
        segments,
        opener,
        tokens_max=MODEL.answer_tokens,
        stop_ids=MODEL.grammar(backend).stop_ids,
        chunk_tokens=MODEL.chunk_tokens,
    )
    backend.close()
    root = tmp_path_factory.mktemp("told") / "pages"
    return asyncio.run(_kept(Told(segments, opener, expected, root, [])))


async def _kept(told: Told) -> Told:
    """Told once to a worker that keeps its pages."""
    async with worker(told.root) as w:
        found, _ = await asked(w.bench, told, "first")
        assert found == told.expected
        await w.bench.quiet()
        w.writer.flush()
        chains = [boundary.chain for boundary in w.bench.room._engine.streams[0].boundaries]
        infos = w.store.longest(DOMAIN, chains)
    assert len(infos) == len(chains) > 8
    # The last advance is always fed: its page is nobody's to ask for.
    return told._replace(infos=infos[:-1])


@pytest.fixture
def pages(told: Told, tmp_path: Path) -> Path:
    return shutil.copytree(told.root, tmp_path / "pages")


def at(told: Told, root: Path, place: str) -> tuple[PageInfo, Place]:
    number = {"first": 0, "middle": len(told.infos) // 2, "last": -1}[place]
    info, other = told.infos[number], told.infos[number - 3]
    files = {path.name: path for path in files_below(root)}
    file = files[str(info.page.chain)]
    sliding = file.stat().st_size - info.sliding_bytes - SEAL_BYTES
    full = sliding - info.full_bytes - SEAL_BYTES
    return info, Place(file, files[str(other.page.chain)], full, sliding)


# -- wounds ----------------------------------------------------------------------------------------


def flipped(path: Path, place: int) -> None:
    body = bytearray(path.read_bytes())
    body[place] ^= 0x10
    overwrite(path, bytes(body))


def header_flipped(place: Place) -> None:
    flipped(place.file, place.full // 3)


def rows_flipped(place: Place) -> None:
    flipped(place.file, place.full + 40)


def seal_flipped(place: Place) -> None:
    flipped(place.file, place.sliding - 1)


def sliding_flipped(place: Place) -> None:
    flipped(place.file, place.sliding + 40)


def cut(place: Place) -> None:
    overwrite(place.file, place.file.read_bytes()[: place.full + 100])


def emptied(place: Place) -> None:
    overwrite(place.file, b"")


def grown(place: Place) -> None:
    overwrite(place.file, place.file.read_bytes() + b"\0")


def deleted(place: Place) -> None:
    place.file.unlink()


def swapped(place: Place) -> None:
    mine, others = place.file.read_bytes(), place.other.read_bytes()
    overwrite(place.file, others)
    overwrite(place.other, mine)


def overlaid(place: Place) -> None:
    """Another page stands there twice, and this one nowhere."""
    overwrite(place.file, place.other.read_bytes())


WOUNDS: list[Callable[[Place], None]] = [
    header_flipped,
    rows_flipped,
    seal_flipped,
    cut,
    emptied,
    grown,
    deleted,
    swapped,
    overlaid,
]


@pytest.mark.req("KV-3", "KV-6", "KV-8")
@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("wound", WOUNDS)
async def test_a_page_that_is_no_good_is_refused_told_of_and_replaced(
    told: Told, pages: Path, wound: Callable[[Place], None], place: str, running: bool
) -> None:
    info, found = at(told, pages, place)
    before = {path: path.read_bytes() for path in files_below(pages)}
    if not running:
        wound(found)
    async with worker(pages) as w:
        if running:
            wound(found)
        outcome, receipt = await asked(w.bench, told, "again")
        assert outcome == told.expected
        starts = [each.page.start for each in (info, *_also(told, found, wound))]
        assert receipt.reused_tokens == receipt.tiers["disk"] == min(starts)
        assert receipt.pages_refused
        await w.bench.quiet()
        w.writer.flush()
    await _is_whole(told, pages, set(before))


def _also(told: Told, found: Place, wound: Callable[[Place], None]) -> Iterator[PageInfo]:
    """What else that wound took."""
    if wound is swapped:
        yield from (i for i in told.infos if str(i.page.chain) == found.other.name)


async def _is_whole(told: Told, pages: Path, files: set[Path]) -> None:
    """The next worker uses all of it, and refuses nothing; no other file is there."""
    async with worker(pages) as w:
        outcome, receipt = await asked(w.bench, told, "once more")
        assert outcome == told.expected
        stop = told.infos[-1].page.start + told.infos[-1].page.tokens
        assert (receipt.pages_refused, receipt.reused_tokens) == ([], stop)
    assert set(files_below(pages)) == files


@pytest.mark.req("KV-3", "KV-4", "KV-8")
@pytest.mark.parametrize("place", PLACES)
async def test_sliding_rows_are_looked_at_where_they_are_needed(
    told: Told, pages: Path, place: str
) -> None:
    _, found = at(told, pages, place)
    before = set(files_below(pages))
    sliding_flipped(found)
    async with worker(pages) as w:
        outcome, receipt = await asked(w.bench, told, "again")
        assert outcome == told.expected
        assert receipt.pages_refused == (["seal"] if place == "last" else [])
        await w.bench.quiet()
        w.writer.flush()
    await _is_whole(told, pages, before)


@pytest.mark.req("KV-3", "KV-6")
async def test_a_copy_under_a_name_that_no_page_has_is_removed(told: Told, pages: Path) -> None:
    before = set(files_below(pages))
    _, found = at(told, pages, "middle")
    shutil.copy(found.file, found.file.with_name(str(told.infos[0].page.parent or "copy")))
    shutil.copy(found.file, found.file.with_name(str(MODEL.profile_id()).replace("profile", "x")))
    strange = str(found.file.name)[:-1] + ("a" if found.file.name[-1] != "a" else "b")
    shutil.copy(found.file, found.file.with_name(strange))
    await _is_whole(told, pages, before)


# -- rows of the index -----------------------------------------------------------------------------


def run(root: Path, query: str) -> None:
    connection = apsw.Connection(str(root / "index.db"))
    connection.execute(query)
    connection.close()


SECOND = "(SELECT rowid_ FROM (SELECT chain AS rowid_ FROM pages ORDER BY start LIMIT 1 OFFSET 1))"
ROWS = {
    "deleted": f"DELETE FROM pages WHERE chain = {SECOND}",
    "all deleted": "DELETE FROM pages",
    "another start": f"UPDATE pages SET start = start + 64 WHERE chain = {SECOND}",
    "another length": f"UPDATE pages SET file_bytes = file_bytes + 1 WHERE chain = {SECOND}",
    "another page's digests": (
        "UPDATE pages SET full_digest = (SELECT full_digest FROM pages ORDER BY start DESC LIMIT 1)"
    ),
    "another parent": f"UPDATE pages SET parent = chain WHERE chain = {SECOND}",
    "used before time": "UPDATE pages SET used_ns = -1",
    "twice": (
        "INSERT OR IGNORE INTO pages SELECT domain, digest, parent, profile, start, tokens,"
        " full_bytes, full_digest, sliding_bytes, sliding_digest, file_bytes, digest, used_ns"
        " FROM pages"
    ),
}


@pytest.mark.req("KV-3", "KV-6")
@pytest.mark.parametrize("query", ROWS.values(), ids=ROWS)
async def test_a_row_of_the_index_is_believed_by_nobody(
    told: Told, pages: Path, query: str
) -> None:
    before = set(files_below(pages))
    run(pages, query)
    await _is_whole(told, pages, before)


@pytest.mark.req("KV-3", "KV-6")
@pytest.mark.parametrize("wound", [0, 20, 100, 4096, -1, -600])
async def test_bytes_of_the_index_are_believed_by_nobody(
    told: Told, pages: Path, wound: int
) -> None:
    before = set(files_below(pages))
    index = pages / "index.db"
    body = bytearray(index.read_bytes())
    body[wound : wound + 64 if wound >= 0 else None] = bytes(64)
    index.write_bytes(bytes(body))
    await _is_whole(told, pages, before)
    index.write_bytes(index.read_bytes()[:1000])
    await _is_whole(told, pages, before)
    index.unlink()
    await _is_whole(told, pages, before)


# -- control ---------------------------------------------------------------------------------------


async def test_control_other_rows_in_a_sound_page_are_another_answer(
    told: Told, pages: Path, tmp_path: Path
) -> None:
    """Sealed by who has the key: what every check lets through, this test would see."""
    source, spoiled = disk(pages), disk(tmp_path / "spoiled")
    for info in told.infos:
        rows = source.read(info, BOTH)
        assert not isinstance(rows, Refused)
        # Keys for values, and values for keys.
        full, sliding = len(rows.full) // 2, len(rows.sliding) // 2
        other = PageRows(
            full=rows.full[full:] + rows.full[:full],
            sliding=rows.sliding[sliding:] + rows.sliding[:sliding],
        )
        assert spoiled.put(info.page, other)
    source.close()
    spoiled.close()
    async with worker(tmp_path / "spoiled") as w:
        outcome, receipt = await asked(w.bench, told, "spoiled")
    assert receipt.reused_tokens > 0
    assert outcome.digest != told.expected.digest
    assert outcome.ids != told.expected.ids
