"""Evicted, restored, restarted, spoiled, out of room: the same states and answers as computed anew.

Random plans run on the strict fake over a real page directory. The oracle is a back end that never
saw anything but the prompt.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.messages.worker import Receipt
from protocol.tokens import TokenIds
from tests.kept_states import Keeper, expected
from tests.page_samples import MODEL_FULL_BYTES, MODEL_SLIDING_BYTES, files_below
from tests.worker_rooms import OPENER, Bench, Talk, text_ids
from tests.worker_talks import next_talk, prompt_ids, shared

MODEL_TOKEN_BYTES = MODEL_FULL_BYTES + MODEL_SLIDING_BYTES
KINDS = ["append"] * 4 + ["branch", "edit", "again", "bob", "evict", "evict", "restart", "spoil"]
steps = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 99),
        st.text("abc", max_size=60).map(text_ids),
        st.booleans(),
    ),
    min_size=2,
    max_size=14,
)


class Follower:
    """Follows a plan with one worker after the other, and checks every turn."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.talk = Talk()
        self.asked = 0
        self.past: dict[str, list[TokenIds]] = {}

    async def turn(self, bench: Bench, talk: Talk, domain: str, *, settle: bool) -> Talk:
        """One prompt, checked; the conversation with its answer."""
        self.asked += 1
        name, fed = f"r{self.asked}", len(bench.backend.fed)
        found = await bench.answer(talk.segments, response=name, domain=domain)
        calls = bench.backend.fed[fed:]
        receipt = await bench.receipt(name, domain=domain)
        wanted, ids = expected(talk), prompt_ids(talk)
        assert found.ids == wanted.ids
        assert receipt.state_digest == wanted.digest
        given = [i for kind, _, run in calls if kind == "advance" for i in run]
        assert tuple(given) == ids[receipt.reused_tokens :], "what was restored is not fed"
        assert sum(receipt.tiers.values()) == receipt.reused_tokens
        assert receipt.reused_tokens + receipt.prefilled_tokens == receipt.prompt_tokens
        known = self.past.setdefault(domain, [])
        assert receipt.reused_tokens <= max((shared(ids, past) for past in known), default=0)
        answered = talk.add("model", found.ids)
        known.append(prompt_ids(answered))
        if settle:
            await bench.settle(answered.segments, domain=domain)
        return answered

    async def follow(self, plan: list[Any], streams: int) -> None:
        rest = list(plan)
        while rest:
            async with self.keeper.worker(streams) as bench:
                while rest:
                    kind, where, content, flag = rest.pop(0)
                    if flag:
                        self.keeper.writer.flush()
                    if kind == "restart":
                        break
                    await self._step(bench, kind, where, content, settle=flag)
                    assert self.keeper.host.stats().bytes <= self.keeper.host_bytes
                    assert self.keeper.disk.stats().bytes <= self.keeper.disk_bytes

    async def _step(
        self, bench: Bench, kind: str, where: int, content: TokenIds, *, settle: bool
    ) -> None:
        if kind == "spoil":
            self.keeper.spoil(Random(where))
        elif kind == "evict":
            for number in range(bench.backend.streams):
                other = Talk().add("user", text_ids(f"{where} {number} ") + content)
                await self.turn(bench, other, "carol", settle=settle)
        else:
            domain = "bob" if kind == "bob" else "alice"
            talk = next_talk(self.talk, kind, where, content, tokens_max=600)
            answered = await self.turn(bench, talk, domain, settle=settle)
            if domain == "alice":
                self.talk = answered


