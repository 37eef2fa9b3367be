"""Who is told what of an answer: nobody of another domain anything, and no timing without
`telemetry`."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from actors.worker.drivers import LoopDriver
from protocol.errors import NotVisible
from protocol.messages.worker import AskReceipt
from protocol.record import encode_record
from protocol.resource import Right
from tests.worker_rooms import RIGHTS, SECOND, asked, call_from, opened
from tests.worker_talks import prompt_ids, some_talk


@pytest.mark.req("KV-8")
async def test_without_telemetry_a_warm_answer_looks_like_a_cold_one() -> None:
    talk = some_talk(4)
    options: dict[str, Any] = {
        "rights": RIGHTS - {Right.TELEMETRY},
        "sampler": structs.replace(asked([]).sampler, seed=1),
    }
    async with opened() as bench:
        cold = await bench.answer(talk.segments, **options)
        bench.clock.now_ns += 7 * SECOND
        warm = await bench.answer(talk.segments, **options)
        assert [encode_record(i) for i in cold.items] == [encode_record(i) for i in warm.items]
        assert all(item.kind != "prefill" for item in cold.items)
        assert cold.receipt.prefilled_tokens == cold.receipt.prompt_tokens
        assert (await bench.receipt()).reused_tokens > 0


@pytest.mark.req("KV-8")
async def test_a_receipt_is_read_in_its_own_domain_only() -> None:
    async with opened() as bench:
        found = await bench.answer(some_talk().segments)
        kept = await bench.receipt()
        assert structs.replace(kept, state_digest=None) == found.receipt
        ask = AskReceipt(response="r1")
        other = AskReceipt(response="never")
        with pytest.raises(NotVisible) as hidden:
            await bench.room.on_receipt(call_from("bob"), ask)
        with pytest.raises(NotVisible) as unknown:
            await bench.room.on_receipt(call_from("bob"), other)
        assert str(hidden.value).replace("r1", "never") == str(unknown.value)


async def test_another_domain_finds_nothing_warm() -> None:
    async with opened() as bench:
        first = await bench.answer(some_talk().segments, response="r1")
        second = await bench.answer(some_talk().segments, response="r1", domain="bob")
        assert second.receipt.reused_tokens == 0
        assert second.ids == first.ids


async def test_progress_is_told_before_the_first_token() -> None:
    async with opened(driver=LoopDriver()) as bench:
        talk = some_talk(3)
        items = []
        async for item in bench.room.on_generate(call_from(), asked(talk.segments)):
            items.append(item)
        kinds = [item.kind for item in items]
        assert kinds[0] == "prefill"
        assert kinds == sorted(kinds, key=["prefill", "delta", "end"].index)
        done = [item.done for item in items if item.kind == "prefill"]
        assert done == sorted(done)  # type: ignore[type-var]
        assert {item.total for item in items if item.kind == "prefill"} == {len(prompt_ids(talk))}


async def test_logprobs_come_with_each_token() -> None:
    async with opened() as bench:
        found = await bench.answer(some_talk().segments, logprobs_top=2)
        listed = [entry for item in found.items for entry in item.logprobs or []]
        assert tuple(entry.token for entry in listed) == found.ids
        for entry in listed:
            assert len(entry.top) == 2
            # Greedy: what was chosen is the likeliest.
            assert entry.top[0].token == entry.token
            assert entry.top[0].logprob_ppm == entry.logprob_ppm < 0
        assert b"".join(entry.piece for entry in listed).decode("utf-8", "replace") == found.text
