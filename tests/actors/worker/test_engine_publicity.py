"""What is public of a prompt is kept for all, until a withdrawal comes at whatever point."""

from __future__ import annotations

import pytest

from actors.worker.drivers import step
from actors.worker.jobs import Event, Withdrawal, Withdrawn
from actors.worker.tiers import Tiers
from protocol.errors import StoreFault
from protocol.messages.worker import Item
from protocol.publication import PUBLIC
from store.pages.memory import MemoryPageTier
from tests.engine_stands import Stand
from tests.worker_rooms import HandClock, Talk, text_ids

SHARED = Talk().add("user", text_ids("s" * 300))


@pytest.mark.req("AUT-5")
def test_a_public_beginning_is_kept_for_all_and_the_rest_for_its_domain() -> None:
    host = MemoryPageTier(HandClock(), 2**20)
    stand = Stand(Tiers(host, gain_tokens_min=1))
    job = stand.job("a", 0, talk=SHARED.add("user", text_ids("mine")), public=1)
    stand.run()
    chains = job.prompt.chains
    assert job.prompt.public == len(chains) - 1 == 5
    assert [info.page.chain for info in host.find(PUBLIC, chains)] == list(chains[:-1])
    assert [info.page.chain for info in host.find("alice", chains)] == [chains[-1]]
    for public, tokens in [(1, job.prompt.public_tokens), (0, 0)]:
        other = SHARED.add("user", text_ids(f"his {public}"))
        stand.job(f"b{public}", 0, talk=other, public=public, domain=f"bob {public}")
        stand.run()
        end = stand.end(f"b{public}")
        assert isinstance(end, Item)
        assert end.receipt is not None
        assert end.receipt.reused_tokens == tokens
        assert end.receipt.public_tokens == (tokens or None)


@pytest.mark.req("AUT-5")
def test_a_settlement_publishes_what_is_public_of_it() -> None:
    host = MemoryPageTier(HandClock(), 2**20)
    stand = Stand(Tiers(host, gain_tokens_min=1))
    settlement = stand.settle("s", 0, talk=SHARED.add("user", text_ids("x")), public=1)
    stand.run()
    assert len(host.find(PUBLIC, settlement.prompt.chains)) == settlement.prompt.public == 5


@pytest.mark.req("AUT-5")
@pytest.mark.parametrize("steps", range(8))
def test_a_withdrawal_between_two_chunks_makes_the_rest_private(steps: int) -> None:
    """At whatever point it comes, nothing is kept for all afterwards: not what is being fed, not
    what waits, not what settles."""
    host = MemoryPageTier(HandClock(), 2**20)
    stand = Stand(Tiers(host, gain_tokens_min=1), streams=2)
    jobs = [
        stand.job(name, 0, talk=SHARED.add("user", text_ids(name)), public=1, domain=name)
        for name in "abc"
    ]
    stand.settle("s", 0, talk=SHARED.add("user", text_ids("later")), public=1)
    for _ in range(steps):
        step(stand.engine)
    posted: list[Event] = []
    stand.engine.submit(Withdrawal(posted.append))
    step(stand.engine)
    assert posted == [Withdrawn()]
    stand.run()
    assert not any(
        boundary.public for stream in stand.engine.streams for boundary in stream.boundaries
    )
    for job in jobs:
        assert host.find(PUBLIC, job.prompt.chains) == []
        assert isinstance(stand.end(job.key.response), Item)
    stand.job("d", 0, talk=SHARED.add("user", text_ids("d")), domain="dora")
    stand.run()
    end = stand.end("d")
    assert isinstance(end, Item)
    assert end.receipt is not None
    assert end.receipt.reused_tokens == 0


@pytest.mark.req("AUT-5")
@pytest.mark.parametrize("steps", range(4))
def test_a_withdrawal_in_the_middle_of_a_settlement_makes_the_rest_private(steps: int) -> None:
    host = MemoryPageTier(HandClock(), 2**20)
    stand = Stand(Tiers(host, gain_tokens_min=1))
    settlement = stand.settle("s", 0, talk=SHARED.add("user", text_ids("x")), public=1)
    for _ in range(steps):
        step(stand.engine)
    stand.engine.submit(Withdrawal(lambda event: None))
    stand.run()
    assert host.find(PUBLIC, settlement.prompt.chains) == []
    assert stand.engine.streams[0].tokens == settlement.prompt.tokens


def test_a_withdrawal_that_cannot_delete_says_so() -> None:
    host = MemoryPageTier(HandClock(), 2**20)
    stand = Stand(Tiers(host))
    host.close()
    posted: list[Event] = []
    stand.engine.submit(Withdrawal(posted.append))
    stand.run()
    assert [type(event) for event in posted] == [StoreFault]