@pytest.mark.req("KV-2", "KV-3", "KV-4", "KV-5", "KV-6", "KV-7", "KV-10", "AUT-5")
@settings(max_examples=40)
@example(
    # Restored, then cut below what was restored.
    plan=[
        *[("append", 0, text_ids("abc" * 30), True)] * 4,
        ("evict", 0, text_ids("a"), False),
        ("append", 0, text_ids("b"), False),
        ("branch", 4, text_ids("c"), False),
    ],
    streams=1,
    host_bytes=0,
    disk_bytes=2**30,
)
@given(
    plan=steps,
    streams=st.integers(1, 3),
    host_bytes=st.sampled_from([0, 6_000, 2**30]),
    disk_bytes=st.sampled_from([20_000, 2**30]),
)
def test_every_answer_is_that_of_a_fresh_back_end(
    plan: list[Any], streams: int, host_bytes: int, disk_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        keeper = Keeper(Path(root) / "pages", host_bytes=host_bytes, disk_bytes=disk_bytes)
        asyncio.run(Follower(keeper).follow(plan, streams))


def some_talk(*, turns: int = 4, name: str = "") -> Talk:
    talk = Talk()
    for turn in range(turns):
        talk = talk.add("user", text_ids(f"{name} question {turn} " + "x" * 30))
        talk = talk.add("model", text_ids(f"answer {turn}"))
    return talk.add("user", text_ids("and now?"))


async def told(bench: Bench, talk: Talk, name: str, *, domain: str = "alice") -> Receipt:
    """The receipt of a turn that came out right."""
    found = await bench.answer(talk.segments, response=name, domain=domain)
    receipt = await bench.receipt(name, domain=domain)
    assert (found.ids, receipt.state_digest) == expected(talk)
    return receipt


@pytest.mark.req("KV-4", "KV-5", "KV-8")
async def test_an_evicted_conversation_comes_back_from_host_memory(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "pages")
    async with keeper.worker(streams=1) as bench:
        first = await told(bench, some_talk(name="a"), "1")
        assert first.reused_tokens == first.pages_verified == 0
        await told(bench, some_talk(name="b"), "2")
        back = await told(bench, some_talk(name="a"), "3")
    assert back.tiers == {"device": 0, "host": back.reused_tokens, "disk": 0}
    assert back.prefilled_tokens == len(text_ids("and now?")) + 2 * len(OPENER)
    assert back.pages_verified > 0
    assert back.pages_refused == []


@pytest.mark.req("KV-5")
async def test_a_branch_leaves_the_conversation_that_it_left_resident(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "pages")
    whole = some_talk(turns=8)
    branch = Talk(whole.segments[:8]).add("user", text_ids("otherwise"))
    async with keeper.worker(streams=2, gain_tokens_min=64, tail_tokens_min=64) as bench:
        await told(bench, whole, "1")
        away = await told(bench, branch, "2")
        back = await told(bench, whole, "3")
        again = await told(bench, branch, "4")
    assert away.tiers["host"] == away.reused_tokens > 100
    assert back.tiers["device"] == back.reused_tokens >= 2 * away.reused_tokens
    assert again.tiers["device"] == again.reused_tokens == away.reused_tokens


@pytest.mark.req("KV-5")
async def test_conversations_that_share_a_beginning_feed_it_once(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "pages")
    system = Talk().add("user", text_ids("s" * 200))
    async with keeper.worker(streams=4, gain_tokens_min=64, tail_tokens_min=64) as bench:
        for number in range(8):
            talk = system.add("user", text_ids(f"question {number}"))
            receipt = await told(bench, talk, f"r{number}")
            assert (receipt.reused_tokens > 190) == (number > 0)


@pytest.mark.req("KV-6", "KV-8")
async def test_after_a_restart_the_prefix_comes_from_disk(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "pages")
    talk = some_talk()
    async with keeper.worker() as bench:
        await told(bench, talk, "1")
        keeper.writer.flush()
    unfinished = next((tmp_path / "pages").glob("*/")) / "left.unfinished"
    unfinished.write_bytes(b"half a page")
    async with keeper.worker() as bench:
        back = await told(bench, talk, "2")
        assert back.tiers == {"device": 0, "host": 0, "disk": back.reused_tokens}
        assert back.prefilled_tokens < 20
        # What is fed now is in memory, what is before it on disk: together they are one prefix.
        longer = talk.add("model", text_ids("no")).add("user", text_ids("really? " * 4))
        await told(bench, longer, "3")
        for number in range(4):
            await told(bench, some_talk(name=f"{number}"), f"x{number}")
        mixed = await told(bench, longer, "4")
        assert mixed.tiers["host"] > 0
        assert mixed.tiers["disk"] == back.reused_tokens
    assert not unfinished.exists()


@pytest.mark.req("KV-3", "KV-8")
@pytest.mark.parametrize("place", [0, 3, -1])
async def test_a_bad_page_costs_what_is_behind_it(tmp_path: Path, place: int) -> None:
    keeper = Keeper(tmp_path / "pages")
    talk = some_talk()
    async with keeper.worker() as bench:
        await told(bench, talk, "1")
        keeper.writer.flush()
        chains = [boundary.chain for boundary in bench.room._engine.streams[0].boundaries[:-1]]
    async with keeper.worker() as bench:
        bad = keeper.disk.find("alice", chains)[place]
        path = next((tmp_path / "pages").glob(f"*/{bad.page.chain}"))
        body = bytearray(path.read_bytes())
        body[-1 - bad.sliding_bytes - 60] ^= 4
        path.unlink()
        path.write_bytes(body)
        back = await told(bench, talk, "2")
        assert back.pages_refused == ["seal"]
        assert back.reused_tokens == back.tiers["disk"] == bad.page.start
        assert bench.room._tiers is not None
        assert bench.room._tiers.stats()["disk"]["refused"] == 1
        # It was fed anew, and is kept again.
        keeper.writer.flush()
    async with keeper.worker() as bench:
        assert (await told(bench, talk, "3")).pages_refused == []


@pytest.mark.req("KV-3", "KV-4")
async def test_a_full_disk_is_waited_for_by_nobody_and_leaves_no_hole(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "pages", disk_bytes=0)
    talk = some_talk()
    async with keeper.worker() as bench:
        await told(bench, talk, "1")
        keeper.writer.flush()
        assert keeper.writer.dropped > 0
    async with keeper.worker() as bench:
        cold = await told(bench, talk, "2")
        assert cold.reused_tokens == cold.pages_verified == 0
        # With room again, the next page takes those that are missing before it along.
        keeper.writer.flush()
        keeper.disk._catalog.budget_bytes = keeper.disk._catalog.domain_budget_bytes = 2**30
        await told(bench, talk.add("model", text_ids("no")).add("user", text_ids("so?")), "3")
        keeper.writer.flush()
    keeper.disk_bytes = 2**30
    async with keeper.worker() as bench:
        assert (await told(bench, talk, "4")).tiers["disk"] > 100


@pytest.mark.req("AUT-5", "AUT-9")
async def test_two_domains_share_no_page(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "pages")
    talk = some_talk()
    async with keeper.worker() as bench:
        await told(bench, talk, "1", domain="alice")
        cold = await told(bench, talk, "2", domain="bob")
        assert cold.reused_tokens == 0
        keeper.writer.flush()
    async with keeper.worker() as bench:
        for domain, tokens in (("carol", 0), ("alice", cold.prompt_tokens - 14)):
            found = await told(bench, talk, domain, domain=domain)
            assert found.tiers["disk"] == tokens
        # Nothing is marked public, so nothing is kept for all.
        keeper.writer.flush()
        assert len(list((tmp_path / "pages").glob("*/"))) == 3, "alice's, bob's and carol's"


@pytest.mark.req("KV-3")
async def test_a_turn_writes_its_new_pages_and_nothing_else(tmp_path: Path) -> None:
    """40 turns. The rows of a fake token are small; what a file has beside its rows is the same for
    the default model's, so the ratio is that of a model with its 18,432 bytes a token."""
    keeper = Keeper(tmp_path / "pages")
    talk = Talk()
    async with keeper.worker() as bench:
        for turn in range(40):
            before = keeper.disk.stats()
            talk = talk.add("user", text_ids(f"question {turn}"))
            receipt = await told(bench, talk, f"r{turn}")
            keeper.writer.flush()
            stats = keeper.disk.stats()
            assert stats.written - before.written == receipt.advances
            rows = 128 * receipt.prefilled_tokens
            beside = stats.written_bytes - before.written_bytes - rows
            assert stats.bytes - before.bytes == rows + beside
            real = MODEL_TOKEN_BYTES * receipt.prefilled_tokens
            assert real + beside <= 1.05 * real
            talk = talk.add("model", text_ids(f"no {turn}"))
        size = sum(path.stat().st_size for path in files_below(tmp_path / "pages"))
        assert size == keeper.disk.stats().bytes == keeper.disk.stats().written_bytes
