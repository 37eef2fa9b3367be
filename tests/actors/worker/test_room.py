"""The worker room on the strict fake: the same prompt gives the same state and the same answer
whatever was fed before, and what it says to whom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from actors.worker.drivers import LoopDriver
from actors.worker.pages import state_digest
from actors.worker.room import WorkerRoom
from actors.worker.tiers import Tiers
from protocol.caveats import DomainCaveat
from protocol.derivation import Derivation, check_pair, open_evidence
from protocol.envelope import open_reply, seal
from protocol.errors import (
    BudgetExceeded,
    CapabilityError,
    Conflict,
    ContentError,
    HuginnError,
    LimitExceeded,
    NotVisible,
    ProfileFault,
    Unavailable,
    WorkerFault,
)
from protocol.families import ADVANCE_FAMILY, FAMILIES, advancing
from protocol.ids import ChainId, PageId, TokensId
from protocol.messages import Empty
from protocol.messages.erasure import Erase
from protocol.messages.worker import AskPages, AskReceipt, Cancel, Item, Settle, Stats
from protocol.record import decode_record, encode_record
from protocol.resource import Right
from protocol.tokens import pack, unpack
from store.pages.memory import MemoryPageTier
from tests.bare_worker import Bare, bare_answer
from tests.chains import ANCHORS, NOW, PRINCIPAL, nonce, turn_chain
from tests.fake_backend import FakeBackend
from tests.page_samples import TestClock
from tests.worker_rooms import (
    CHUNK,
    EOT,
    OPENER,
    PROFILE,
    RIGHTS,
    SECOND,
    Bench,
    HandClock,
    Listener,
    Result,
    Talk,
    asked,
    call_from,
    opened,
    segment,
    text_ids,
    until,
)


def expected(talk: Talk, *, tokens_max: int = 8) -> Bare:
    """What a fresh back end gives for that prompt, and nothing else ever fed."""
    return bare_answer(
        FakeBackend(chunk_tokens=CHUNK),
        talk.segments,
        OPENER,
        tokens_max=tokens_max,
        stop_ids=frozenset((EOT,)),
        chunk_tokens=CHUNK,
    )


def some_talk(turns: int = 3, *, size: int = 20) -> Talk:
    talk = Talk()
    for turn in range(turns):
        talk = talk.add("user", text_ids(f"question {turn} " + "x" * size))
        talk = talk.add("model", text_ids(f"answer {turn}"))
    return talk.add("user", text_ids("and now?"))


# -- exactness ---------------------------------------------------------------------------------

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
            at = where % (len(talk.segments) + 1)
            if kind == "branch":
                talk = Talk(talk.segments[: at // 2 * 2])
            elif kind == "edit" and at < len(talk.segments):
                edited = structs.replace(talk.segments[at], content=pack(content))
                talk = Talk([*talk.segments[:at], edited, *talk.segments[at + 1 :]])
            if kind != "again" or not talk.segments:
                if sum(len(unpack(s.content)) + 3 for s in talk.segments) > 300:
                    talk = Talk()
                talk = talk.add("user", content)
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
        _check_no_residue(bench)


def _check_no_residue(bench: Bench) -> None:
    """Every stream holds exactly its canonical prefix."""
    streams = bench.room._engine.streams
    for stream in streams:
        assert bench.backend.length(stream.index) == stream.tokens
        assert not stream.leased


# -- limits and refusals -----------------------------------------------------------------------


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


# -- cancelling, time, faults ------------------------------------------------------------------


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
        _check_no_residue(bench)
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
        assert fed < expected_tokens(talk)
        found = await bench.answer(talk.segments, response="r2")
        assert found.receipt.reused_tokens == fed
        assert found.ids == expected(talk).ids


def expected_tokens(talk: Talk) -> int:
    return sum(len(unpack(s.head)) + len(unpack(s.content)) for s in talk.segments) + len(OPENER)


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
        _check_no_residue(bench)


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
        _check_no_residue(bench)
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


# -- settling ----------------------------------------------------------------------------------


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


# -- who is told what --------------------------------------------------------------------------


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
        assert {item.total for item in items if item.kind == "prefill"} == {expected_tokens(talk)}


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


# -- the edge and the end ----------------------------------------------------------------------


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


# -- evidence --------------------------------------------------------------------------------


@pytest.mark.req("DRV-7")
async def test_every_advance_that_was_fed_is_reported_once_with_its_page() -> None:
    listener = Listener()
    talk = Talk().add("user", text_ids("Who flies out at dawn and comes back?"))
    async with opened(mailbox=listener, states_equal=True) as bench:
        cold = await bench.answer(talk.segments)
        receipt = await bench.receipt()
        await bench.answer(talk.segments, response="again")
        longer = talk.add("model", cold.ids[:-1]).add("user", text_ids("And then?"))
        await bench.settle(longer.segments)
        prompt = bench.room._reader.read(longer.segments, b"", answer_tokens=0)
        own = bench.room.world.signer.public
    evidence = {}
    for execution in listener.heard:
        assert execution.evidence is not None
        said = open_evidence(execution.evidence)
        check_pair(execution.invocation, said)
        FAMILIES[execution.invocation.transform_contract].check(
            Derivation(execution.invocation, said.outputs)
        )
        assert (said.domain, said.executor, said.engine_build) == ("alice", own, "huginn")
        evidence[said.outputs[0].id] = (execution.invocation, said)
    # Each once, each from the state before it, and the pages are those of the state digest.
    assert len(evidence) == len(listener.heard)
    before: ChainId | None = None
    pages = []
    for advance, chain in zip(prompt.advances, prompt.chains, strict=True):
        invocation, said = evidence[str(chain)]
        assert invocation == advancing(PROFILE, before, TokensId.of(pack(advance.ids)))
        assert said.measurements == {"tokens": len(advance.ids)}
        pages.append(PageId.parse(said.outputs[1].id))
        before = chain
    first = bench.room._reader.read(talk.segments, pack(OPENER), answer_tokens=1)
    assert first.chains == prompt.chains[: len(first.chains)]
    assert state_digest(pages[: len(first.chains)]) == receipt.state_digest


@pytest.mark.req("KV-2", "DRV-2", "DRV-7")
async def test_states_that_are_not_equal_bit_by_bit_are_told_with_what_they_started_from() -> None:
    listener = Listener()
    talk = Talk().add("user", text_ids("Who flies out at dawn?"))
    longer = talk.add("model", text_ids("A raven.")).add("user", text_ids("Which?"))
    async with opened(mailbox=listener, states_equal=False, reproducible=False) as bench:
        await bench.answer(talk.segments)
        first = await bench.receipt()
        await bench.answer(longer.segments, response="r2")
        receipt = await bench.receipt("r2")
        prompt = bench.room._reader.read(longer.segments, pack(OPENER), answer_tokens=1)
        told = len(bench.room._reader.read(talk.segments, pack(OPENER), answer_tokens=1).chains)
    said = [open_evidence(each.evidence or b"") for each in listener.heard]
    pages = [PageId.parse(each.outputs[1].id) for each in said]
    before: ChainId | None = None
    for index, (advance, chain) in enumerate(zip(prompt.advances, prompt.chains, strict=True)):
        snapshot = state_digest(pages[:index])
        assert listener.heard[index].invocation == advancing(
            PROFILE, before, TokensId.of(pack(advance.ids)), snapshot=snapshot
        )
        ADVANCE_FAMILY.check(Derivation(listener.heard[index].invocation, said[index].outputs))
        before = chain
    # The second turn went on from the pages of the first, which its own snapshots name.
    assert len(pages) == len(prompt.advances) > told
    assert listener.heard[told].invocation.snapshot == str(first.state_digest)
    assert state_digest(pages) == receipt.state_digest


@pytest.mark.req("DRV-6", "AUT-5")
async def test_pages_are_held_for_their_domain_while_their_bytes_are_there() -> None:
    listener = Listener()
    host = MemoryPageTier(TestClock(), 2**20)
    talk = Talk().add("user", text_ids("Who flies out at dawn?"))

    async def held(bench: Bench, chain: str, *pages: str, domain: str = "alice") -> bool:
        ask = AskPages(chain=ChainId.parse(chain), pages=[PageId.parse(page) for page in pages])
        return (await bench.room.on_pages(call_from(domain), ask)).held

    async with opened(mailbox=listener, states_equal=True, tiers=Tiers(host)) as bench:
        await bench.answer(talk.segments)
        await bench.receipt()
        await until(lambda: len(listener.heard) > 1, pause_s=0.01)
        said = [open_evidence(each.evidence or b"").outputs for each in listener.heard]
        chain, page = next([each.id for each in outputs] for outputs in said if len(outputs) == 2)
        assert await held(bench, chain, page)
        assert not await held(bench, chain, page, domain="bob")
        assert not await held(bench, chain, page, str(PageId.of(b"another")))
        assert not await held(bench, str(ChainId.of(b"another")), page)
        (info,) = host.find("alice", [ChainId.parse(chain)])
        host.spoil(info)
        assert not await held(bench, chain, page)
    async with opened() as bench:
        assert not await held(bench, chain, page)


# -- erasing ---------------------------------------------------------------------------------


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
