"""Every message that a worker takes has an owner and limits, and is refused beyond them (KV-12)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs

from actors.room import Call
from actors.worker.answer import STOP_IDS_MAX
from actors.worker.drivers import LoopDriver
from actors.worker.limits import SEGMENTS_MAX, WorkerLimits
from actors.worker.room import RESPONSE_CHARS_MAX
from actors.worker.sampler import BIASES_MAX
from actors.worker.stops import STOP_CHARS_MAX, STOPS_MAX
from actors.worker.tiers import Tiers
from protocol.errors import (
    BudgetExceeded,
    CapabilityError,
    ContentError,
    HuginnError,
    LimitExceeded,
    Unavailable,
)
from protocol.ids import ChainId, PageId
from protocol.messages import Empty
from protocol.messages.worker import (
    GREEDY,
    OPERATIONS,
    AskPages,
    AskReceipt,
    Cancel,
    Item,
    Settle,
)
from protocol.record import Record
from store.pages.memory import MemoryPageTier
from tests.worker_rooms import Bench, HandClock, Talk, asked, call_from, opened, segment, text_ids

LIMITS = WorkerLimits()
LONG = "r" * (RESPONSE_CHARS_MAX + 1)
SEGMENTS = Talk().add("user", text_ids("Who flies out at dawn?")).segments
CROWD = [segment("user", (), ())] * (SEGMENTS_MAX + 1)
HUGE = [segment("user", (2,), text_ids("x" * 600))]
CHAIN = ChainId.of(b"a state")
PAGES = [PageId.of(b"%d" % n) for n in range(LIMITS.pages_max + 1)]
BIASED = structs.replace(GREEDY, logit_bias=[[9, 1]] * (BIASES_MAX + 1))

BEYOND: list[tuple[str, Record, type[HuginnError]]] = [
    ("generate", asked(CROWD), LimitExceeded),
    ("generate", asked(HUGE), BudgetExceeded),
    ("generate", asked(SEGMENTS, response=LONG), ContentError),
    ("generate", asked(SEGMENTS, time_ns_max=LIMITS.job_ns_max + 1), LimitExceeded),
    ("generate", asked(SEGMENTS, stop_ids=[9] * (STOP_IDS_MAX + 1)), LimitExceeded),
    ("generate", asked(SEGMENTS, stops=[str(n) for n in range(STOPS_MAX + 1)]), LimitExceeded),
    ("generate", asked(SEGMENTS, stop_texts=["x" * (STOP_CHARS_MAX + 1)]), LimitExceeded),
    ("generate", asked(SEGMENTS, sampler=BIASED), LimitExceeded),
    ("settle", Settle(response="s", segments=CROWD), LimitExceeded),
    ("settle", Settle(response="s", segments=HUGE), BudgetExceeded),
    ("settle", Settle(response=LONG, segments=SEGMENTS), ContentError),
    ("cancel", Cancel(response=LONG), ContentError),
    ("receipt", AskReceipt(response=LONG), ContentError),
    ("pages", AskPages(chain=CHAIN, pages=PAGES), LimitExceeded),
    ("pages", AskPages(chain=CHAIN, pages=[]), LimitExceeded),
]
OWNED: dict[str, Record] = {
    "generate": asked(SEGMENTS),
    "settle": Settle(response="s", segments=SEGMENTS),
    "cancel": Cancel(response="r"),
    "receipt": AskReceipt(response="r"),
    "pages": AskPages(chain=CHAIN, pages=PAGES[:1]),
}
# These say nothing but who asks: what is told costs the same whatever is there.
BARE = {"stats", "info", "publications", "charge", "charges", "use"}


async def did(bench: Bench, op: str, ask: Record, call: Call | None = None) -> list[Any]:
    """What the operation says, its whole stream if it is one."""
    found = getattr(bench.room, f"on_{op}")(call or call_from(), ask)
    return [item async for item in found] if OPERATIONS[op].streams else [await found]


@pytest.mark.req("KV-12")
def test_every_message_is_tried() -> None:
    assert {op for op, _, _ in BEYOND} == set(OWNED)
    assert set(OWNED) | BARE == set(OPERATIONS)
    assert {op for op in OPERATIONS if OPERATIONS[op].ask is Empty} == BARE


@pytest.mark.req("KV-12")
@pytest.mark.parametrize(("op", "ask", "error"), BEYOND, ids=lambda each: str(each)[:24])
async def test_beyond_its_limit_it_is_refused_and_nothing_is_done(
    op: str, ask: Record, error: type[HuginnError]
) -> None:
    async with opened() as bench:
        with pytest.raises(error):
            await did(bench, op, ask)
        assert bench.backend.fed == []
        # What was refused takes no place.
        assert (await did(bench, "generate", OWNED["generate"]))[-1].kind == "end"


@pytest.mark.req("KV-12")
@pytest.mark.parametrize("op", OWNED)
async def test_what_nobody_owns_is_not_done(op: str) -> None:
    async with opened(tiers=Tiers(MemoryPageTier(HandClock(), 2**20))) as bench:
        with pytest.raises(ContentError, match="domain"):
            await did(bench, op, OWNED[op], call_from(None))
        assert bench.backend.fed == []


@pytest.mark.req("KV-12")
async def test_who_may_not_generate_is_told_of_no_model_and_only_ropes_says_what_is_public() -> (
    None
):
    async with opened() as bench:
        with pytest.raises(CapabilityError):
            await did(bench, "info", Empty(), call_from(profiles=()))
        with pytest.raises(ContentError, match="only the ropes room"):
            await did(bench, "publications", Empty())
        assert OPERATIONS["stats"].right == "operate"


@pytest.mark.req("KV-12")
async def test_answers_and_settlements_are_counted() -> None:
    async with opened(jobs_max=1, settles_max=1, driver=LoopDriver()) as bench:
        running = bench.room.on_generate(call_from(), asked(SEGMENTS, tokens_max=99))
        first: Item = await anext(running)
        assert first.kind == "prefill"
        with pytest.raises(Unavailable, match="the limit is 1"):
            await did(bench, "generate", asked(SEGMENTS, response="r2"))
        settling = asyncio.ensure_future(did(bench, "settle", OWNED["settle"]))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="the limit is 1"):
            await did(bench, "settle", Settle(response="t", segments=SEGMENTS))
        await running.aclose()
        await settling


@pytest.mark.req("KV-12")
async def test_pages_are_read_for_so_many_questions_at_once() -> None:
    tiers = Tiers(MemoryPageTier(HandClock(), 2**20))
    gate, entered = asyncio.Event(), asyncio.Semaphore(0)

    async def slowly(run: Callable[[], object]) -> object:
        entered.release()
        await gate.wait()
        return run()

    async with opened(tiers=tiers, page_asks_max=2) as bench:
        bench.room._blocking = slowly
        asking: list[Awaitable[list[Any]]] = [
            asyncio.ensure_future(did(bench, "pages", OWNED["pages"])) for _ in range(2)
        ]
        for _ in asking:
            await entered.acquire()
        with pytest.raises(Unavailable, match="the limit is 2"):
            await did(bench, "pages", OWNED["pages"])
        gate.set()
        assert not any(held.held for (held,) in await asyncio.gather(*asking))
        await did(bench, "pages", OWNED["pages"])
    with pytest.raises(Unavailable, match="stopping"):
        await did(bench, "pages", OWNED["pages"])
