"""The same prompt gives the same state and the same answer, whatever was fed before it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from actors.worker.drivers import LoopDriver
from protocol.tokens import pack
from tests.fake_backend import FakeBackend
from tests.worker_rooms import CHUNK, OPENER, Result, Talk, asked, opened, text_ids
from tests.worker_talks import check_no_residue, expected, next_talk, some_talk

contents = st.text("abc", max_size=40).map(text_ids)
steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "branch", "edit", "other domain", "again"]),
        st.integers(0, 99),
        contents,
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.req("KV-2", "KV-5", "KV-7", "KV-10")
@settings(max_examples=60)
@given(plan=steps, streams=st.integers(1, 3))
def test_every_answer_is_that_of_a_fresh_back_end(plan: list[Any], streams: int) -> None:
    asyncio.run(_follow(plan, streams))


async def _follow(plan: list[Any], streams: int) -> None:
    """Append, branch, edit in the middle, repeat, and let another domain do the same; after each
    turn the answer and the state digest are those of a back end that never saw anything else."""
    backend = FakeBackend(streams=streams, chunk_tokens=CHUNK, window_tokens=24)
    async with opened(backend, driver=LoopDriver()) as bench:
        talk = Talk()
        for number, (kind, where, content, settle) in enumerate(plan):
            talk = next_talk(talk, kind, where, content, tokens_max=300)
            domain = "bob" if kind == "other domain" else "alice"
            name = f"r{number}"
            found = await bench.answer(talk.segments, response=name, domain=domain)
            wanted = expected(talk)
            assert found.ids == wanted.ids
            receipt = await bench.receipt(name, domain=domain)
            assert receipt.state_digest == wanted.digest
            _check_sums(receipt, found)
            answered = talk.add("model", found.ids)
            if settle:
                await bench.settle(answered.segments, domain=domain)
            if domain == "alice":
                talk = answered


def _check_sums(receipt: Any, found: Result) -> None:
    opener = len(OPENER)
    assert receipt.reused_tokens + receipt.prefilled_tokens == receipt.prompt_tokens
    assert sum(block.tokens for block in receipt.blocks) + opener == receipt.prompt_tokens
    assert sum(block.reused for block in receipt.blocks) <= receipt.reused_tokens
    assert sum(block.reused for block in receipt.blocks) >= receipt.reused_tokens - opener
    assert sum(receipt.tiers.values()) == receipt.reused_tokens
    assert receipt.completion_tokens == len(found.ids)
    assert receipt.finish == found.finish


@pytest.mark.req("KV-5", "KV-8", "KV-10")
async def test_a_settled_turn_is_reused_whole() -> None:
    async with opened() as bench:
        talk = some_talk(1)
        first = await bench.answer(talk.segments, response="r1")
        assert first.receipt.reused_tokens == 0
        answered = talk.add("model", first.ids)
        await bench.settle(answered.segments)
        following = answered.add("user", text_ids("go on"))
        second = await bench.answer(following.segments, response="r2")
        receipt = second.receipt
        assert receipt.reused_tokens == first.receipt.prompt_tokens + len(first.ids)
        # Every block but the new one was found, and the new one not at all.
        assert [b.reused for b in receipt.blocks] == [
            *(b.tokens for b in receipt.blocks[:-1]),
            0,
        ]
        assert receipt.advances == 1
        assert second.ids == expected(following).ids


@pytest.mark.req("KV-5")
async def test_a_middle_edit_keeps_everything_before_it() -> None:
    async with opened() as bench:
        talk = some_talk(3)
        await bench.answer(talk.segments, response="r1")
        edited = structs.replace(talk.segments[4], content=pack(text_ids("edited")))
        other = Talk([*talk.segments[:4], edited, *talk.segments[5:]])
        found = await bench.answer(other.segments, response="r2")
        before = sum(block.tokens for block in found.receipt.blocks[:4])
        assert found.receipt.reused_tokens == before
        assert found.ids == expected(other).ids


async def test_a_prompt_that_is_all_there_feeds_its_last_advance_again() -> None:
    async with opened() as bench:
        talk = some_talk(1)
        first = await bench.answer(talk.segments, response="r1")
        second = await bench.answer(talk.segments, response="r2")
        assert second.ids == first.ids
        assert second.receipt.advances == 1
        assert 0 < second.receipt.prefilled_tokens <= CHUNK


@pytest.mark.req("KV-9")
async def test_a_seed_gives_the_same_answer_cold_warm_and_beside_others() -> None:
    sampler = structs.replace(
        asked([]).sampler, temperature_ppm=900_000, top_p_ppm=950_000, seed=-5
    )
    talk = some_talk(2)
    async with opened() as bench:
        cold = await bench.answer(talk.segments, response="r1", sampler=sampler, tokens_max=30)
        warm = await bench.answer(talk.segments, response="r2", sampler=sampler, tokens_max=30)
        others = [
            bench.answer(some_talk(1, size=n).segments, response=f"o{n}", tokens_max=60)
            for n in range(5)
        ]
        beside = bench.answer(talk.segments, response="r3", sampler=sampler, tokens_max=30)
        *_, last = await asyncio.gather(*others, beside)
        assert cold.ids == warm.ids == last.ids
        assert cold.receipt.seed == -5
        assert cold.receipt.reproducible
        drawn = await bench.answer(
            talk.segments, response="r4", sampler=structs.replace(sampler, seed=None)
        )
        again = await bench.answer(
            talk.segments,
            response="r5",
            sampler=structs.replace(sampler, seed=drawn.receipt.seed),
        )
        assert drawn.ids == again.ids
        assert drawn.receipt.seed >= 0


async def test_a_profile_without_the_promise_says_so() -> None:
    async with opened(reproducible=False) as bench:
        assert not (await bench.answer(some_talk().segments)).receipt.reproducible


@pytest.mark.req("KV-2", "KV-12")
async def test_eight_jobs_share_four_streams_and_each_gets_its_own_answer() -> None:
    async with opened() as bench:
        talks = [some_talk(1 + n % 3, size=5 * n) for n in range(8)]
        found = await asyncio.gather(
            *(bench.answer(t.segments, response=f"r{n}") for n, t in enumerate(talks))
        )
        for number, (talk, result) in enumerate(zip(talks, found, strict=True)):
            wanted = expected(talk)
            assert result.ids == wanted.ids
            assert (await bench.receipt(f"r{number}")).state_digest == wanted.digest
        await bench.quiet()
        check_no_residue(bench)
