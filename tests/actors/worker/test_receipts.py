"""Receipts: how tokens are counted, what is kept, and for whom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from actors.worker.receipts import WAITING_MAX, Receipts, block_receipts, redacted, traces
from protocol.errors import DiskFull, StoreFault
from protocol.ids import StateId
from protocol.messages.worker import Receipt
from store.memory_tables import MemoryTables
from tests.worker_rooms import PROFILE, inline, segment

DIGEST = StateId.of(b"state")


def receipt(response: str = "r", **changes: object) -> Receipt:
    plain = Receipt(
        response=response,
        profile=PROFILE,
        prompt_tokens=10,
        reused_tokens=6,
        prefilled_tokens=4,
        completion_tokens=3,
        tiers={"device": 2, "disk": 4},
        pages_verified=1,
        pages_refused=["digest"],
        blocks=block_receipts([segment("user", (2,), (9, 9, 9))], 2),
        advances=1,
        queued_ns=1,
        ttft_ns=2,
        total_ns=3,
        finish="stop",
        seed=5,
        reproducible=True,
    )
    return structs.replace(plain, **changes)


@pytest.mark.req("KV-8")
@given(
    sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=6),
    reused=st.integers(0, 80),
)
def test_a_blocks_reuse_is_how_much_of_its_own_span_was_found(
    sizes: list[tuple[int, int]], reused: int
) -> None:
    blocks = [segment("user", (2,) * head, (9,) * content) for head, content in sizes]
    found = block_receipts(blocks, reused)
    owners = [index for index, (head, content) in enumerate(sizes) for _ in range(head + content)]
    for index, entry in enumerate(found):
        assert entry.tokens == owners.count(index)
        assert entry.reused == owners[:reused].count(index)


@pytest.mark.req("KV-8")
def test_a_redacted_receipt_says_nothing_of_warmth() -> None:
    cold = receipt(reused_tokens=0, prefilled_tokens=10, tiers={}, ttft_ns=999, advances=7)
    warm = receipt(state_digest=DIGEST)
    assert redacted(cold) == redacted(warm)
    assert redacted(warm).state_digest is None


@pytest.mark.req("KV-8")
async def test_receipts_are_kept_by_domain_and_get_their_digest() -> None:
    tables = MemoryTables()
    receipts = Receipts(tables.keyed("receipts"), 10, blocking=inline)
    receipts.record("alice", receipt())
    assert await receipts.get("alice", "r") == receipt()
    assert await receipts.get("bob", "r") is None
    await receipts.flush()
    receipts.resolve("bob", "r", DIGEST)
    receipts.resolve("alice", "r", DIGEST)
    assert await receipts.get("alice", "r") == receipt(state_digest=DIGEST)
    await receipts.flush()
    # Another worker on the same table finds it.
    again = Receipts(tables.keyed("receipts"), 10, blocking=inline)
    assert await again.get("alice", "r") == receipt(state_digest=DIGEST)


async def test_the_newest_are_kept() -> None:
    receipts = Receipts(MemoryTables().keyed("receipts"), 2, blocking=inline)
    for number in range(4):
        receipts.record("alice", receipt(str(number)))
        receipts.resolve("alice", str(number), None)
        await receipts.flush()
    found = [await receipts.get("alice", str(number)) is not None for number in range(4)]
    assert found == [False, False, True, True]


@pytest.mark.req("AUT-7")
async def test_what_others_ask_for_takes_no_receipt() -> None:
    receipts = Receipts(MemoryTables().keyed("receipts"), 2, blocking=inline)
    asked = [("alice", "0"), *(("bob", str(number)) for number in range(5)), ("al", "0")]
    for domain, response in asked:
        receipts.record(domain, receipt(response))
        receipts.resolve(domain, response, None)
        await receipts.flush()
    found = [response for response in asked if await receipts.get(*response) is not None]
    assert found == [("alice", "0"), ("bob", "3"), ("bob", "4"), ("al", "0")]


async def test_what_changes_while_it_is_written_is_written_again() -> None:
    table = MemoryTables().keyed("receipts")
    gate = asyncio.Event()

    async def slow(run: Callable[[], object]) -> object:
        result = run()
        await gate.wait()
        return result

    receipts = Receipts(table, 10, blocking=slow)
    receipts.record("alice", receipt())
    await asyncio.sleep(0)
    receipts.resolve("alice", "r", DIGEST)
    gate.set()
    await receipts.flush()
    fresh = Receipts(table, 10, blocking=inline)
    assert await fresh.get("alice", "r") == receipt(state_digest=DIGEST)


async def test_one_that_is_resolved_without_a_digest_while_it_is_written_harms_no_other() -> None:
    gate = asyncio.Event()

    async def slow(work: Callable[[], object]) -> object:
        await gate.wait()
        return work()

    receipts = Receipts(MemoryTables().keyed("receipts"), 10, blocking=slow)
    receipts.record("d", receipt("one"))
    await asyncio.sleep(0)
    receipts.resolve("d", "one", None)
    gate.set()
    await asyncio.sleep(0.01)
    receipts.record("d", receipt("two"))
    receipts.resolve("d", "two", DIGEST)
    await receipts.flush()
    assert await receipts.get("d", "one") == receipt("one")
    assert await receipts.get("d", "two") == receipt("two", state_digest=DIGEST)


async def test_a_full_disk_costs_receipts_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    tables = MemoryTables()
    receipts = Receipts(tables.keyed("receipts"), 10, blocking=inline)
    tables.close()
    with caplog.at_level(logging.WARNING, "huginn.worker"):
        receipts.record("alice", receipt())
        await receipts.flush()
    assert "1 receipts are lost" in caplog.text
    with pytest.raises(StoreFault):
        tables.keyed("receipts").get(b"k")


@pytest.mark.req("AUT-8")
async def test_the_receipts_of_a_domain_are_forgotten_and_no_others() -> None:
    table = MemoryTables().keyed("receipts")
    receipts = Receipts(table, 10, blocking=inline)
    for domain in ("ann", "anna", "a"):
        for name in ("one", "two"):
            receipts.record(domain, receipt(name))
    await receipts.flush()
    # One that is not final yet lies in memory too, and is not written again.
    assert await receipts.forget("ann") == 2
    receipts.resolve("ann", "one", DIGEST)
    await receipts.flush()
    assert await receipts.get("ann", "one") is None
    assert traces(table, ["ann", "anna", "a", "b"]) == ["receipts of anna", "receipts of a"]
    assert await receipts.forget("ann") == 0


async def test_receipts_wait_for_room_and_the_newest_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = MemoryTables().keyed("receipts")
    full = True

    async def blocking(work: Callable[[], object]) -> object:
        if full:
            raise DiskFull("the disk is full")
        return work()

    receipts = Receipts(table, 2 * WAITING_MAX, blocking=blocking)
    for number in range(WAITING_MAX + 3):
        receipts.record("d", receipt(f"r{number}"))
        receipts.resolve("d", f"r{number}", DIGEST)
        await receipts.flush()
    assert caplog.text.count("receipts wait for room") == 1
    # What waits can be read.
    assert await receipts.get("d", "r4") == receipt("r4", state_digest=DIGEST)
    full = False
    receipts.record("d", receipt("last"))
    receipts.resolve("d", "last", None)
    await receipts.flush()
    assert len(table.items()) == WAITING_MAX + 1
    assert await receipts.get("d", "r0") is None
    assert await receipts.get("d", "r3") == receipt("r3", state_digest=DIGEST)
    assert await receipts.get("d", "last") == receipt("last")
