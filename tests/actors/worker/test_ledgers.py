"""Both ledgers in a worker room: what is charged does not depend on what was found, what was used
does.

Charged are an answer that is asked, the whole of its prompt, and what is told of it. Not charged is
what was computed for that, read, kept or restored: the same is asked here of every place that it
can lie in warm, of one's own and of what is everybody's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from actors.worker.ledgers import LedgerPorts
from protocol.errors import LimitExceeded
from protocol.messages import Empty
from protocol.messages.worker import Charge, Receipt, Settle
from protocol.publication import PUBLIC
from protocol.tokens import TokenIds
from store.memory_tables import MemoryTables
from tests.kept_states import Keeper
from tests.worker_rooms import (
    Bench,
    Board,
    Result,
    Talk,
    asked,
    call_from,
    opened,
    stated,
    text_ids,
)
from tests.worker_talks import prompt_ids, some_talk


class Bill(NamedTuple):
    """What one answer was charged; and what it used, by the physical ledger and the receipt."""

    charged: tuple[int, int, int]
    used: dict[str, int]
    receipt: Receipt
    ids: TokenIds


async def charge(bench: Bench, domain: str) -> Charge:
    return await bench.room.on_charge(call_from(domain, principal=domain.encode() * 8), Empty())


async def ask(bench: Bench, domain: str, talk: Talk, response: str) -> None:
    call = call_from(domain, principal=domain.encode() * 8)
    items = [
        each async for each in bench.room.on_generate(call, asked(talk.segments, response=response))
    ]
    assert items[-1].kind == "end"


async def used(bench: Bench) -> dict[str, int]:
    return (await bench.room.on_use(call_from(None), Empty())).used


async def settle(bench: Bench, domain: str, talk: Talk) -> None:
    call = call_from(domain, principal=domain.encode() * 8)
    await bench.room.on_settle(call, Settle(response="s", segments=talk.segments))


async def billed(bench: Bench, domain: str, talk: Talk, **options: Any) -> Bill:
    """An answer to `talk`, once nothing goes on behind it."""
    call = call_from(domain, principal=domain.encode() * 8)
    response = f"r{(await charge(bench, domain)).answers}-{len(bench.backend.fed)}"
    before, was = await charge(bench, domain), await used(bench)
    ask = asked(talk.segments, response=response, **options)
    told = Result([item async for item in bench.room.on_generate(call, ask)])
    receipt = await bench.receipt(response, domain=domain)
    await bench.quiet()
    after, now = await charge(bench, domain), await used(bench)
    return Bill(
        (
            after.answers - before.answers,
            after.prompt_tokens - before.prompt_tokens,
            after.answer_tokens - before.answer_tokens,
        ),
        {name: now[name] - was.get(name, 0) for name in now},
        receipt,
        told.ids,
    )


def places(bill: Bill) -> set[str]:
    """Where what was reused lay."""
    return {name for name, tokens in bill.receipt.tiers.items() if tokens}


@pytest.mark.req("AUT-6", "DRV-6")
async def test_cold_and_warm_and_a_strangers_warmth_are_charged_alike() -> None:
    talk = Talk().add("user", text_ids("a question of some length"))
    async with opened() as bench:
        charges, used = [], []
        for number, domain in enumerate(("alic", "alic", "bobb", "carl")):
            before, fed = await charge(bench, domain), len(bench.backend.fed)
            await ask(bench, domain, talk, f"r{number}")
            await bench.quiet()
            after = await charge(bench, domain)
            charges.append(
                (
                    after.answers - before.answers,
                    after.prompt_tokens - before.prompt_tokens,
                    after.answer_tokens - before.answer_tokens,
                )
            )
            used.append(sum(kind == "advance" for kind, *_ in bench.backend.fed[fed:]))
        assert len(set(charges)) == 1
        answers, prompt, told = charges[0]
        assert (answers, prompt > 20, told > 0) == (1, True, True)
        # The control: what it took was another thing for the one who was warm.
        assert used[1] < used[0] == used[2] == used[3]
        everybody = await bench.room.on_charges(call_from(None), Empty())
        assert [row.answers for row in everybody.rows] == [2, 1, 1]
        use = await bench.room.on_use(call_from(None), Empty())
        assert use.used["prefilled_tokens"] == bench.room._engine.prefilled_tokens > 0


@pytest.mark.req("AUT-6")
async def test_an_answer_that_is_broken_off_is_charged_for_what_was_asked() -> None:
    talk = Talk().add("user", text_ids("hello"))
    async with opened() as bench:
        call = call_from("alic", principal=b"alic" * 8)
        items = bench.room.on_generate(call, asked(talk.segments))
        await anext(items)
        await items.aclose()
        await bench.quiet()
        row = await charge(bench, "alic")
        assert (row.answers, row.prompt_tokens > 0) == (1, True)
        # What is refused is not charged.
        with pytest.raises(LimitExceeded):
            await anext(
                bench.room.on_generate(call, asked(talk.segments, response="r2", time_ns_max=0))
            )
        assert (await charge(bench, "alic")).answers == 1


@pytest.mark.req("AUT-6", "DRV-6")
async def test_wherever_it_lies_warm_the_same_is_charged(tmp_path: Path) -> None:
    """Nowhere, on the device, in memory, on disk, and on disk after a restart."""
    keeper, tables = Keeper(tmp_path / "pages"), MemoryTables()
    ledgers = LedgerPorts(tables.keyed("charges"), tables.keyed("use"))
    talk, bills = some_talk(), {}
    async with keeper.worker(1, ledgers=ledgers) as bench:
        bills["cold"] = await billed(bench, "alic", talk)
        bills["device"] = await billed(bench, "alic", talk)
        # The only stream is another's afterwards.
        await billed(bench, "bobb", Talk().add("user", text_ids("something else")))
        bills["host"] = await billed(bench, "alic", talk)
        await billed(bench, "bobb", Talk().add("user", text_ids("something else")))
        keeper.writer.flush()
        assert keeper.host.drop_domain("alic").pages > 0
        bills["disk"] = await billed(bench, "alic", talk)
        keeper.writer.flush()
    async with keeper.worker(1, ledgers=ledgers) as bench:
        bills["restart"] = await billed(bench, "alic", talk)
        whole = await charge(bench, "alic")
    assert {name: places(bill) for name, bill in bills.items()} == {
        "cold": set(),
        "device": {"device"},
        "host": {"host"},
        "disk": {"disk"},
        "restart": {"disk"},
    }
    cold = bills["cold"]
    assert cold.charged == (1, len(prompt_ids(talk)), len(cold.ids))
    assert {bill.charged for bill in bills.values()} == {cold.charged}
    assert (whole.answers, whole.prompt_tokens, whole.answer_tokens) == tuple(
        len(bills) * each for each in cold.charged
    )
    # What it took is another thing each time.
    for name, bill in bills.items():
        assert bill.ids == cold.ids
        assert bill.used["prefilled_tokens"] == bill.receipt.prefilled_tokens
        assert (bill.used["prefilled_tokens"] < cold.charged[1]) is (name != "cold")
        assert (bill.used["host_read_bytes"] > 0) is (name == "host")
        assert (bill.used["disk_read_bytes"] > 0) is (name in ("disk", "restart"))


@pytest.mark.req("AUT-5", "AUT-6", "DRV-6")
async def test_what_is_everybodys_is_charged_alike_whoever_made_it_warm(tmp_path: Path) -> None:
    """It is the only warmth of another's that there is. Alice made it; others use it, each for the
    first time, on the device, in memory, on disk and after a restart. Alice herself is charged so,
    too, and so is one who asked before it was public."""
    beginning = Talk().add("user", text_ids("a guide for everybody. " * 4))
    talk = beginning.add("user", text_ids("and what of this?"))
    other = Talk().add("user", text_ids("something else"))
    public, board, keeper = stated(beginning.segments), Board(), Keeper(tmp_path / "pages")
    bills, known = {}, MemoryTables().keyed("public")
    async with keeper.worker(1, mailbox=board, public_table=known) as bench:
        bills["nora"] = await billed(bench, "nora", talk)
        board.blocks.add(beginning.segments[0].block)
        await bench.room._public.refresh()
        bills["alic"] = await billed(bench, "alic", talk, public=public)
        bills["bobb"] = await billed(bench, "bobb", talk, public=public)
        await billed(bench, "zoey", other)
        bills["carl"] = await billed(bench, "carl", talk, public=public)
        await billed(bench, "zoey", other)
        keeper.writer.flush()
        assert keeper.host.drop_domain(PUBLIC).pages > 0
        bills["dora"] = await billed(bench, "dora", talk, public=public)
        keeper.writer.flush()
    async with keeper.worker(1, mailbox=board, public_table=known) as bench:
        await bench.room._public.refresh()
        bills["emil"] = await billed(bench, "emil", talk, public=public)
    assert {who: places(bill) for who, bill in bills.items()} == {
        "nora": set(),
        "alic": set(),
        "bobb": {"device"},
        "carl": {"host"},
        "dora": {"disk"},
        "emil": {"disk"},
    }
    cold = bills["nora"]
    assert cold.charged == (1, len(prompt_ids(talk)), len(cold.ids))
    for who, bill in bills.items():
        assert (bill.ids, bill.charged) == (cold.ids, cold.charged)
        reused = 0 if who in ("nora", "alic") else bill.receipt.public_tokens or 0
        assert bill.receipt.reused_tokens == reused
        assert bill.used["prefilled_tokens"] == cold.charged[1] - reused
    assert bills["bobb"].receipt.public_tokens


@pytest.mark.req("AUT-6", "KV-10")
async def test_a_turn_is_charged_alike_after_one_that_was_settled_and_one_that_was_not() -> None:
    """Settling is this service's own thrift: it uses the device, and nobody is charged."""
    talk, bills = some_talk(1), []
    for settled in (False, True):
        async with opened() as bench:
            first = await billed(bench, "alic", talk, tokens_max=40)
            answered = talk.add("model", first.ids)
            before, was = await charge(bench, "alic"), await used(bench)
            if settled:
                await settle(bench, "alic", answered)
                await bench.quiet()
            assert await charge(bench, "alic") == before
            taken = (await used(bench))["prefilled_tokens"] - was["prefilled_tokens"]
            assert (taken > 0) is settled
            following = answered.add("user", text_ids("go on"))
            bills.append(await billed(bench, "alic", following))
            everybody = await bench.room.on_charges(call_from(None), Empty())
            assert [row.answers for row in everybody.rows] == [2]
    cold, warm = bills
    assert warm.ids == cold.ids
    assert warm.charged == cold.charged == (1, len(prompt_ids(following)), len(cold.ids))
    # The control: the turn found what was settled, and took less for it.
    assert warm.receipt.reused_tokens > cold.receipt.reused_tokens > 0
    assert warm.used["prefilled_tokens"] < cold.used["prefilled_tokens"]
