"""Settling a turn: behind every answer, and at nobody's cost."""

from __future__ import annotations

import asyncio

import pytest

from actors.worker.drivers import LoopDriver
from protocol.errors import Unavailable
from tests.fake_backend import FakeBackend
from tests.worker_rooms import CHUNK, SECOND, Talk, asked, call_from, opened, text_ids, until
from tests.worker_talks import expected, some_talk


@pytest.mark.req("KV-10")
async def test_a_turn_that_comes_during_a_settlement_waits_for_one_chunk() -> None:
    async with opened(driver=LoopDriver()) as bench:
        talk = some_talk(1)
        first = await bench.answer(talk.segments, tokens_max=1)
        answered = talk.add("model", text_ids("y" * 8 * CHUNK))
        before = len(bench.backend.fed)
        settling = asyncio.ensure_future(bench.settle(answered.segments))
        await until(lambda: len(bench.backend.fed) >= before + 3)
        at = len(bench.backend.fed)
        following = answered.add("user", text_ids("go on"))
        found = await bench.answer(following.segments, response="r2")
        # It went on from what the settlement had advanced, on the same stream.
        assert found.receipt.reused_tokens >= first.receipt.prompt_tokens + 2 * CHUNK
        assert len({stream for _, stream, _ in bench.backend.fed[at:]}) == 1
        assert found.ids == expected(following).ids
        await settling
        # The turn did the settlement's work; nothing was fed for it afterwards.
        fed = [ids for kind, _, ids in bench.backend.fed if kind == "advance"]
        assert fed.count(text_ids("y" * CHUNK)) == 8


@pytest.mark.req("KV-10")
async def test_a_settlement_runs_only_when_nothing_else_does() -> None:
    async with opened(driver=LoopDriver()) as bench:
        stream = bench.room.on_generate(call_from(), asked(some_talk(1).segments, tokens_max=200))
        while (await anext(stream)).kind != "delta":
            pass
        other = Talk().add("user", text_ids("z" * CHUNK))
        settling = asyncio.ensure_future(bench.settle(other.segments))
        await asyncio.sleep(0)
        at = len(bench.backend.fed)
        rest = [item async for item in stream]
        assert rest[-1].kind == "end"
        during = bench.backend.fed[at:]
        last_decode = max(i for i, fed in enumerate(during) if fed[0] == "decode")
        assert all(fed[0] == "decode" for fed in during[: last_decode + 1])
        await settling
        assert any(fed[0] == "advance" for fed in bench.backend.fed[at:])


async def test_a_settlement_takes_nothing_from_anybody() -> None:
    async with opened(FakeBackend(streams=1, chunk_tokens=CHUNK)) as bench:
        await bench.answer(some_talk(2).segments)
        resident = bench.room._engine.streams.resident_tokens
        await bench.settle(Talk().add("user", text_ids("other")).segments)
        await bench.settle(Talk().add("user", text_ids("other")).segments, domain="bob")
        assert bench.room._engine.streams.resident_tokens == resident


async def test_a_settlement_that_finds_no_quiet_moment_is_let_go() -> None:
    async with opened(driver=LoopDriver(), settle_ns_max=SECOND, settles_max=1) as bench:
        stream = bench.room.on_generate(call_from(), asked(some_talk(1).segments, tokens_max=300))
        while (await anext(stream)).kind != "delta":
            pass
        settling = asyncio.ensure_future(bench.settle(some_talk(2).segments))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="1 settlements wait"):
            await bench.settle(some_talk(2).segments)
        bench.clock.now_ns += SECOND
        await settling
        assert [item async for item in stream][-1].kind == "end"
