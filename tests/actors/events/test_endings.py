"""Endings: an answer is kept once, as the ids that were generated, and never of a turn given up."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from protocol.blocks import Role
from protocol.errors import Conflict, ContentError, LimitExceeded, NotVisible
from protocol.ids import ContextId, ContractId
from protocol.messages import Empty, ropes
from protocol.messages import events as messages
from protocol.record import object_id
from protocol.tokens import pack
from tests.events_rooms import NAMESPACE, House, texts, user
from tests.fake_tokenizer import CONTROL, FakeTokenizer

TOKENIZER = ContractId(object_id(FakeTokenizer().contract).digest)
# Not what the text tokenizes to: as a model may well have said it.
IDS = pack([65, 66])


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await House().start()
    yield house
    await house.room.drain()


@pytest.fixture
async def begun(house: House) -> messages.BegunTurn:
    return await house.begin((await house.open()).id, input=[user("a")])


@pytest.mark.req("ASM-6")
async def test_an_answer_is_kept_as_the_ids_that_were_generated(
    house: House, begun: messages.BegunTurn
) -> None:
    finished = await house.finish(begun, "AB", ids=IDS, tokenizer=TOKENIZER)
    answer = finished.blocks[-1]
    assert answer.block.representation.kind == "exact-tokens"
    assert answer.block.representation.tokens == IDS
    assert answer.content == b"AB"
    await house.crash()
    second = await house.begin(begun.session, input=[user("b")])
    assert second.blocks[:-1] == finished.blocks


@pytest.mark.req("ASM-6")
async def test_a_client_that_keeps_its_history_has_its_answer_as_text(house: House) -> None:
    begun = await house.begin((await house.open()).id, history=[user("a")])
    finished = await house.finish(begun, "AB", ids=IDS, tokenizer=TOKENIZER)
    assert finished.blocks[-1].block.representation.kind == "exact-text"


@pytest.mark.req("EVT-5")
async def test_finishing_twice_is_once(house: House, begun: messages.BegunTurn) -> None:
    first = await house.finish(begun, "answer")
    await house.crash()
    assert await house.finish(begun, "answer") == first
    with pytest.raises(Conflict, match="another answer") as caught:
        await house.finish(begun, "something else")
    assert caught.value.details["reason"] == "turn_finished"


async def test_the_answer_can_be_read_by_its_sequence(
    house: House, begun: messages.BegunTurn
) -> None:
    finished = await house.finish(begun, "answer")
    ask = ropes.ReadSequence(sequence=finished.sequence, start=0)
    read = await house.principal.caller.ask("ropes", "read", ask, ropes.SequenceBlocks)
    assert read.blocks == finished.blocks


async def test_a_turn_that_was_given_up_has_no_answer(
    house: House, begun: messages.BegunTurn
) -> None:
    await house.abandon(begun)
    await house.abandon(begun)
    with pytest.raises(Conflict, match="unfinished"):
        await house.finish(begun)
    second = await house.begin(begun.session, input=[user("b")])
    assert second.blocks == [user("b")]


async def test_giving_up_a_finished_turn_does_nothing(
    house: House, begun: messages.BegunTurn
) -> None:
    await house.finish(begun)
    await house.abandon(begun)
    listed = await house.turns(begun.session)
    assert [turn.state for turn in listed.turns] == ["finished"]


async def test_a_late_answer_is_kept_if_nobody_went_on(
    house: House, begun: messages.BegunTurn
) -> None:
    house.passes(300)
    await house.finish(begun, "late")
    assert (await house.turns(begun.session)).turns[0].state == "finished"


async def test_what_goes_with_an_answer_is_given_back(
    house: House, begun: messages.BegunTurn
) -> None:
    context = ContextId.of(b"context")
    ask = messages.FinishTurn(
        namespace=NAMESPACE,
        session=begun.session,
        turn=begun.turn,
        answer=messages.OutputBlock(text="x", role=Role.MODEL),
        context=context,
        note=b"note",
    )
    named = messages.AskResponse(namespace=NAMESPACE, response="resp-1")
    with pytest.raises(NotVisible):
        await house.ask("response", named, messages.ResponseRow)
    await house.ask("finish_turn", ask, messages.FinishedTurn)
    await house.crash()
    row = await house.ask("response", named, messages.ResponseRow)
    assert (row.session, row.turn.id, row.note) == (begun.session, begun.turn, b"note")
    assert row.turn.context == context
    await house.ask("forget_response", named, Empty)
    for op, reply in (("response", messages.ResponseRow), ("forget_response", Empty)):
        with pytest.raises(NotVisible):
            await house.ask(op, named, reply)
    # The turn itself stays.
    assert len((await house.turns(begun.session)).turns) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"role": Role.USER}, ContentError),
        ({"ids": IDS}, ContentError),
        ({"ids": pack([CONTROL["eos"]]), "tokenizer": TOKENIZER}, ContentError),
        ({"ids": b"abc", "tokenizer": TOKENIZER}, ContentError),
    ],
)
async def test_what_is_no_answer(
    house: House,
    begun: messages.BegunTurn,
    answer: dict[str, object],
    error: type[Exception],
) -> None:
    block = messages.OutputBlock(**{"text": "x", "role": Role.MODEL, **answer})
    ask = messages.FinishTurn(
        namespace=NAMESPACE, session=begun.session, turn=begun.turn, answer=block
    )
    with pytest.raises(error):
        await house.ask("finish_turn", ask, messages.FinishedTurn)
    await house.finish(begun)


async def test_a_note_is_short(house: House, begun: messages.BegunTurn) -> None:
    ask = messages.FinishTurn(
        namespace=NAMESPACE,
        session=begun.session,
        turn=begun.turn,
        answer=messages.OutputBlock(text="x", role=Role.MODEL),
        note=bytes(messages.NOTE_BYTES_MAX + 1),
    )
    with pytest.raises(LimitExceeded):
        await house.ask("finish_turn", ask, messages.FinishedTurn)


@pytest.mark.req("AUT-3", "AUT-7")
@pytest.mark.parametrize("forgotten", [False, True])
async def test_who_may_not_read_ends_its_turn_and_is_told_no_conversation(
    house: House, forgotten: bool
) -> None:
    blind = await house.rooms.enroll("blind", namespace=NAMESPACE, rights=["generate", "write"])
    opened = messages.OpenSession(namespace=NAMESPACE, persona="Timmy", since="now")
    session = (await house.ask("open_session", opened, messages.SessionRow, as_=blind)).id
    ask = messages.BeginTurn(
        namespace=NAMESPACE, session=session, response="r", wait_ns_max=0, input=[user("a")]
    )
    begun = await house.ask("begin_turn", ask, messages.BegunTurn, as_=blind)
    assert begun.blocks == [user("a")]
    if forgotten:
        await house.crash()
    answer = messages.OutputBlock(text="Well.", role=Role.MODEL)
    finish = messages.FinishTurn(
        namespace=NAMESPACE, session=session, turn=begun.turn, answer=answer
    )
    for _ in range(2):
        finished = await house.ask("finish_turn", finish, messages.FinishedTurn, as_=blind)
        assert finished.blocks == []
        if forgotten:
            await house.crash()
    # It is kept as any other, for who may read it.
    read = await house.ask("finish_turn", finish, messages.FinishedTurn)
    assert (read.sequence, texts(read.blocks)) == (finished.sequence, ["a", "Well."])
    assert texts((await house.begin(session, input=[user("b")])).blocks) == ["a", "Well.", "b"]
