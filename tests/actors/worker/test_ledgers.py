"""Both ledgers in a worker room: what is charged does not depend on what was found, what was used
does."""

from __future__ import annotations

import pytest

from protocol.errors import LimitExceeded
from protocol.messages import Empty
from protocol.messages.worker import Charge
from tests.worker_rooms import Bench, Talk, asked, call_from, opened, text_ids


async def charge(bench: Bench, domain: str) -> Charge:
    return await bench.room.on_charge(call_from(domain, principal=domain.encode() * 8), Empty())


async def ask(bench: Bench, domain: str, talk: Talk, response: str) -> None:
    call = call_from(domain, principal=domain.encode() * 8)
    items = [
        each async for each in bench.room.on_generate(call, asked(talk.segments, response=response))
    ]
    assert items[-1].kind == "end"


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
