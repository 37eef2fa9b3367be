"""Seats: table and back end in step, whatever the back end does."""

from __future__ import annotations

from typing import Any

import pytest

from actors.worker.chain import chains
from actors.worker.schedule import Advance
from actors.worker.seats import Found, Seats
from actors.worker.streams import Choice
from actors.worker.tiers import GAIN_SHARE, Tiers
from protocol.errors import WorkerFault
from protocol.ids import ChainId
from store.pages.memory import MemoryPageTier
from tests.fake_backend import FakeBackend
from tests.page_samples import TestClock
from tests.worker_rooms import PROFILE

PIECES = [Advance((9,) * 5, 0, 0), Advance((10,) * 5, 1, 5), Advance((11,) * 5, 2, 10)]
CHAINS = chains(PROFILE, PIECES)


def taken(seats: Seats, domain: str, chains: list[ChainId]) -> Choice:
    """The seat, which there is, without where its prefix was found."""
    seat = seats.take(domain, chains)
    assert seat is not None
    assert seat.found.tier_to_tokens == {"device": seat.tokens}
    return Choice(*seat[:3])


def filled(count: int = 3, **options: Any) -> tuple[Seats, FakeBackend]:
    """Stream 0 holds the first `count` pieces for alice."""
    backend = FakeBackend(**options)
    seats = Seats(backend, PROFILE)
    assert taken(seats, "alice", CHAINS) == (0, 0, 0)
    for piece, chain in zip(PIECES[:count], CHAINS, strict=False):
        seats.feed(0, piece, chain, logits=False)
    return seats, backend


def test_leaving_cuts_off_what_decode_wrote() -> None:
    seats, backend = filled()
    seats.decode([(0, 9)])
    seats.decode([(0, 10)])
    assert seats.leave(0)
    assert backend.length(0) == 15 == seats.streams[0].tokens


def test_taking_cuts_back_to_what_is_shared_and_clears_for_another_domain() -> None:
    seats, backend = filled(streams=1)
    seats.leave(0)
    assert taken(seats, "alice", CHAINS[:2]) == (0, 2, 10)
    assert backend.length(0) == 10
    assert seats.take("alice", CHAINS) is None
    seats.leave(0)
    assert taken(seats, "bob", CHAINS) == (0, 0, 0)
    assert backend.length(0) == 0
    assert seats.streams[0].domain == "bob"


@pytest.mark.req("KV-12")
def test_a_back_end_that_loses_positions_is_found_out() -> None:
    seats, backend = filled(2)
    backend._rows[0].pop()
    with pytest.raises(WorkerFault, match="9 positions where 10"):
        seats.feed(0, PIECES[2], CHAINS[2], logits=False)
    # Leaving cannot bring them back: the stream is cleared, never believed.
    assert not seats.leave(0)
    assert backend.length(0) == 0
    assert seats.streams[0].boundaries == []


def test_a_cut_that_fails_clears_the_stream() -> None:
    seats, backend = filled(streams=1)
    seats.leave(0)
    backend._rows[0].cut(0)
    with pytest.raises(WorkerFault):
        seats.take("alice", CHAINS[:2])
    assert not seats.streams[0].leased
    assert taken(seats, "alice", CHAINS[:2]) == (0, 0, 0)


def test_restore_takes_back_a_half_done_decode() -> None:
    seats, backend = filled()
    backend.decode([(0, 9)])
    seats.restore(0, 15)
    assert backend.length(0) == 15
    with pytest.raises(WorkerFault):
        seats.restore(0, 16)


def test_clear_all_leaves_nothing() -> None:
    seats, backend = filled()
    seats.clear_all()
    assert backend.length(0) == 0
    assert seats.streams.leased == seats.streams.resident_tokens == 0


# -- with tiers --------------------------------------------------------------------------------

LONG = [Advance((9 + k,) * 40, k, 40 * k) for k in range(6)]
LONG_CHAINS = chains(PROFILE, LONG)


