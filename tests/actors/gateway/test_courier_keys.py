"""A turn asked for again by its key: the whole answer again, or a refusal; never another's."""

from __future__ import annotations

import msgspec
import pytest

from actors.gateway.answers import Answers, collect
from actors.gateway.courier import carry
from actors.gateway.models import ServedModel
from actors.gateway.turns import jobs
from protocol.errors import Conflict
from protocol.messages.events import KEY_REUSED
from tests.errands import ASK, answer, errand, said, session_of, turns
from tests.fake_rooms import Service
from tests.fake_tokenizer import FakeTokenizer
from tests.happenings import caller_of
from tests.scripted_worker import Script


async def test_a_key_that_was_seen_is_answered_as_it_was(service: Service) -> None:
    session = await session_of(service)
    text, _ = await answer(service, errand(session, "r1", key="k"))
    asked = len(service.worker.asked)
    again, turn = await answer(service, errand(session, "r2", key="k"))
    assert (again, turn.response, turn.is_known) == (text, "r1", True)
    assert len(service.worker.asked) == asked
    await turn.settle()
    assert len((await turns(service, session)).turns) == 1


async def test_what_is_told_again_is_what_was_told(service: Service) -> None:
    """Also by a service that has another model now, with less context."""
    session = await session_of(service)
    caller, gateway = caller_of(service), service.gateway
    known = gateway.models.find(None)
    assert known is not None
    info = msgspec.structs.replace(known.info, name="crow", context_tokens=2)
    other = ServedModel("crow", "crow-exact", "worker", info, FakeTokenizer(), 1_800_000_000)
    service.worker.script = Script(answer="four words, cut short", break_after=9, finish="length")
    await answer(service, errand(session, "r0", input=said("warm")))
    told = []
    for response, model in (("r1", known), ("r2", known), ("r3", other)):
        asked = errand(session, response, input=said("again"), key="k")
        async with carry(gateway, caller, model, asked) as turn:
            work = jobs(turn.prompt, ASK, model, turn.response, gateway.limits)
            async with Answers(caller, model.room, work, turn.items) as answers:
                (choice,) = await collect(answers, 1)
        told.append(
            (
                "".join(choice.text),
                choice.finish,
                choice.completion_tokens,
                choice.reused_tokens,
                turn.prompt.tokens,
                turn.prompt.context,
                (turn.session, turn.turn, turn.response),
            )
        )
    assert told[0][:3] == ("four word", "length", 9)
    assert told[0][3] > 0
    assert told[1:] == [told[0]] * 2
    assert len(service.worker.asked) == 2


async def test_a_key_with_another_input_or_other_terms_is_refused(service: Service) -> None:
    session = await session_of(service)
    await answer(service, errand(session, "r1", key="k", terms=b"a" * 32))
    for more in ({"input": said("else")}, {"terms": b"b" * 32}, {"terms": None}):
        with pytest.raises(Conflict) as refused:
            await answer(
                service, errand(session, "r2", **({"key": "k", "terms": b"a" * 32} | more))
            )
        assert refused.value.details["reason"] == KEY_REUSED
    assert len(service.worker.asked) == 1
