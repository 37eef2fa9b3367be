"""The courier: begun, held, kept before the end is told, or given up; and nothing else is needed
to carry a session's turn over any transport."""

from __future__ import annotations

import asyncio

import pytest

from actors.gateway.answers import Choice
from actors.gateway.courier import SessionTurn, spells
from actors.gateway.limits import Limits
from actors.gateway.messages import answer_block
from actors.gateway.sessions import ask_events
from protocol.blocks import BlockType
from protocol.errors import BudgetExceeded, Conflict, NotVisible, Unavailable, WorkerFault
from protocol.messages.events import AskResponse, ResponseRow
from protocol.tokens import pack
from tests.errands import answer, errand, said, session_of, turns
from tests.fake_rooms import AheadClock, Service, running
from tests.fake_tokenizer import FakeTokenizer
from tests.happenings import caller_of, happen, prompt_text, prompt_types
from tests.scripted_worker import ANSWER, Script

DAY_NS = 24 * 3600 * 10**9


@pytest.mark.req("EVT-7", "EVT-11", "EVT-12")
async def test_a_turn_is_told_what_happened_and_its_answer_is_kept(service: Service) -> None:
    await happen(service, "1122")
    session = await session_of(service)
    text, turn = await answer(service, errand(session, "r1"))
    assert text == ANSWER
    assert prompt_text(service).count("1122 merged") == 1
    assert prompt_types(service) == ["event reminder", "user turn"]
    await turn.settle()
    assert [part.type for part in service.worker.settled[-1].segments] == [
        *prompt_types(service),
        "model turn",
    ]
    await answer(service, errand(session, "r2"))
    assert prompt_text(service).count("1122 merged") == 1
    assert prompt_types(service) == [
        "event reminder",
        "user turn",
        "model turn",
        "user turn",
    ]
    listed = (await turns(service, session)).turns
    assert [(each.state, each.response) for each in listed] == [
        ("finished", "r1"),
        ("finished", "r2"),
    ]


@pytest.mark.req("ASM-6")
async def test_an_answer_is_kept_as_the_ids_that_were_generated(service: Service) -> None:
    session = await session_of(service)
    await answer(service, errand(session, "r1"))
    first = service.worker.asked[-1]
    await answer(service, errand(session, "r2"))
    second = service.worker.asked[-1]
    assert [part.block for part in second.segments[:1]] == [part.block for part in first.segments]
    kept = second.segments[1]
    assert kept.type == BlockType.MODEL_TURN.value
    assert kept.content == pack(tuple(ANSWER.encode()))
    shown = (await turns(service, session)).turns[0]
    assert shown.context == first.context


async def test_a_history_is_kept_as_text(service: Service) -> None:
    """The client sends its answer back as text: the block that it makes then is this one."""
    session = await session_of(service)
    history = said()
    await answer(service, errand(session, "r1", input=None, history=history))
    again = [*history, answer_block(ANSWER), *said("and?")]
    await answer(service, errand(session, "r2", input=None, history=again))
    first, second = service.worker.asked[-2:]
    assert [part.block for part in first.segments] == [second.segments[0].block]


async def test_what_is_in_front_is_kept_in_no_turn(service: Service) -> None:
    session = await session_of(service)
    await answer(service, errand(session, "r1", before=said("be brief")))
    assert prompt_text(service).count("be brief") == 1
    await answer(service, errand(session, "r2"))
    assert "be brief" not in prompt_text(service)


async def test_a_place_has_one_session(service: Service) -> None:
    places = [
        (await answer(service, errand(None, response, place=place)))[1].session
        for response, place in (("r1", "room a"), ("r2", "room a"), ("r3", "room b"))
    ]
    assert places[0] == places[1] != places[2]


@pytest.mark.req("EVT-5", "EVT-9")
async def test_a_place_that_was_idle_for_too_long_has_the_next_session() -> None:
    """The collection is due with the very turn, and takes neither it nor what it is told."""
    clock = AheadClock()
    async with running(clock=clock) as service:
        await happen(service, "1122")
        _, first = await answer(service, errand(None, "r1", place="room a"))
        clock.ahead_ns += 31 * DAY_NS
        await happen(service, "1123")
        text, second = await answer(service, errand(None, "r2", place="room a"))
        assert text == ANSWER
        assert second.session != first.session
        prompt = prompt_text(service)
        assert (prompt.count("1122 merged"), prompt.count("1123 merged")) == (0, 1)