def with_tiers(**options: Any) -> tuple[Seats, FakeBackend, MemoryPageTier]:
    """A stream was filled with LONG by alice, all of it is kept, and other streams are empty."""
    backend = FakeBackend(**options)
    host = MemoryPageTier(TestClock(), 2**30)
    seats = Seats(backend, PROFILE, Tiers(host))
    assert seats.take("alice", LONG_CHAINS) is not None
    for piece, chain in zip(LONG, LONG_CHAINS, strict=True):
        seats.feed(0, piece, chain, logits=False)
    assert seats.leave(0)
    while seats.exports.step():
        pass
    return seats, backend, host


def overwritten(seats: Seats) -> None:
    """Another domain takes every stream and fills it."""
    for _ in seats.streams:
        seat = seats.take("bob", CHAINS)
        assert seat is not None
        seats.feed(seat.stream, PIECES[0], CHAINS[0], logits=False)
    for stream in seats.streams:
        assert seats.leave(stream.index)


@pytest.mark.req("KV-4", "KV-5")
def test_what_a_stream_loses_is_restored_with_its_digests() -> None:
    seats, backend, host = with_tiers(streams=1)
    digests = [boundary.page for boundary in seats.streams[0].boundaries]
    overwritten(seats)
    seat = seats.take("alice", LONG_CHAINS)
    assert seat is not None
    assert seat[:3] == (0, 6, 240)
    assert seat.found == Found({"host": 240}, 6, [])
    assert [boundary.page for boundary in seats.streams[0].boundaries] == digests
    assert backend.length(0) == 240
    assert not seats.exports.step(), "nothing of it is owed"
    assert host.stats().leased == 0


@pytest.mark.req("KV-4")
def test_a_stream_is_exported_before_it_is_overwritten() -> None:
    backend = FakeBackend(streams=1, window_tokens=512)
    host = MemoryPageTier(TestClock(), 2**30)
    seats = Seats(backend, PROFILE, Tiers(host))
    assert seats.take("alice", LONG_CHAINS) is not None
    for piece, chain in zip(LONG, LONG_CHAINS, strict=True):
        seats.feed(0, piece, chain, logits=False)
    assert seats.leave(0)
    assert host.stats().pages == 0, "there was no time for it"
    overwritten(seats)
    assert len(host.find("alice", LONG_CHAINS)) == 6


@pytest.mark.req("KV-7")
def test_a_restored_stream_is_not_cut_back_below_what_it_has() -> None:
    seats, backend, _ = with_tiers(streams=1)
    overwritten(seats)
    assert seats.take("alice", LONG_CHAINS) is not None
    assert seats.leave(0)
    # 240 tokens were restored with the sliding rows from 128 on.
    assert seats.streams[0].floor == 200
    assert not backend.can_truncate(0, 160)
    cut = seats.take("alice", LONG_CHAINS[:5])
    assert cut is not None
    assert (cut.tokens, cut.found.tier_to_tokens) == (200, {"device": 200})
    assert seats.leave(0)
    shorter = seats.take("alice", LONG_CHAINS[:3])
    assert shorter is not None
    assert (shorter.tokens, shorter.found.tier_to_tokens) == (120, {"host": 120})


@pytest.mark.req("KV-7")
def test_without_its_pages_a_restored_stream_is_computed_anew() -> None:
    seats, backend, host = with_tiers(streams=1)
    overwritten(seats)
    assert seats.take("alice", LONG_CHAINS) is not None
    assert seats.leave(0)
    host.drop_domain("alice")
    shorter = seats.take("alice", LONG_CHAINS[:3])
    assert shorter is not None
    assert shorter[:3] == (0, 0, 0)
    assert backend.length(0) == 0


@pytest.mark.req("KV-3")
def test_a_restore_that_fails_leaves_nothing_and_is_told() -> None:
    seats, backend, _ = with_tiers(streams=1)
    overwritten(seats)
    backend.fault = "keep"
    seat = seats.take("alice", LONG_CHAINS)
    assert seat is not None
    assert seat[:3] == (0, 0, 0)
    assert seat.found == Found({"device": 0}, 6, ["restore"])
    assert backend.length(0) == 0
    assert seats.streams[0].boundaries == []


def test_so_few_tokens_are_fed_and_not_restored() -> None:
    seats, _, host = with_tiers(streams=1)
    overwritten(seats)
    assert seats.take("alice", LONG_CHAINS) is not None
    assert seats.leave(0)
    assert len(host.find("bob", CHAINS[:1])) == 1
    hits = host.stats().hits
    seat = seats.take("bob", CHAINS[:1])
    assert seat is not None
    assert seat.tokens == 0
    assert host.stats().hits == hits


