"""Answers that are cancelled, run out of time or fail: they end alone, and what stays is right."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.worker.drivers import LoopDriver
from protocol.errors import WorkerFault
from protocol.messages import Empty
from protocol.messages.worker import Cancel
from tests.worker_rooms import SECOND, Result, asked, call_from, opened, until
from tests.worker_talks import check_no_residue, expected, prompt_ids, some_talk


async def test_a_consumer_that_goes_away_stops_decode_within_a_token() -> None:
    async with opened(driver=LoopDriver()) as bench:
        stream = bench.room.on_generate(call_from(), asked(some_talk().segments, tokens_max=400))
        deltas = 0
        async for item in stream:
            deltas += item.kind == "delta"
            if deltas == 3:
                break
        await stream.aclose()
        decoded = sum(kind == "decode" for kind, _, _ in bench.backend.fed)
        await bench.quiet()
        after = sum(kind == "decode" for kind, _, _ in bench.backend.fed)
        assert after <= decoded + 1
        check_no_residue(bench)
        # What was computed of the prompt stays, and is right.
        found = await bench.answer(some_talk().segments, response="r2")
        assert found.receipt.reused_tokens > 0
        assert found.ids == expected(some_talk()).ids


async def test_a_cancel_in_prefill_stops_between_chunks_and_leaves_a_right_prefix() -> None:
    async with opened(driver=LoopDriver()) as bench:
        talk = some_talk(6)
        stream = bench.room.on_generate(call_from(), asked(talk.segments))
        while (await anext(stream)).done < 60:  # type: ignore[operator]
            pass
        await bench.room.on_cancel(call_from(), Cancel(response="r1"))
        rest = [item async for item in stream]
        assert (rest[-1].kind, rest[-1].finish, rest[-1].receipt) == ("end", "cancelled", None)
        fed = sum(len(ids) for kind, _, ids in bench.backend.fed if kind == "advance")  # type: ignore[arg-type]
        assert fed < len(prompt_ids(talk))
        found = await bench.answer(talk.segments, response="r2")
        assert found.receipt.reused_tokens == fed
        assert found.ids == expected(talk).ids


async def test_only_the_owner_can_cancel() -> None:
    async with opened(driver=LoopDriver()) as bench:
        stream = bench.room.on_generate(call_from(), asked(some_talk().segments))
        await anext(stream)
        await bench.room.on_cancel(call_from("bob"), Cancel(response="r1"))
        await bench.room.on_cancel(call_from(principal=b"q" * 32), Cancel(response="r1"))
        assert [item async for item in stream][-1].finish in ("stop", "length")


async def test_a_cancel_that_overtakes_its_job_is_remembered_for_sixty_seconds() -> None:
    async with opened() as bench:
        await bench.room.on_cancel(call_from(), Cancel(response="r1"))
        bench.clock.now_ns += 60 * SECOND - 1
        found = await bench.answer(some_talk().segments)
        assert (found.finish, found.items[-1].receipt, found.ids) == ("cancelled", None, ())
        # Told once: the name is free again.
        assert (await bench.answer(some_talk().segments)).finish != "cancelled"
        await bench.room.on_cancel(call_from(), Cancel(response="r2"))
        bench.clock.now_ns += 60 * SECOND
        assert (await bench.answer(some_talk().segments, response="r2")).finish != "cancelled"


async def test_a_job_out_of_time_ends_with_what_it_has() -> None:
    async with opened(driver=LoopDriver()) as bench:
        stream = bench.room.on_generate(
            call_from(), asked(some_talk().segments, tokens_max=400, time_ns_max=SECOND)
        )
        items = []
        async for item in stream:
            items.append(item)
            if item.kind == "delta":
                bench.clock.now_ns += SECOND // 4
        assert items[-1].finish == "time"
        assert 1 <= items[-1].receipt.completion_tokens <= 8
        assert items[-1].receipt.total_ns >= SECOND
        check_no_residue(bench)


@pytest.mark.parametrize("kind", ["keep", "clear"])
async def test_a_failing_job_fails_alone(kind: Any) -> None:
    async with opened(driver=LoopDriver()) as bench:
        talks = [some_talk(1, size=n) for n in range(4)]
        jobs = [
            asyncio.ensure_future(bench.answer(t.segments, response=f"r{n}", tokens_max=40))
            for n, t in enumerate(talks)
        ]
        await until(lambda: len(bench.room._engine._decoding) == 4)
        bench.backend.fault = kind
        found = await asyncio.gather(*jobs, return_exceptions=True)
        failed = [result for result in found if isinstance(result, BaseException)]
        # A fault that leaves its streams as they were is retried one by one, and nobody fails.
        assert len(failed) == (0 if kind == "keep" else 1)
        assert all(isinstance(error, WorkerFault) for error in failed)
        for talk, result in zip(talks, found, strict=True):
            if isinstance(result, Result):
                assert result.ids == expected(talk, tokens_max=40).ids
        check_no_residue(bench)
        for number, talk in enumerate(talks):
            again = await bench.answer(talk.segments, response=f"again{number}")
            assert again.ids == expected(talk).ids


async def test_a_fault_in_prefill_is_an_error_and_the_next_request_is_right() -> None:
    async with opened() as bench:
        bench.backend.fault = "clear"
        with pytest.raises(WorkerFault, match="asked for"):
            await bench.answer(some_talk().segments)
        found = await bench.answer(some_talk().segments, response="r2")
        assert found.ids == expected(some_talk()).ids
        stats = await bench.room.on_stats(call_from(), Empty())
        assert stats.jobs_failed == 1