async def test_going_on_from_an_earlier_response_branches(service: Service) -> None:
    session = await session_of(service)
    for response in ("r1", "r2"):
        await answer(service, errand(session, response, input=said(response)))
    await answer(service, errand(None, "r3", parent_response="r1", input=said("r3")))
    assert "r1" in prompt_text(service)
    assert "r2" not in prompt_text(service)


@pytest.mark.req("EVT-5")
@pytest.mark.parametrize(
    "script",
    [Script(break_after=3), Script(break_after=3, finish="cancelled")],
    ids=["worker failed", "answer cancelled"],
)
async def test_an_answer_that_broke_off_is_not_kept(service: Service, script: Script) -> None:
    await happen(service, "1122")
    session = await session_of(service)
    service.worker.script = script
    with pytest.raises(WorkerFault):
        await answer(service, errand(session, "r1"))
    assert [each.state for each in (await turns(service, session)).turns] == ["unfinished"]
    service.worker.script = Script()
    await answer(service, errand(session, "r2"))
    assert prompt_text(service).count("1122 merged") == 1
    assert prompt_types(service) == ["event reminder", "user turn"]


@pytest.mark.req("EVT-5")
async def test_a_client_that_goes_gives_its_turn_up(service: Service) -> None:
    session = await session_of(service)
    service.worker.script = Script(gate=asyncio.Event())
    began = service.worker.began.value
    task = asyncio.create_task(answer(service, errand(session, "r1")))
    await service.worker.began.wait_for(began + 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    service.worker.script = Script()
    # The next turn waits for the one that is being given up, and is not refused.
    await answer(service, errand(session, "r2"))
    states = [each.state for each in (await turns(service, session)).turns]
    assert states == ["unfinished", "finished"]


async def test_a_client_that_goes_while_its_turn_is_begun(service: Service) -> None:
    session = await session_of(service)
    for yields in range(1, 12):
        task = asyncio.create_task(answer(service, errand(session, f"r{yields}")))
        for _ in range(yields):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await answer(service, errand(session, "last"))
    states = {each.state for each in (await turns(service, session)).turns[:-1]}
    assert states <= {"unfinished"}


@pytest.mark.req("EVT-5")
async def test_the_lease_is_renewed_while_the_answer_comes() -> None:
    async with running(lease_ns=2 * 10**9) as service:
        session = await session_of(service)
        gate = asyncio.Event()
        service.worker.script = Script(gate=gate)
        leases: list[int] = []
        task = asyncio.create_task(
            answer(service, errand(session, "r1"), lambda turn: leases.append(turn.lease_ns))
        )
        began = service.worker.began.value
        await service.worker.began.wait_for(began + 1)
        while service.gateway.ports.clock.wall_ns() <= leases[0]:
            await asyncio.sleep(0.05)
        assert [each.state for each in (await turns(service, session)).turns] == ["open"]
        gate.set()
        await task
        assert [each.state for each in (await turns(service, session)).turns] == ["finished"]


@pytest.mark.req("EVT-5")
async def test_a_turn_that_was_lost_ends_its_answer() -> None:
    """Its lease ran out while nobody could renew it, and another turn went on."""
    async with running(lease_ns=10**9) as service:
        session = await session_of(service)
        service.worker.script = Script(answer="slow " * 1000, pace_s=0.02)
        task = asyncio.create_task(answer(service, errand(session, "r1")))
        await service.worker.began.wait_for(1)
        service.mailbox.down.add("events")
        await asyncio.sleep(1.2)
        service.mailbox.down.clear()
        service.worker.script = Script()
        await answer(service, errand(session, "r2"))
        with pytest.raises(Conflict):
            await task
        states = [each.state for each in (await turns(service, session)).turns]
        assert states == ["unfinished", "finished"]


@pytest.mark.req("EVT-5")
@pytest.mark.parametrize("waits", [True, False])
async def test_a_second_turn_waits_for_the_first_or_is_refused(waits: bool) -> None:
    async with running(Limits(turn_wait_ns=60 * 10**9 if waits else 10**6)) as service:
        session = await session_of(service)
        gate = asyncio.Event()
        service.worker.script = Script(gate=gate)
        first = asyncio.create_task(answer(service, errand(session, "r1")))
        await service.worker.began.wait_for(1)
        second = asyncio.create_task(answer(service, errand(session, "r2")))
        if not waits:
            with pytest.raises(Conflict) as refused:
                await second
            assert refused.value.details["reason"] == "turn_in_progress"
        gate.set()
        await first
        if waits:
            await second
        listed = (await turns(service, session)).turns
        assert [each.response for each in listed] == (["r1", "r2"] if waits else ["r1"])
        assert {each.state for each in listed} == {"finished"}


@pytest.mark.req("EVT-5")
async def test_whoever_waits_for_a_turn_has_one() -> None:
    """Each for itself: that another goes first is no reason to be refused."""
    async with running(Limits(turn_wait_ns=300 * 10**9), lease_ns=600 * 10**9) as service:
        session = await session_of(service)
        names = [f"r{number}" for number in range(5)]
        gate = asyncio.Event()
        service.worker.script = Script(gate=gate)
        posts = [asyncio.create_task(answer(service, errand(session, names[0])))]
        await service.worker.began.wait_for(1)
        posts += [asyncio.create_task(answer(service, errand(session, name))) for name in names[1:]]
        gate.set()
        await asyncio.wait_for(asyncio.gather(*posts), 300)
        listed = (await turns(service, session)).turns
        assert [each.state for each in listed] == ["finished"] * len(names)
        assert sorted(each.response for each in listed if each.response) == names
        assert [each.parent for each in listed[1:]] == [each.id for each in listed[:-1]]


async def test_a_prompt_that_is_too_long_gives_its_turn_up(service: Service) -> None:
    session = await session_of(service)
    with pytest.raises(BudgetExceeded):
        await answer(service, errand(session, "r1", input=said("x" * 5000)))
    assert [each.state for each in (await turns(service, session)).turns] == ["unfinished"]


async def test_a_note_comes_back_with_its_response(service: Service) -> None:
    session = await session_of(service)

    def note(turn: SessionTurn, choice: Choice) -> bytes:
        return f"{turn.session} {choice.finish}".encode()

    await answer(service, errand(session, "r1", note=note))
    ask = AskResponse(namespace="operator", response="r1")
    row = await ask_events(caller_of(service), "response", ask, ResponseRow)
    assert row.note == f"{session} stop".encode()


async def test_a_session_that_is_not_there(service: Service) -> None:
    for wrong in (errand("session-x", "r"), errand(None, "r", parent_response="resp_x")):
        with pytest.raises(NotVisible):
            await answer(service, wrong)


async def test_without_the_events_room_sessions_say_so(service: Service) -> None:
    session = await session_of(service)
    service.mailbox.down.add("events")
    with pytest.raises(Unavailable, match="sessions are not available now"):
        await answer(service, errand(session, "r1"))
    assert service.gateway.is_ready


async def test_an_answer_that_could_not_be_kept_is_not_told(service: Service) -> None:
    session = await session_of(service)
    gate = asyncio.Event()
    service.worker.script = Script(gate=gate)
    began = service.worker.began.value
    task = asyncio.create_task(answer(service, errand(session, "r1")))
    await service.worker.began.wait_for(began + 1)
    service.mailbox.down.add("events")
    gate.set()
    with pytest.raises(Unavailable, match="sessions are not available now"):
        await task


def test_ids_that_do_not_spell_the_answer_are_not_kept() -> None:
    tokenizer = FakeTokenizer()
    ids = pack(tuple(b" Hi.\n"))
    assert spells(tokenizer, ids, "Hi.")
    assert not spells(tokenizer, ids, "Hi. A")
    assert not spells(tokenizer, b"", "")
    assert spells(tokenizer, pack((0xFF,)), "\ufffd")