@pytest.mark.req("KV-5")
def test_a_branch_is_restored_elsewhere_unless_the_stream_would_go_first() -> None:
    seats, _, _ = with_tiers(streams=2)
    branch = seats.take("alice", LONG_CHAINS[:3])
    assert branch is not None
    assert (branch.stream, branch.found.tier_to_tokens) == (1, {"host": 120})
    assert seats.streams[0].tokens == 240
    alone, _, _ = with_tiers(streams=1)
    cut = alone.take("alice", LONG_CHAINS[:3])
    assert cut is not None
    assert (cut.stream, cut.found.tier_to_tokens) == (0, {"device": 120})


@pytest.mark.req("AUT-5")
def test_another_domain_is_restored_nothing() -> None:
    seats, backend, _ = with_tiers(streams=2)
    seat = seats.take("bob", LONG_CHAINS)
    assert seat is not None
    assert seat.tokens == backend.length(seat.stream) == 0


@pytest.mark.req("KV-4", "KV-5")
def test_each_of_many_conversations_behind_one_prompt_gets_its_own_tokens_back() -> None:
    """Twice as many as there are streams, and little of each is its own: what the shared prompt's
    stream gives would be nearly enough."""
    host = MemoryPageTier(TestClock(), 2**30)
    seats = Seats(FakeBackend(window_tokens=512), PROFILE, Tiers(host))
    shared = [Advance((9,) * 150, 0, 0), Advance((10,) * 150, 1, 150)]
    talks = [[*shared, Advance((11 + k,) * 28, 2, 300)] for k in range(8)]

    def turn(pieces: list[Advance]) -> tuple[int, int]:
        """As an engine takes it: the last piece is always fed."""
        names = chains(PROFILE, pieces)
        seat = seats.take("alice", names[:-1])
        assert seat is not None
        for piece, name in list(zip(pieces, names, strict=True))[seat.keep :]:
            seats.feed(seat.stream, piece, name, logits=False)
        assert seats.leave(seat.stream)
        return seat.tokens, seat.found.tier_to_tokens.get("host", 0)

    assert [turn(talk)[0] for talk in talks] == [0] + [300] * 7
    for talk in talks:
        talk += [Advance((30,) * 6, 3, 328), Advance((31,) * 20, 4, 334)]
    found = [turn(talk) for talk in talks]
    assert [tokens for tokens, _ in found] == [328] * 8
    assert sum(host_tokens > 0 for _, host_tokens in found) >= 4, "four at most were on a stream"


def test_a_small_gain_is_not_worth_a_long_restore() -> None:
    tiers = Tiers(MemoryPageTier(TestClock(), 2**30), gain_tokens_min=8)
    assert not tiers.is_worth(gain=7, tokens=100)
    assert tiers.is_worth(gain=8, tokens=100)
    assert tiers.is_worth(gain=8, tokens=8 * GAIN_SHARE + GAIN_SHARE - 1)
    assert not tiers.is_worth(gain=8, tokens=9 * GAIN_SHARE)


def test_what_a_stream_loses_little_by_is_restored_in_its_place() -> None:
    """A longer prefix takes the stream of the short one, and no other conversation's."""
    seats, _, _ = with_tiers(streams=2)
    assert seats.take("alice", CHAINS) is not None
    seats.feed(1, PIECES[0], CHAINS[0], logits=False)
    assert seats.leave(1)
    # A branch cut 40 tokens off stream 0 and put 10 there; stream 1 was used before it.
    branch = chains(PROFILE, [*LONG[:5], Advance((99,) * 10, 5, 200)])
    short = seats.take("alice", branch[:5])
    assert short is not None
    assert (short.stream, short.tokens) == (0, 200)
    seats.feed(short.stream, Advance((99,) * 10, 5, 200), branch[5], logits=False)
    assert seats.leave(short.stream)
    resident = {stream.index: stream.tokens for stream in seats.streams}
    whole = seats.take("alice", LONG_CHAINS)
    assert whole is not None
    assert (whole.tokens, whole.stream) == (240, short.stream)
    other = 1 - short.stream
    assert seats.streams[other].tokens == resident[other]
