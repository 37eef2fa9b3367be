"""Looking for what is known: in one's own domain alone, at one cost, and a miss tells nothing."""

from __future__ import annotations

import pytest

from actors.muninn.limits import MemoLimits
from protocol.capability import issue
from protocol.errors import CapabilityError, ContentError, InvocationError, StoreFault
from protocol.messages import Empty
from protocol.messages import muninn as messages
from protocol.messages.authority import Revoke
from protocol.resource import Resource, ResourceKind, Right
from tests.derivations import advance
from tests.muninn_rooms import Raven, look_of
from tests.rooms import Principal, opened


@pytest.mark.req("DRV-6", "AUT-5")
async def test_another_domains_evidence_is_never_seen(raven: Raven, alice: Principal) -> None:
    bob = await raven.house.enroll("bob")
    for number in range(3):
        await raven.remember(advance(number))
    raven.held.hold("bob", advance(0))
    assert await raven.known(alice, advance(0)) == [True]
    assert await raven.known(bob, *(advance(n) for n in range(3))) == [False] * 3
    # Its own word is its own, and a contradiction of another domain's is none.
    other = advance(0, page=1)
    assert await raven.remember(other, domain="bob") == ["inserted"]
    (answer,) = await raven.look(bob, other)
    assert answer.outputs == list(other.outputs)
    assert await raven.known(alice, advance(0)) == [True]


@pytest.mark.req("DRV-6", "AUT-5")
async def test_a_miss_tells_nothing(raven: Raven, alice: Principal) -> None:
    """Never there, another's, evicted, quarantined, expired, lost: the same bytes."""
    raven.limits = MemoLimits(entries_max=500, resident_max=2)
    await raven.restart()
    await raven.remember(advance(1), domain="bob")
    await raven.remember(*(advance(n) for n in (2, 3, 4, 5)))
    await raven.remember(advance(3, page=1))
    await raven.verified(messages.Check(domain="alice", invocation=advance(4).invocation))
    raven.held.ids["alice"] -= {output.id for output in advance(5).outputs}
    answers = set()
    for number in (0, 1, 2, 3, 4, 5):
        raven.house.post.forget()
        await raven.look(alice, advance(number))
        answers.add(raven.house.post.replies[-1])
    assert len(answers) == 1


