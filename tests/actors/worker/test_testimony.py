"""What the worker says of its answers: where it promises that they would come again, and only of
those that ended."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from msgspec import structs

from protocol.derivation import DerivationEvidence, open_evidence
from protocol.families import GENERATE_FAMILY, generating
from protocol.generation import sampler_of
from protocol.ids import ContextId, ContractId, TokensId
from protocol.messages.muninn import Execution
from protocol.messages.worker import GREEDY, Settle
from protocol.record import encode_record, object_id
from protocol.tokens import pack
from tests.worker_rooms import (
    OPENER,
    PROFILE,
    Bench,
    Listener,
    Talk,
    call_from,
    opened,
    text_ids,
    until,
)

TALK = Talk().add("user", text_ids("Who flies out at dawn and comes back?"))
WARM = structs.replace(GREEDY, temperature_ppm=1_000_000, seed=5)
GENERATE = ContractId.of(encode_record(GENERATE_FAMILY.takes))


def generations(listener: Listener) -> list[tuple[Execution, DerivationEvidence]]:
    return [
        (each, open_evidence(each.evidence or b""))
        for each in listener.heard
        if each.invocation.transform_contract == GENERATE
    ]


def state(bench: Bench) -> Any:
    return bench.room._reader.read(TALK.segments, pack(OPENER), answer_tokens=1).chains[-1]


@pytest.mark.req("DRV-7", "KV-9")
async def test_an_answer_is_reported_with_what_it_depends_on() -> None:
    listener, context = Listener(), ContextId.of(b"context")
    async with opened(mailbox=listener, reproducible=True) as bench:
        greedy = await bench.answer(TALK.segments, context=context, stops=["z"])
        warm = await bench.answer(TALK.segments, response="r2", sampler=WARM)
        # Once more, under another name and, where it is drawn for nothing, another seed.
        await bench.answer(TALK.segments, response="r3", context=context, stops=["z"])
        await bench.answer(TALK.segments, response="r4", sampler=WARM)
        start = state(bench)
    said = generations(listener)
    assert len(said) == 2
    for (execution, evidence), answer, seed, sampler in zip(
        said, (greedy, warm), (0, 5), (GREEDY, structs.replace(WARM, seed=None)), strict=True
    ):
        assert execution.origin is not None
        parameters = execution.origin.parameters
        assert parameters is not None
        assert execution.invocation == generating(PROFILE, start, parameters, seed)
        assert execution.invocation.parameters == object_id(parameters)
        assert sampler_of(parameters) == sampler
        assert parameters.values["tokens_max"] == 8
        # All that was generated, also a token that was not delivered: the fake never stops within.
        assert evidence.measurements["tokens"] >= len(answer.ids)
        if evidence.measurements["tokens"] == len(answer.ids):
            assert evidence.outputs[0].id == str(TokensId.of(pack(answer.ids)))
    assert said[0][0].origin is not None
    assert said[0][0].origin.context == context


@pytest.mark.req("DRV-2", "DRV-7", "KV-9")
async def test_without_the_promise_nothing_is_said_of_an_answer() -> None:
    listener = Listener()
    async with opened(mailbox=listener, reproducible=False, states_equal=True) as bench:
        await bench.answer(TALK.segments)
        await bench.answer(TALK.segments, response="r2", sampler=WARM)
        await bench.receipt("r2")
    assert listener.heard
    assert generations(listener) == []


@pytest.mark.req("DRV-2")
async def test_an_answer_that_was_cut_off_is_no_result() -> None:
    listener = Listener()
    async with opened(mailbox=listener, reproducible=True) as bench:
        slow = bench.backend.decode

        def dawdle(items: Any) -> Any:
            time.sleep(0.002)
            return slow(items)

        bench.backend.decode = dawdle
        running = asyncio.ensure_future(bench.answer(TALK.segments, tokens_max=400))
        await until(lambda: bench.room._engine.running > 0, pause_s=0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await bench.quiet()
    assert generations(listener) == []


@pytest.mark.req("DRV-4")
async def test_where_inputs_can_be_had_again_is_said_with_the_pages() -> None:
    listener, context = Listener(), ContextId.of(b"settled")
    async with opened(mailbox=listener, states_equal=True) as bench:
        settle = Settle(response="s", segments=TALK.segments, context=context)
        await bench.room.on_settle(call_from("alice"), settle)
    assert listener.heard
    assert {each.origin.context for each in listener.heard if each.origin} == {context}
