"""Turns that a courier carries, as a transport would, less its own dialect."""

from __future__ import annotations

from collections.abc import Callable

from actors.gateway.answers import Answers, collect
from actors.gateway.courier import Errand, SessionTurn, carry
from actors.gateway.messages import Message, message_blocks
from actors.gateway.sessions import ask_events, open_session
from actors.gateway.turns import Ask, jobs
from protocol.messages.events import AskSession, Turns
from protocol.messages.ropes import NewBlock
from protocol.messages.worker import GREEDY
from tests.fake_rooms import Service
from tests.happenings import QUESTION, caller_of

ASK = Ask(GREEDY, [], 1, None, None, deliver_trim=True)


def said(text: str = QUESTION) -> list[NewBlock]:
    return message_blocks([Message(role="user", content=text)])


async def answer(
    service: Service,
    errand: Errand,
    during: Callable[[SessionTurn], object] | None = None,
) -> tuple[str, SessionTurn]:
    """What a transport does with a turn, less its own dialect."""
    caller, gateway = caller_of(service), service.gateway
    model = gateway.models.find(None)
    assert model is not None
    async with carry(gateway, caller, model, errand) as turn:
        if during is not None:
            during(turn)
        work = jobs(turn.prompt, ASK, model, turn.response, gateway.limits)
        async with Answers(caller, model.room, work, turn.items) as answers:
            choice = (await collect(answers, 1))[0]
    return "".join(choice.text), turn


async def session_of(service: Service) -> str:
    return (await open_session(caller_of(service), "operator")).id


async def turns(service: Service, session: str) -> Turns:
    ask = AskSession(namespace="operator", id=session)
    return await ask_events(caller_of(service), "turns", ask, Turns)


def errand(session: str | None, response: str, **more: object) -> Errand:
    fields = {"namespace": "operator", "session": session, "response": response, "input": said()}
    return Errand(**(fields | more))  # type: ignore[arg-type]
