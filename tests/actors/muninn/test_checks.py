"""Samples that are executed again: whose word on them counts, and what a conflict shows."""

from __future__ import annotations

import pytest

from protocol.derivation import Derivation, invocation_id
from protocol.ids import ContextId, EvidenceId
from protocol.messages import muninn as messages
from protocol.signing import Signer
from tests.derivations import advance, generation
from tests.derivations import signed as signed_by
from tests.muninn_rooms import Raven
from tests.rooms import Principal


@pytest.mark.req("DRV-4")
async def test_a_sample_is_executed_again_and_compared(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    await raven.remember(*(advance(n) for n in range(4)))
    sampled = await raven.sample(operator, 4, b"seed")
    assert {each.invocation for each in sampled} == {advance(n).invocation for n in range(4)}
    assert await raven.sample(operator, 2, b"seed") == sampled[:2]
    again = {advance(n).invocation: n for n in range(4)}
    checks = []
    for place, each in enumerate(sampled):
        number = again[each.invocation]
        derivation = advance(number, page=1 if place == 1 else 0)
        evidence = raven.evidence(derivation, run=5, verifier=each.evidence)
        checks.append(
            messages.Check(
                domain=each.domain,
                invocation=each.invocation,
                evidence=None if place == 2 else evidence,
            )
        )
    results = await raven.verified(*checks)
    assert [each.result for each in results] == ["equal", "conflict", "expired", "equal"]
    known = [await raven.known(alice, advance(again[each.invocation])) for each in sampled]
    assert known == [[True], [False], [False], [True]]
    status = await raven.status(operator)
    assert {k: n for k, n in status.counters.items() if k.startswith("check")} == {
        "check equal": 2,
        "check conflict": 1,
        "check expired": 1,
    }
    # What was not checked is no success, and a check that is replayed is no second one.
    assert [each.result for each in await raven.verified(checks[0])] == ["already-present"]
    assert len(await raven.sample(operator, 10)) == 2


@pytest.mark.req("DRV-3", "DRV-4")
async def test_the_operator_hands_in_checks_that_the_verifier_signed(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    origin = messages.Origin(context=ContextId.of(b"context"))
    await raven.report(*(raven.execution(advance(n), origin=origin) for n in range(3)))
    sampled = await raven.sample(operator, 3)
    assert [each.origin for each in sampled] == [origin] * 3

    async def hand_in(signer: Signer, page: int, place: int) -> str:
        each = sampled[place]
        number = next(n for n in range(3) if advance(n).invocation == each.invocation)
        made = advance(number, page=page)
        check = messages.Check(
            domain="alice",
            invocation=each.invocation,
            evidence=signed_by(made, signer, run=9, verifier=each.evidence),
            origin=each.origin,
        )
        ask = messages.Verified(checks=[check])
        said = await operator.caller.ask(
            "muninn", "verified", ask, messages.Results, administer=True
        )
        return said.results[0].result

    # The operator's word is none, nor is a room's that another brings.
    assert await hand_in(operator.signer, 0, 0) == "refused"
    assert await hand_in(raven.house.signers["worker"], 0, 0) == "refused"
    assert await hand_in(raven.verifier, 0, 0) == "equal"
    assert await hand_in(raven.verifier, 1, 1) == "conflict"
    checked, doubted = (Derivation(each.invocation, ()) for each in sampled[:2])
    (answer,) = await raven.look(alice, checked)
    assert (answer.testimonies, answer.checks) == (2, 1)
    assert answer.executor == raven.house.signers["worker"].public
    assert await raven.look(alice, doubted) == [messages.Answer(state="unknown")]
    # Where the inputs can be had is still known.
    assert [each.origin for each in await raven.sample(operator, 3)] == [origin] * 2


@pytest.mark.req("DRV-4")
async def test_both_sides_of_a_conflict_are_shown(raven: Raven, operator: Principal) -> None:
    await raven.remember(advance(1))
    await raven.remember(advance(1, page=1), engine_build="build 2")
    await raven.remember(advance(1, page=2), engine_build="build 3")
    status = await raven.status(operator)
    worker = raven.house.signers["worker"].public
    assert status.quarantined == [
        messages.Quarantined(
            domain="alice",
            invocation=invocation_id(advance(1).invocation),
            testimonies=[
                messages.Testimony(
                    evidence=each.evidence,
                    engine_build=f"build {page + 1}",
                    executor=worker,
                    outputs=list(advance(1, page=page).outputs),
                )
                for page, each in enumerate(status.quarantined[0].testimonies)
            ],
        )
    ]
    assert len(status.quarantined[0].testimonies) == 2
    assert status.domains == [
        messages.DomainMemo(
            domain="alice",
            sound=True,
            invocations=1,
            resident=0,
            evidence=3,
            quarantined=1,
            damaged=0,
        )
    ]
    assert status.enabled


async def test_a_check_is_of_its_domain(raven: Raven) -> None:
    await raven.remember(advance(1))
    evidence = raven.evidence(advance(1), run=1, verifier=EvidenceId.of(b""))
    invocation = advance(1).invocation
    wrong = messages.Check(domain="bob", invocation=invocation, evidence=evidence)
    forged = messages.Check(domain="alice", invocation=invocation, evidence=evidence[:-1])
    nowhere = messages.Check(domain="x" * 2000, invocation=invocation)
    chance = messages.Check(domain="alice", invocation=generation(), evidence=evidence)
    results = await raven.verified(wrong, forged, nowhere, chance)
    assert [each.result for each in results] == [
        "refused",
        "refused",
        "unknown",
        "not-remembered",
    ]
