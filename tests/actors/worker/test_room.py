"""The worker room as a room: its sealed messages, its counts, draining and erasing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from actors.worker.drivers import LoopDriver
from actors.worker.room import WorkerRoom
from protocol.caveats import DomainCaveat
from protocol.envelope import open_reply, seal
from protocol.errors import (
    BudgetExceeded,
    CapabilityError,
    NotVisible,
    Unavailable,
    WorkerFault,
)
from protocol.messages import Empty
from protocol.messages.erasure import Erase
from protocol.messages.worker import AskReceipt, Item, Stats
from protocol.record import decode_record, encode_record
from protocol.resource import Resource, ResourceKind, Right
from tests.chains import ANCHORS, NOW, PRINCIPAL, nonce, turn_chain
from tests.fake_backend import FakeBackend
from tests.worker_rooms import (
    CHUNK,
    SECOND,
    HandClock,
    Result,
    Talk,
    asked,
    call_from,
    opened,
    segment,
    text_ids,
    until,
)
from tests.worker_talks import expected, some_talk


async def test_info_and_stats() -> None:
    async with opened() as bench:
        info = await bench.room.on_info(call_from(), Empty())
        assert info.context_tokens == bench.backend.context_tokens
        first = await bench.answer(some_talk().segments)
        await bench.answer(some_talk().segments, response="r2")
        await bench.quiet()
        stats: Stats = await bench.room.on_stats(call_from(), Empty())
        assert (stats.streams, stats.streams_busy, stats.waiting) == (4, 0, 0)
        assert stats.resident_tokens == first.receipt.prompt_tokens
        memory = bench.backend.memory
        assert sum(stats.stream_kv_bytes) == stats.resident_tokens * memory.kv_token
        assert sorted(stats.stream_kv_bytes)[:3] == [0, 0, 0]
        assert (stats.kv_bytes, stats.device_bytes) == (memory.kv, memory.device)
        assert stats.prefilled_tokens + stats.reused_tokens == 2 * first.receipt.prompt_tokens
        assert stats.decoded_tokens == 2 * len(first.ids)


async def test_through_sealed_messages_the_domain_is_the_chains() -> None:
    clock = HandClock(now_ns=NOW)
    async with opened(clock=clock, driver=LoopDriver()) as bench:
        room = bench.room
        assert room.world.anchors == ANCHORS

        def message(op: str, record: Any, number: int, *caveats: DomainCaveat) -> bytes:
            return seal(
                turn_chain("worker", *caveats),
                PRINCIPAL,
                room="worker",
                op=op,
                body=encode_record(record),
                ts_ns=clock.now_ns,
                nonce=nonce(number),
                request_id="q",
            )

        request = message("generate", asked(some_talk().segments), 1)
        items = [decode_record(Item, open_reply(reply)) async for reply in room.stream(request)]
        assert Result(items).ids == expected(some_talk()).ids
        await room.receive(message("receipt", AskReceipt(response="r1"), 2))
        kept = await bench.receipt()
        assert structs.replace(kept, state_digest=None) == items[-1].receipt
        too_long = asked([segment("user", (2,), text_ids("x" * 600))], response="r3")
        replies = [reply async for reply in room.stream(message("generate", too_long, 3))]
        with pytest.raises(BudgetExceeded):
            open_reply(replies[0])


async def test_drain_gives_running_answers_a_moment_and_ends_the_rest() -> None:
    async with opened(drain_ns=SECOND // 20) as bench:
        room: WorkerRoom = bench.room
        slow = FakeBackend.decode

        def dawdle(items: Any) -> Any:
            import time

            time.sleep(0.002)
            return slow(bench.backend, items)

        bench.backend.decode = dawdle
        running = asyncio.ensure_future(
            bench.answer(some_talk(1).segments, response="long", tokens_max=400)
        )
        await until(lambda: room._engine.running > 0, pause_s=0.001)
        await room.drain()
        with pytest.raises(Unavailable, match="stopped before"):
            await running
        with pytest.raises(Unavailable, match="stopping"):
            await bench.answer(some_talk().segments, response="late")
        with pytest.raises(WorkerFault, match="closed"):
            bench.backend.truncate(0, 0)
        await room.drain()


async def test_drain_lets_an_answer_end_in_time() -> None:
    async with opened(drain_ns=20 * SECOND) as bench:
        running = asyncio.ensure_future(bench.answer(some_talk(1).segments, tokens_max=30))
        await until(lambda: bench.room._engine.running > 0 or running.done(), pause_s=0.001)
        await bench.room.drain()
        assert (await running).ids == expected(some_talk(1), tokens_max=30).ids


@pytest.mark.req("AUT-4", "AUT-8")
async def test_what_runs_for_an_erased_domain_ends_and_nothing_of_it_is_left() -> None:
    async with opened(FakeBackend(chunk_tokens=CHUNK, streams=2)) as bench:
        talk = Talk().add("user", text_ids("a question that is long enough"))
        for domain in ("alice", "bob"):
            await bench.answer(talk.segments, domain=domain)
            await bench.receipt(domain=domain)
        running = bench.room.on_generate(
            call_from("alice"), asked(talk.segments, response="r2", tokens_max=900)
        )
        items = [await anext(running)]
        counts = await bench.room.erase(
            Erase(domains=["alice"], namespaces=[], spared=[], principals=[], names=[])
        )
        items += [item async for item in running]
        assert items[-1].finish == "cancelled"
        assert counts["receipts"] >= 1
        assert [stream.domain for stream in bench.room._engine.streams].count("alice") == 0
        # Not even the receipt of what was ended.
        for name in ("r1", "r2"):
            with pytest.raises(NotVisible):
                await bench.room.on_receipt(call_from("alice"), AskReceipt(response=name))
        again = await bench.answer(talk.segments, domain="alice", response="r3")
        assert again.receipt.reused_tokens == 0
        warm = await bench.answer(talk.segments, domain="bob", response="r3")
        assert warm.receipt.reused_tokens > 0


@pytest.mark.req("AUT-5", "AUT-9")
async def test_who_operates_a_part_is_told_nothing_of_everybody() -> None:
    """Also not under a handle that a room signs for whoever shows it."""
    async with opened() as bench:
        whole = call_from(None, rights=[Right.OPERATE])
        key = bench.room.world.room_to_key["worker"]
        part = Resource(kind=ResourceKind.NAMESPACE, name="alice")
        room = bench.room
        for audience in (whole.handle.audience, key):
            call = replace(whole, handle=replace(whole.handle, resource=part, audience=audience))
            for ask in (room.on_charges, room.on_use, room.on_stats):
                with pytest.raises(CapabilityError, match="does not hold 'operate' on 'service"):
                    await ask(call, Empty())
        # The controls: one who operates the room, and a room itself.
        service = Resource(kind=ResourceKind.SERVICE, name="worker")
        for changes in ({"resource": service}, {"resource": part, "principal": key}):
            call = replace(whole, handle=replace(whole.handle, **changes))
            assert (await room.on_charges(call, Empty())).rows == []
