"""Following a far source: one that is honest, slow, cut off, confused, or lying."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.events.ports import Hole
from actors.events.registry import KnownSource
from actors.events.remote import BACKOFF_SECONDS_MAX, Follower
from protocol.errors import FeedLost, FeedRefused
from protocol.event_log import START, Entry
from protocol.messages.events import SourceRow
from store.events import StoredEvent
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryTables
from tests.event_logs import SIGNER, SIGNERS, SOURCE, chain, entry_after, ids, position, stored
from tests.event_sources import LOST, Keeper, ScriptedFeed
from tests.worker_rooms import CountingEntropy

FAR = KnownSource(
    namespace="team",
    name="far",
    id=SOURCE,
    public_key=SIGNER.public,
    url="http://far/huginn/v1/sources/x",
    api_key_file="far",
)


class Following:
    """A follower of `feed`, whose pauses end at once, or when the test opens `gate`."""

    def __init__(self, feed: ScriptedFeed, logs: MemoryEventLogs | None = None) -> None:
        self.logs = logs or MemoryEventLogs(MemoryTables())
        self.feed = feed
        self.pauses: list[float] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.published: list[StoredEvent] = []
        self.skipped: list[int] = []
        self.follower = Follower(
            FAR,
            self.logs,
            feed,
            CountingEntropy(),
            publish=self.published.extend,
            skip=self.skipped.append,
            pause=self._pause,
        )

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.001)
        await self.gate.wait()

    async def __aenter__(self) -> Following:
        self.follower.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.follower.stop()

    def shown(self) -> tuple[str, str, int]:
        """What a person sees of the source: its state, the reason of it, and what is parked."""
        return self.follower.state, self.reason, self.follower.parked

    async def until_shown(self, state: str, reason: str, parked: int = 0) -> None:
        async with asyncio.timeout(60):
            while self.shown() != (state, reason, parked):
                await asyncio.sleep(0.001)

    async def until(self, state: str, head: int | None = None) -> None:
        async with asyncio.timeout(60):
            while self.follower.state != state or head not in (None, self.head):
                await asyncio.sleep(0.001)

    @property
    def head(self) -> int:
        return self.logs.range(SOURCE).head

    @property
    def reason(self) -> str:
        return self.follower.reason or ""


def shuffled(entries: list[Entry], seed: int) -> list[bytes]:
    bodies = [entry.body for entry in entries]
    random.Random(seed).shuffle(bodies)
    return bodies


async def test_a_source_is_caught_up_with_and_listened_to() -> None:
    entries, feed = chain(600), ScriptedFeed()
    feed.hold(entries[:598])
    async with Following(feed) as far:
        await far.until("following", 598)
        for entry in entries[598:]:
            feed.pushed.put_nowait(entry.body)
        await far.until("following", 600)
        assert far.reason == ""
        assert ids(far.published) == ids(entries)
    assert [kind for kind, _ in feed.asked] == ["page"] * 4 + ["stream"]


async def test_after_a_loss_it_goes_on_at_the_cursor() -> None:
    entries, feed = chain(4), ScriptedFeed()
    feed.hold(entries[:2])
    async with Following(feed) as far:
        await far.until("following", 2)
        feed.fails = [LOST] * 1000
        feed.pushed.put_nowait(FeedLost("the stream broke off"))
        await far.until_shown("disconnected", "the line is cut")
        feed.fails = []
        await far.until_shown("following", "")
        feed.hold(entries)
        feed.pushed.put_nowait(FeedLost("again"))
        await far.until("following", 4)
        assert len(far.pauses) >= 2
    assert feed.asked[-2:] == [("page", 4), ("stream", 4)]
    assert ids(far.published) == ids(entries)


async def test_each_trouble_has_its_own_name() -> None:
    feed = ScriptedFeed(fails=[LOST] * 1000)
    async with Following(feed) as far:
        async with asyncio.timeout(60):
            while len(far.pauses) < 20:
                await asyncio.sleep(0.001)
        assert (far.follower.state, far.reason) == ("disconnected", "the line is cut")
        feed.fails = [FeedRefused("status 404")] * 1000
        await far.until("refused")
        assert far.reason == "status 404"
    # Doubled and jittered, and never over the longest.
    assert all(0.25 <= each <= BACKOFF_SECONDS_MAX for each in far.pauses)
    assert far.pauses[0] <= 0.5
    assert max(far.pauses) > BACKOFF_SECONDS_MAX / 2


async def test_without_a_stream_it_is_polled() -> None:
    entries, feed = chain(3), ScriptedFeed(streams=FeedRefused("no stream here"))
    feed.hold(entries[:1])
    async with Following(feed) as far:
        await far.until("following", 1)
        feed.hold(entries)
        await far.until("following", 3)
        await far.until_shown(
            "following", "its stream was refused, and is tried again: no stream here"
        )
    assert ("page", 1) in feed.asked


@pytest.mark.req("EVT-10")
async def test_junk_in_a_stream_is_shown_and_the_stream_is_tried_again() -> None:
    """Meanwhile pages are asked for; a stream that brings an entry is one again."""
    entries, feed = chain(5), ScriptedFeed()
    feed.hold(entries[:1])
    refused = "its stream was refused, and is tried again: junk {}"
    async with Following(feed) as far:
        await far.until("following", 1)
        far.gate.clear()
        feed.pushed.put_nowait(FeedRefused("junk 1"))
        await far.until_shown("following", refused.format(1))
        feed.hold(entries[:2])
        await far.until("following", 2)
        assert len(far.pauses) == 1
        far.gate.set()
        # Each new refusal is told in its turn, and the tries are further and further apart.
        for number in range(2, 12):
            feed.pushed.put_nowait(FeedRefused(f"junk {number}"))
            await far.until_shown("following", refused.format(number))
        assert BACKOFF_SECONDS_MAX / 2 <= far.pauses[-1] <= BACKOFF_SECONDS_MAX
        feed.pushed.put_nowait(entries[1].body)
        await far.until_shown("following", f"{refused.format(11)}; 1 entries came more than once")
        feed.pushed.put_nowait(entries[2].body)
        await far.until_shown("following", "1 entries came more than once")
        assert far.head == 3
        far.gate.clear()
        feed.pushed.put_nowait(FeedRefused("junk 12"))
        await far.until_shown("following", f"{refused.format(12)}; 1 entries came more than once")
        assert far.pauses[-1] <= 0.5
        # What is wrong with the source itself goes before.
        feed.fails = [LOST] * 1000
        await far.until_shown("disconnected", "the line is cut")
    assert ids(far.published) == ids(entries[:3])


@pytest.mark.req("EVT-2")
async def test_entries_that_do_not_verify_are_not_kept() -> None:
    entries, feed = chain(5), ScriptedFeed()
    flipped = bytearray(entries[2].body)
    flipped[-1] ^= 1
    foreign = chain(3, signer=SIGNERS[1])[2].body
    for bad, word in [(bytes(flipped), "unsigned"), (foreign, "foreign"), (b"\x00", "malformed")]:
        feed.hold(entries)
        feed.page_as = lambda after, page, bad=bad: [*page[:2], bad] if after == 0 else [bad]
        async with Following(feed) as far:
            await far.until("refused", 2)
            assert far.reason.startswith(f"{word}: ")
            assert far.follower.parked == 0
            # It is tried again, and goes on once the other side is honest.
            feed.page_as = None
            await far.until("following", 5)
            await far.until_shown("following", "")
        assert ids(far.published) == ids(entries)


@pytest.mark.req("EVT-2")
async def test_two_histories_are_kept_as_evidence_and_the_log_stands_still() -> None:
    entries, feed = chain(5), ScriptedFeed()
    feed.hold(entries[:3])
    other = [entry_after(position(entries[1]), "another story")]
    other.append(entry_after(position(other[0]), "and on"))
    for lie in (other[0], other[1]):
        async with Following(feed) as far:
            await far.until("following", 3)
            feed.pushed.put_nowait(lie.body)
            await far.until("forked", 3)
            assert str(lie.id) in far.reason or "follows" in far.reason
            assert far.follower.parked == 0
            assert ids(far.logs.evidence(SOURCE)) == [lie.id]
        # A restart knows it still, and asks for nothing.
        feed.asked.clear()
        async with Following(feed, far.logs) as again:
            assert again.follower.state == "forked"
            await asyncio.sleep(0)
        assert feed.asked == []


async def test_a_fork_inside_one_page_is_seen() -> None:
    entries, feed = chain(4), ScriptedFeed()
    other = entry_after(position(entries[1]), "another story")
    feed.entries = [*(entry.body for entry in entries), other.body]
    async with Following(feed) as far:
        await far.until("forked", 4)
        assert ids(far.logs.evidence(SOURCE)) == [other.id]


async def test_what_comes_twice_is_counted_and_kept_once() -> None:
    entries, feed = chain(3), ScriptedFeed()
    feed.hold(entries)
    async with Following(feed) as far:
        await far.until("following", 3)
        for entry in (entries[0], entries[2], entry_after(position(entries[2]))):
            feed.pushed.put_nowait(entry.body)
        await far.until("following", 4)
        assert far.shown() == ("following", "2 entries came more than once", 0)
    assert len(far.published) == 4


async def test_what_is_missing_is_asked_for() -> None:
    entries, feed = chain(12), ScriptedFeed()
    feed.hold(entries[:2])
    async with Following(feed) as far:
        await far.until("following", 2)
        feed.hold(entries)
        feed.asked.clear()
        feed.pushed.put_nowait(entries[9].body)
        await far.until("following", 10)
        assert feed.asked == [("page", 2)]
        assert far.shown() == ("following", "", 0)


async def test_what_nobody_has_leaves_later_entries_parked() -> None:
    entries, feed = chain(5), ScriptedFeed()
    feed.hold(entries)
    feed.page_as = lambda after, page: [entries[0].body] if after == 0 else []
    async with Following(feed) as far:
        await far.until("following", 1)
        feed.pushed.put_nowait(entries[3].body)
        await far.until_shown(
            "disconnected", "numbers 2 … 3 are not given, and 1 later ones wait for them", 1
        )
        feed.page_as = None
        await far.until("following", 5)
        assert far.follower.parked == 0


async def test_what_the_far_side_keeps_no_longer_is_stepped_over() -> None:
    entries, feed = chain(30), ScriptedFeed(kept_from=21)
    feed.hold(entries)
    async with Following(feed) as far:
        await far.until("following", 30)
        assert far.logs.range(SOURCE).first == 21
        assert far.skipped == [20]
    assert ids(far.published) == ids(entries[20:])
    # In a stream it comes in its place, and what was kept before it goes: a log is dense.
    feed = ScriptedFeed()
    feed.hold(entries[:5])
    async with Following(feed) as far:
        await far.until("following", 5)
        feed.pushed.put_nowait(Hole(6, 9))
        feed.pushed.put_nowait(entries[9].body)
        await far.until("following", 10)
        assert far.logs.range(SOURCE).first == 10
        assert far.skipped == [9]


async def test_a_hole_is_believed_only_with_a_signed_entry_behind_it() -> None:
    entries, feed = chain(5), ScriptedFeed()
    feed.hold(entries[:2])
    async with Following(feed) as far:
        await far.until("following", 2)
        feed.fails = [LOST] * 1000
        feed.pushed.put_nowait(Hole(3, 1000))
        feed.pushed.put_nowait(b"\xff")
        await far.until("disconnected")
        assert far.logs.range(SOURCE).head == 2
        assert far.skipped == []


@pytest.mark.req("EVT-2")
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 25),
    losses=st.integers(0, 3),
    repeats=st.integers(0, 5),
)
def test_however_entries_come_the_log_is_the_same(
    seed: int, count: int, losses: int, repeats: int
) -> None:
    """Out of order, repeated, with the line cut in between: what is kept is the source's log."""
    entries = chain(count)

    async def follow() -> None:
        feed, rng = ScriptedFeed(), random.Random(seed)
        feed.hold(entries[: rng.randint(0, count)])
        async with Following(feed) as far:
            await far.until("following")
            feed.hold(entries)
            stream = shuffled([*entries, *rng.choices(entries, k=repeats)], seed)
            items: list[bytes | Exception] = list(stream)
            for _ in range(losses):
                items.insert(rng.randint(0, len(items)), FeedLost("cut"))
            for item in items:
                feed.pushed.put_nowait(item)
            await far.until("following", count)
            assert ids(far.logs.read(SOURCE, 0, 100)) == ids(entries)
            assert ids(far.published) == ids(entries)
            far.logs.check()

    asyncio.run(follow())


async def test_a_log_that_cannot_be_continued_is_read_anew() -> None:
    entries, feed = chain(3), ScriptedFeed()
    feed.hold(entries)
    far = Following(feed)
    far.logs.append_soon([stored(entries[0])]).result()
    # The follower does not know of entry 1, and cannot append another: it looks again.
    async with far:
        await far.until("following", 3)
    assert ids(far.logs.read(SOURCE, 0, 9)) == ids(entries)


async def test_a_keeper_shows_what_it_follows() -> None:
    feed = ScriptedFeed()
    feed.hold(chain(2))
    async with Keeper(feed=feed) as keeper:
        await keeper.add("far", url=FAR.url, public_key=SIGNER.public, api_key_file="far")

        def caught_up(row: SourceRow) -> bool:
            return row.state == "following" and row.head == 2

        row = await keeper.until(caught_up, "far")
        assert (row.id, row.url, row.parked, row.equivocations) == (SOURCE, FAR.url, 0, 0)
        await keeper.restart()
        assert (await keeper.until(caught_up, "far")).first == 1
        assert ("page", 0) not in feed.asked[2:], "it goes on where it was"
        await keeper.remove("far")
        assert keeper.logs.range(SOURCE).head == START.seq
    assert feed.closed
