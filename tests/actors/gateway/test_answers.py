"""Answers: merged, complete or an error, and stopped when nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from msgspec.structs import replace

from actors.gateway.answers import Answers, Choice, collect
from actors.gateway.caller import Caller
from actors.gateway.limits import Limits
from actors.gateway.messages import Message, message_blocks
from actors.gateway.turns import Ask, chat_prompt, jobs
from protocol.errors import ContentError, Unavailable, WorkerFault
from protocol.messages.worker import GREEDY, Generate, Item
from protocol.tokens import pack
from tests.fake_rooms import Service
from tests.scripted_worker import ANSWER, Script


async def begun(service: Service, choices: int = 1) -> tuple[Caller, list[Generate]]:
    caller = service.gateway.authenticate(f"Bearer {service.operator_key}", "req-1")
    model = service.gateway.models.find(None)
    assert model is not None
    blocks = message_blocks([Message(role="user", content="hi")])
    prompt = await chat_prompt(caller, model, blocks, "operator")
    ask = Ask(replace(GREEDY, seed=1), [], choices, None, None, deliver_trim=True)
    return caller, jobs(prompt, ask, model, "r", Limits())


async def test_choices_are_read_side_by_side(service: Service) -> None:
    caller, asked = await begun(service, choices=3)
    async with Answers(caller, "worker", asked) as answers:
        done = await collect(answers, 3)
    assert ["".join(choice.text) for choice in done] == [ANSWER] * 3
    assert {choice.finish for choice in done} == {"stop"}
    assert all(choice.completion_tokens == len(ANSWER.encode()) for choice in done)


async def test_one_failure_ends_all(service: Service) -> None:
    service.worker.script = Script(break_after=3)
    caller, asked = await begun(service, choices=2)
    with pytest.raises(WorkerFault):
        async with Answers(caller, "worker", asked) as answers:
            await collect(answers, 2)
    assert service.worker.running == 0


@pytest.mark.parametrize(
    "script", [Script(break_after=2, vanish=True), Script(break_after=2, finish="cancelled")]
)
async def test_an_answer_cut_off_is_a_fault(service: Service, script: Script) -> None:
    service.worker.script = script
    caller, asked = await begun(service)
    with pytest.raises(WorkerFault):
        async with Answers(caller, "worker", asked) as answers:
            await collect(answers, 1)


async def test_a_worker_that_is_not_there_is_a_worker_fault(service: Service) -> None:
    caller, asked = await begun(service)
    del service.mailbox.rooms["worker"]
    with pytest.raises(WorkerFault):
        async with Answers(caller, "worker", asked) as answers:
            await collect(answers, 1)


async def test_leaving_closes_the_workers_streams(service: Service) -> None:
    service.worker.script = Script(gate=asyncio.Event())
    caller, asked = await begun(service, choices=2)
    async with Answers(caller, "worker", asked) as answers:
        assert (await answers.next(60.0)) is not None
        await service.worker.began.wait_for(2)
    assert service.worker.running == 0
    assert service.worker.stopped_early == 2


async def test_a_slow_reader_slows_the_worker(service: Service) -> None:
    service.worker.script = Script(answer="x" * 1000)
    caller, asked = await begun(service)
    async with Answers(caller, "worker", asked):
        await asyncio.sleep(0.05)
        assert service.worker.deltas < 100


async def test_silence_is_no_event(service: Service) -> None:
    service.worker.script = Script(gate=asyncio.Event())
    caller, asked = await begun(service)
    async with Answers(caller, "worker", asked) as answers:
        await answers.next(60.0)
        assert await answers.next(0.01) is None


async def test_items_may_come_from_elsewhere(service: Service) -> None:
    caller, asked = await begun(service)

    async def items(job: Generate) -> AsyncGenerator[Item, None]:
        yield Item(kind="delta", text=job.response, ids=pack((1, 2)))
        yield Item(kind="end", finish="stop")

    async with Answers(caller, "worker", asked, items) as answers:
        (choice,) = await collect(answers, 1)
    assert (choice.text, choice.ids, choice.tokens) == (["r"], [pack((1, 2))], 2)
    assert service.worker.asked == []


async def test_a_room_that_could_not_keep_the_answer_is_not_the_worker(service: Service) -> None:
    caller, asked = await begun(service)

    async def items(job: Generate) -> AsyncGenerator[Item, None]:
        yield Item(kind="delta", text="x", ids=b"")
        raise Unavailable("not kept")

    with pytest.raises(Unavailable, match="not kept"):
        async with Answers(caller, "worker", asked, items) as answers:
            await collect(answers, 1)


def test_a_choice_counts_ids_until_it_has_a_receipt() -> None:
    choice = Choice()
    choice.take(Item(kind="prefill", done=1, total=2))
    choice.take(Item(kind="delta", text="ab", ids=pack((1, 2, 3))))
    choice.take(Item(kind="end", finish="time"))
    assert (choice.text, choice.completion_tokens, choice.finish) == (["ab"], 3, "length")
    with pytest.raises(ContentError):
        choice.take(ContentError("no"))
