"""What cannot be assembled is refused with its reason, and stores nothing."""

from __future__ import annotations

import pytest

from protocol.errors import ContentError, HuginnError, InvocationError, NotVisible
from protocol.ids import SequenceId
from protocol.messages import assembler as messages
from protocol.messages import ropes
from tests.assembler_rooms import TALK, expected
from tests.block_samples import user
from tests.rooms import Installation, Principal, assemble, assembled

REFUSED: dict[str, tuple[messages.Assemble, type[HuginnError], str]] = {
    "unknown profile": (
        assemble(TALK, profile="owl"),
        ContentError,
        "no profile 'owl' here; there are: crow, raven",
    ),
    "unknown template": (
        assemble(TALK, template="chatml"),
        ContentError,
        "no template 'chatml' for raven: there are gemma3-it, gemma3-transcript",
    ),
    "another's namespace": (assemble(TALK, namespace="bob"), NotVisible, "no such namespace"),
    "a namespace that begins alike": (
        assemble(TALK, namespace="alice2"),
        NotVisible,
        "no such namespace",
    ),
    "neither": (assemble(None), ContentError, "either blocks or a stored sequence"),
    "both": (
        assemble(TALK, sequence=SequenceId(b"s" * 32)),
        ContentError,
        "either blocks or a stored sequence",
    ),
    "no text": (
        assemble([], blocks=[ropes.NewBlock(block=user("a")[0], content=b"ab\xff")]),
        ContentError,
        "not UTF-8 at byte 2",
    ),
    "another content": (
        assemble([], blocks=[ropes.NewBlock(block=user("a")[0], content=b"b")]),
        ContentError,
        "its content is",
    ),
    "no budget": (assemble(TALK, tokens_max=0), ContentError, "at least one token"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_assembled_stores_nothing(
    house: Installation, alice: Principal, name: str
) -> None:
    ask, kind, text = REFUSED[name]
    before = house.store.stats()
    with pytest.raises(HuginnError, match=text) as caught:
        await assembled(alice, ask)
    assert type(caught.value) is kind
    assert house.store.stats() == before


@pytest.mark.req("AUT-3")
async def test_nobody_can_give_anothers_block_other_tokens(
    house: Installation, alice: Principal
) -> None:
    """Tokens are remembered by block id for all: a lie about content must not get that far."""
    mallory = await house.enroll("mallory")
    for store in (False, True):
        for (block, _), (_, lie) in zip(TALK, [*TALK[1:], TALK[0]], strict=True):
            forged = [ropes.NewBlock(block=block, content=lie.encode())]
            ask = assemble([], namespace="mallory", blocks=forged, store=store)
            with pytest.raises(ContentError, match="its content is"):
                await assembled(mallory, ask)
    assert await assembled(alice, assemble(TALK)) == expected(TALK)
    for pair in TALK:
        assert await assembled(alice, assemble([pair])) == expected([pair])


async def test_one_who_may_not_write_assembles_without_storing(house: Installation) -> None:
    reader = await house.enroll("reader", rights=["assemble", "read"])
    ask = assemble(TALK, namespace="reader")
    with pytest.raises(InvocationError, match="needs the right 'write'"):
        await assembled(reader, ask)
    unstored = assemble(TALK, namespace="reader", store=False)
    assert await assembled(reader, unstored) == expected(TALK)
