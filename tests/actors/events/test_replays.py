"""What a turn's key stands for: told again as it was told, and refused with anything else."""

from __future__ import annotations

from typing import Any

import pytest

from actors.events.book import TURNS
from actors.events.replays import asked_digest
from protocol import cbor
from protocol.blocks import Role
from protocol.errors import Conflict, ContentError
from protocol.ids import ContextId
from protocol.messages.events import (
    KEY_REUSED,
    TERMS_BYTES,
    BeginTurn,
    BegunTurn,
    FinishedTurn,
    FinishTurn,
    OutputBlock,
    TurnUsage,
)
from store.tables import Put
from tests.events_rooms import NAMESPACE, House, merged, model, said, user

USAGE = TurnUsage(prompt_tokens=41, output_tokens=3, reused_tokens=17)
CONTEXT = ContextId.of(b"a context")
TERMS = b"t" * TERMS_BYTES


async def finish(house: House, begun: BegunTurn, text: str = "cut sho", **changes: Any) -> None:
    fields: dict[str, Any] = {
        "namespace": NAMESPACE,
        "session": begun.session,
        "turn": begun.turn,
        "answer": OutputBlock(text=text, role=Role.MODEL),
        "context": CONTEXT,
        "finish": "length",
        "usage": USAGE,
        **changes,
    }
    await house.ask("finish_turn", FinishTurn(**fields), FinishedTurn)


def reused() -> pytest.RaisesExc[Conflict]:
    return pytest.RaisesExc(
        Conflict, check=lambda error: error.details["reason"] == KEY_REUSED, match="another input"
    )


@pytest.mark.parametrize("crashes", [False, True])
async def test_an_answer_is_told_again_with_all_that_was_told_of_it(
    house: House, session: str, crashes: bool
) -> None:
    await house.emit("huskies", merged("1"))
    first = await house.begin(session, input=[user("a")], key="k", terms=TERMS, response="resp-k")
    await finish(house, first)
    if crashes:
        await house.crash()
    again = await house.begin(session, input=[user("a")], key="k", terms=TERMS)
    assert (again.answer, again.response, again.turn) == ("cut sho", "resp-k", first.turn)
    assert (again.finish, again.usage, again.context) == ("length", USAGE, CONTEXT)
    assert again.blocks == first.blocks
    assert len((await house.turns(session)).turns) == 1


@pytest.mark.req("AUT-7")
async def test_what_was_reused_is_told_again_to_the_same_one_alone(
    house: House, session: str
) -> None:
    first = await house.begin(session, input=[user("a")], key="k")
    await finish(house, first)
    other = await house.rooms.enroll("other", namespace=NAMESPACE)
    ask = BeginTurn(
        namespace=NAMESPACE,
        session=session,
        response="r",
        wait_ns_max=0,
        input=[user("a")],
        key="k",
    )
    again = await house.ask("begin_turn", ask, BegunTurn, as_=other)
    assert again.answer == "cut sho"
    assert again.usage == TurnUsage(prompt_tokens=41, output_tokens=3, reused_tokens=0)


@pytest.mark.parametrize("state", ["open", "finished"])
async def test_a_key_with_anything_else_is_refused(house: House, session: str, state: str) -> None:
    parent = await house.talk(session, "before")
    asked: dict[str, Any] = {"input": [user("a")], "key": "k", "terms": TERMS}
    begun = await house.begin(session, **asked)
    if state == "finished":
        await finish(house, begun)
        await house.crash()
    for other in (
        {"input": [user("b")]},
        {"input": [user("a"), user("a")]},
        {"input": None, "history": [user("a")]},
        {"terms": b"u" * TERMS_BYTES},
        {"terms": None},
        {"parent": parent.turn},
        {"tokens_max": 9_000},
    ):
        with reused():
            await house.begin(session, **(asked | other))
    if state == "finished":
        assert (await house.begin(session, **asked)).answer == "cut sho"
    assert len((await house.turns(session)).turns) == 2


async def test_a_parent_that_is_named_by_its_response_is_of_what_was_asked(
    house: House, session: str
) -> None:
    for response in ("r1", "r2"):
        begun = await house.begin(session, input=[user(response)], response=response)
        await finish(house, begun)
    asked: dict[str, Any] = {"input": [user("a")], "key": "k"}
    begun = await house.begin(None, parent_response="r1", **asked)
    await finish(house, begun)
    assert (await house.begin(None, parent_response="r1", **asked)).turn == begun.turn
    with reused():
        await house.begin(None, parent_response="r2", **asked)


async def test_a_history_that_differs_anywhere_is_another_input(house: House, session: str) -> None:
    history = [said(Role.SYSTEM, "Be brief."), user("a"), model("A."), user("b")]
    begun = await house.begin(session, history=history, key="k")
    await finish(house, begun)
    assert (await house.begin(session, history=history, key="k")).answer == "cut sho"
    for other in (history[1:], [*history[:2], model("B."), history[3]], [*history, user("c")]):
        with reused():
            await house.begin(session, history=other, key="k")


async def test_an_interrupted_turn_holds_its_key_for_nothing(house: House, session: str) -> None:
    first = await house.begin(session, input=[user("a")], key="k")
    await house.abandon(first)
    second = await house.begin(session, input=[user("b")], key="k")
    assert (second.answer, second.turn != first.turn) == (None, True)
    await finish(house, second)
    assert (await house.begin(session, input=[user("b")], key="k")).turn == second.turn


async def test_a_turn_of_before_is_answered_as_it_was_then(house: House, session: str) -> None:
    """Its row says neither what was asked nor how the answer ended."""
    begun = await house.begin(session, input=[user("a")], key="k")
    await finish(house, begun)
    table = house.tables.keyed(TURNS)
    ((place, row),) = table.items()
    fields = cbor.decode(row)
    assert isinstance(fields, dict)
    older = {name: fields[name] for name in fields if name not in ("asked", "finish", "usage")}
    assert len(fields) - len(older) == 3
    house.tables.apply([Put(TURNS, place, cbor.encode(older))])
    await house.crash()
    again = await house.begin(session, input=[user("b")], key="k")
    assert (again.answer, again.finish, again.usage) == ("cut sho", None, None)


async def test_terms_are_a_digest(house: House, session: str) -> None:
    with pytest.raises(ContentError, match="digest of 32 bytes"):
        await house.begin(session, input=[user("a")], key="k", terms=b"short")


def test_what_differs_from_try_to_try_is_not_asked() -> None:
    ask = BeginTurn(
        namespace="alice", response="r1", wait_ns_max=0, session="s", input=[user("a")], key="k"
    )
    again = BeginTurn(
        namespace="alice", response="r2", wait_ns_max=9, session="s", input=[user("a")], key="k"
    )
    assert asked_digest(ask) == asked_digest(again)
    assert asked_digest(BeginTurn(namespace="alice", response="r", wait_ns_max=0)) is None
