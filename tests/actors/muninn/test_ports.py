"""Who holds outputs: the rooms are asked under the caller's own chains."""

from __future__ import annotations

import pytest

from protocol.derivation import Derivation
from protocol.families import assembled as assembled_derivation
from protocol.ids import TokensId
from protocol.messages import assembler
from protocol.messages import muninn as messages
from tests.block_samples import user
from tests.derivations import advance
from tests.muninn_rooms import Raven, look_of
from tests.rooms import Principal, assemble, assembled, opened


@pytest.fixture
async def raven() -> Raven:
    """No stand-in: the rooms themselves are asked."""
    made = Raven()
    made.held = None
    return await made.start()


async def stored(alice: Principal) -> Derivation:
    """What an assembly of alice's was, in terms of derivations."""
    answer = await assembled(alice, assemble([user("Which one?")]))
    show = assembler.Show(context=answer.context, tokens=False)
    shown = await alice.caller.ask("assembler", "show", show, assembler.Shown, delegate=("ropes",))
    stream = b"".join(part.head + part.content for part in answer.segments)
    return assembled_derivation(shown.assembly, TokensId.of(stream))


async def known(principal: Principal, derivation: Derivation) -> bool:
    """Whether a look that may ask the ropes and worker rooms finds it."""
    found = await principal.caller.ask(
        "muninn", "look", look_of(derivation), messages.Looked, delegate=("ropes", "worker")
    )
    return found.answers[0].state == "known"


@pytest.mark.req("DRV-6", "AUT-3")
async def test_a_context_is_there_while_the_ropes_room_shows_it(raven: Raven) -> None:
    alice = await raven.house.enroll("alice")
    made = await stored(alice)
    execution = raven.execution(made, "assembler")
    assert [each.result for each in await raven.report(execution, room="assembler")] == ["inserted"]
    assert await known(alice, made)
    # Under a chain that does not come, nobody can be asked.
    message = alice.message("muninn", "look", look_of(made))
    (answer,) = opened(await raven.house.post.call("muninn", message), messages.Looked).answers
    assert answer.state == "unknown"
    # Another one, in whose domain the same was reported, does not see the context.
    bob = await raven.house.enroll("bob")
    theirs = raven.execution(made, "assembler", domain="bob")
    await raven.report(theirs, room="assembler")
    assert not await known(bob, made)
    # A room that died holds nothing, and comes back with it.
    raven.house.post.down.add("ropes")
    assert not await known(alice, made)
    raven.house.post.down.clear()
    assert await known(alice, made)


@pytest.mark.req("DRV-6")
async def test_a_page_without_a_worker_is_held_by_nobody(raven: Raven) -> None:
    alice = await raven.house.enroll("alice")
    await raven.remember(advance(1))
    assert not await known(alice, advance(1))
