"""What a worker refuses before it computes anything: prompts, requests, handles, back ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from actors.worker.drivers import LoopDriver
from protocol.errors import (
    BudgetExceeded,
    CapabilityError,
    Conflict,
    ContentError,
    HuginnError,
    LimitExceeded,
    ProfileFault,
    Unavailable,
)
from protocol.messages import Empty
from protocol.messages.worker import Settle
from protocol.tokens import pack
from tests.fake_backend import FakeBackend
from tests.worker_rooms import EOT, OPENER, asked, call_from, opened, segment, text_ids
from tests.worker_talks import some_talk


@pytest.mark.req("KV-12")
async def test_a_prompt_of_the_context_less_one_gives_one_token_and_one_more_is_refused() -> None:
    async with opened() as bench:
        context = bench.backend.context_tokens
        fill = context - 1 - len(OPENER)
        block = segment("user", (2,), text_ids("x" * (fill - 1)))
        found = await bench.answer([block])
        assert found.receipt.prompt_tokens == context - 1
        assert (len(found.ids), found.finish) == (1, "length")
        longer = segment("user", (2,), text_ids("x" * fill))
        with pytest.raises(
            BudgetExceeded, match=f"{context} tokens .* room for {context - 1}"
        ) as e:
            await bench.answer([longer], response="r2")
        assert e.value.details == {"tokens": context, "tokens_max": context - 1}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"segments": [], "opener": b""}, ContentError),
        ({"segments": [segment("user", (2,), (9, EOT))]}, ContentError),
        ({"segments": [segment("user", (999,), (9,))]}, ContentError),
        ({"opener": pack((100_000,))}, ContentError),
        ({"opener": b"abc"}, ContentError),
        ({"tokens_max": 0}, ContentError),
        ({"logprobs_top": 21}, ContentError),
        ({"stops": [""]}, ContentError),
        ({"response": ""}, ContentError),
        ({"time_ns_max": 0}, LimitExceeded),
        ({"time_ns_max": 10**18}, LimitExceeded),
        ({"sampler": structs.replace(asked([]).sampler, top_k=-1)}, ContentError),
    ],
)
async def test_a_bad_request_is_refused_before_it_is_queued(
    changes: dict[str, Any], error: type[HuginnError]
) -> None:
    async with opened() as bench:
        fields = {"segments": some_talk().segments, **changes}
        with pytest.raises(error):
            await bench.answer(fields.pop("segments"), **fields)
        assert bench.backend.fed == []
        assert (await bench.answer(some_talk().segments, response="r9")).finish is not None


async def test_a_handle_without_a_domain_computes_nowhere() -> None:
    async with opened() as bench:
        with pytest.raises(ContentError, match="domain"):
            await bench.answer(some_talk().segments, domain=None)


@pytest.mark.req("AUT-2")
@pytest.mark.parametrize("profiles", [(), ("small",)])
async def test_a_handle_that_does_not_reach_the_profile_computes_nothing(
    profiles: tuple[str, ...],
) -> None:
    async with opened() as bench:
        call = call_from(profiles=profiles)
        talk = some_talk()
        with pytest.raises(CapabilityError, match="profile large"):
            await anext(bench.room.on_generate(call, asked(talk.segments)))
        with pytest.raises(CapabilityError, match="profile large"):
            await bench.room.on_settle(call, Settle(response="r", segments=talk.segments))
        with pytest.raises(CapabilityError, match="profile large"):
            await bench.room.on_info(call, Empty())
        assert bench.backend.fed == []


@pytest.mark.req("KV-12")
async def test_the_queue_is_bounded_by_jobs_and_a_name_is_taken_once() -> None:
    async with opened(jobs_max=2, driver=LoopDriver()) as bench:
        streams = [
            bench.room.on_generate(
                call_from(), asked(some_talk().segments, response=name, tokens_max=99)
            )
            for name in ("a", "b")
        ]
        for stream in streams:
            await anext(stream)
        with pytest.raises(Conflict):
            await bench.answer(some_talk().segments, response="a")
        # The same name under another owner is another job, and it is one too many.
        with pytest.raises(Unavailable, match="2 answers are open"):
            await bench.answer(some_talk().segments, response="a", domain="bob")
        for stream in streams:
            await stream.aclose()
        await bench.quiet()
        await asyncio.sleep(0)
        assert (await bench.answer(some_talk().segments, response="c")).finish is not None


@pytest.mark.req("KV-1")
async def test_a_back_end_that_cannot_follow_the_schedule_is_refused() -> None:
    with pytest.raises(ProfileFault, match="takes at most 8"):
        async with opened(FakeBackend(chunk_tokens=8)):
            pass