@pytest.mark.req("DRV-6")
async def test_a_hit_and_a_miss_cost_the_same(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    await raven.remember(*(advance(n) for n in range(3)))
    account = 0
    for wanted in ([advance(0)], [advance(9)], [advance(n) for n in range(5)], []):
        asked = alice.message("muninn", "look", look_of(*wanted))
        looked = opened(await raven.house.post.call("muninn", asked), messages.Looked)
        account += len(wanted)
        assert looked.charged == len(wanted)
        assert await raven.charged(operator) == {alice.signer.public: account}
    # The account outlives the room.
    await raven.restart()
    await raven.look(alice, advance(7))
    assert await raven.charged(operator) == {alice.signer.public: account + 1}
    # And so does a memo that is not there cost.
    raven.tables = None
    await raven.restart()
    await raven.look(alice, advance(0))
    assert await raven.charged(operator) == {alice.signer.public: 1}


@pytest.mark.req("DRV-6")
async def test_only_one_with_telemetry_in_its_domain_looks(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    await raven.remember(advance(1))
    ask = look_of(advance(1))
    # A room's own handle reads nothing and has no domain; the one that operates reads nothing.
    with pytest.raises(InvocationError, match="needs the right 'telemetry'"):
        await raven.ask_as_room("worker", "look", ask, messages.Looked)
    with pytest.raises(ContentError, match="names no computation-sharing domain"):
        await operator.caller.ask("muninn", "look", ask, messages.Looked, administer=True)
    blind = alice.chain("muninn", rights=(Right.READ, Right.GENERATE))
    with pytest.raises(InvocationError, match="needs the right 'telemetry'"):
        await raven.look(alice, advance(1), chain=blind)
    assert await raven.charged(operator) == {}
    assert raven.held is not None
    assert raven.held.asked == []


@pytest.mark.req("DRV-5")
async def test_a_look_without_a_domain_is_the_callers_mistake(raven: Raven) -> None:
    nobody = await raven.house.enroll("nobody")
    chain = issue(
        raven.house.root,
        audience=nobody.signer.public,
        resource=Resource(kind=ResourceKind.NAMESPACE, name="nobody"),
        rights=(Right.TELEMETRY,),
        nbf_ns=raven.house.clock.wall_ns(),
        exp_ns=raven.house.clock.wall_ns() + 10**9,
        nonce=bytes(16),
    )
    with pytest.raises(ContentError, match="names no computation-sharing domain"):
        await raven.look(nobody, advance(1), chain=chain)


@pytest.mark.req("DRV-6", "AUT-4")
async def test_one_who_is_revoked_while_it_is_answered_gets_no_answer(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    await raven.remember(advance(1))

    async def revoke() -> None:
        raven.held.meanwhile = None
        await operator.caller.ask(
            "authority", "revoke", Revoke(name="alice"), Empty, administer=True
        )

    raven.held.meanwhile = revoke
    with pytest.raises(CapabilityError) as caught:
        await raven.look(alice, advance(1))
    assert caught.value.step == "revocation"
    with pytest.raises(CapabilityError):
        await raven.look(alice, advance(1))


@pytest.mark.req("DRV-6")
async def test_an_epoch_that_moves_for_others_changes_nothing(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    await raven.remember(advance(1))
    await raven.house.enroll("bob")

    async def revoke() -> None:
        await operator.caller.ask("authority", "revoke", Revoke(name="bob"), Empty, administer=True)

    raven.held.meanwhile = revoke
    assert await raven.known(alice, advance(1)) == [True]


@pytest.mark.req("DRV-6")
async def test_a_handle_that_ends_while_it_is_answered_gets_no_answer(
    raven: Raven, alice: Principal
) -> None:
    await raven.remember(advance(1))

    async def wait() -> None:
        raven.house.clock.now_ns += 61 * 10**9

    raven.held.meanwhile = wait
    with pytest.raises(CapabilityError) as caught:
        await raven.look(alice, advance(1))
    assert caught.value.step == "time"


@pytest.mark.req("DRV-4")
async def test_a_conflict_while_it_is_answered_is_no_answer(raven: Raven, alice: Principal) -> None:
    await raven.remember(advance(1))

    async def contradict() -> None:
        assert await raven.remember(advance(1, page=1)) == ["conflict"]

    raven.held.meanwhile = contradict
    assert await raven.known(alice, advance(1)) == [False]


@pytest.mark.req("DRV-4")
async def test_outputs_that_are_gone_are_expired_and_come_back(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    await raven.remember(advance(1), advance(2))
    lost = advance(1).outputs[-1].id
    raven.held.ids["alice"].discard(lost)
    assert await raven.known(alice, advance(1), advance(2)) == [False, True]
    assert [(domain, len(asked)) for domain, asked in raven.held.asked] == [("alice", 2)] * 2
    counters = (await raven.status(operator)).counters
    assert (counters["look expired"], counters["look known"], counters["look unknown"]) == (1, 1, 1)
    raven.held.ids["alice"].add(lost)
    assert await raven.known(alice, advance(1)) == [True]


@pytest.mark.req("DRV-5")
async def test_who_cannot_be_asked_holds_nothing(raven: Raven, alice: Principal) -> None:
    await raven.remember(advance(1))
    for trouble in (StoreFault("gone"), ValueError("a defect")):
        raven.held.trouble = trouble
        assert await raven.known(alice, advance(1)) == [False]
    raven.held.trouble = None
    assert await raven.known(alice, advance(1)) == [True]
