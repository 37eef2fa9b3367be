"""The muninn room: who may say and see what, and that its troubles are nobody else's."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from actors.muninn.index import MEMO, Index
from actors.muninn.limits import MemoLimits
from protocol.capability import issue
from protocol.derivation import Derivation, ExecutionClass, Output, invocation_id, open_evidence
from protocol.errors import (
    CapabilityError,
    ContentError,
    InvocationError,
    LimitExceeded,
    StoreFault,
)
from protocol.families import assembled
from protocol.ids import ContextId, EvidenceId, StateId, TokensId
from protocol.messages import Empty
from protocol.messages import muninn as messages
from protocol.messages.authority import Revoke
from protocol.record import encode_record, object_id
from protocol.resource import Resource, ResourceKind, Right
from protocol.signing import Signer
from store.tables import Put
from tests.derivations import PROFILE, STRANGER, FailingTables, advance, assembly, generation
from tests.derivations import signed as signed_by
from tests.muninn_rooms import Raven, look_of
from tests.rooms import Principal, opened


@pytest.fixture
async def raven() -> Raven:
    return await Raven().start()


@pytest.fixture
async def operator(raven: Raven) -> Principal:
    return await raven.house.enroll("operator", administers=True)


@pytest.fixture
async def alice(raven: Raven) -> Principal:
    return await raven.house.enroll("alice")


# -- reporting -------------------------------------------------------------------------------


@pytest.mark.req("DRV-7", "KV-12")
async def test_what_is_reported_in_one_batch_is_known(raven: Raven, alice: Principal) -> None:
    made = [advance(1), advance(2), assembled(assembly(1), TokensId.of(b"stream"))]
    results = await raven.report(*(raven.execution(each) for each in made))
    assert [each.result for each in results] == ["inserted"] * 3
    assert [each.evidence for each in results] == [
        object_id(open_evidence(raven.evidence(each))) for each in made
    ]
    answers = await raven.look(alice, *made, advance(3))
    for derivation, answer, result in zip(made, answers[:3], results, strict=True):
        assert answer == messages.Answer(
            state="known",
            invocation=derivation.invocation,
            outputs=list(derivation.outputs),
            evidence=result.evidence,
            executor=raven.house.signers["worker"].public,
            engine_build="build 1",
            first_ns=raven.house.clock.wall_ns(),
            testimonies=1,
            checks=0,
        )
    assert answers[3] == messages.Answer(state="unknown")
    assert await raven.remember(*made) == ["already-present"] * 3


@pytest.mark.req("DRV-2", "DRV-3", "KV-2")
async def test_results_from_two_snapshots_are_two_and_from_one_a_conflict(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    here, there = StateId.of(b"pages"), StateId.of(b"other pages")
    one, other = advance(1, snapshot=here), advance(1, page=2, snapshot=there)
    assert await raven.remember(one, other) == ["inserted"] * 2
    assert await raven.known(alice, one, other) == [True, True]
    # What is promised of no snapshot is a third thing.
    assert await raven.remember(advance(1, page=3)) == ["inserted"]
    # Executed again: equal from the same pages, else one of the two is wrong.
    first = object_id(open_evidence(raven.evidence(one)))
    again = raven.evidence(one, run=2, verifier=first)
    (checked,) = await raven.verified(
        messages.Check(domain="alice", invocation=one.invocation, evidence=again)
    )
    assert checked.result == "equal"
    assert await raven.remember(advance(1, page=4, snapshot=here)) == ["conflict"]
    assert await raven.known(alice, one, other, advance(1, page=3)) == [False, True, True]
    (quarantined,) = (await raven.status(operator)).quarantined
    assert quarantined.invocation == invocation_id(one.invocation)


@pytest.mark.req("DRV-2")
@pytest.mark.parametrize("outcome", ["error", "timeout", "truncated", "cancelled", "partial"])
async def test_what_did_not_complete_is_not_remembered(
    raven: Raven, alice: Principal, outcome: str
) -> None:
    whole = raven.execution(advance(1))
    failed = messages.Execution(
        outcome=outcome,  # type: ignore[arg-type]
        invocation=whole.invocation,
        evidence=whole.evidence,
    )
    (result,) = await raven.report(failed)
    assert (result.result, result.evidence) == ("not-remembered", None)
    assert outcome in str(result.reason)
    assert await raven.known(alice, advance(1)) == [False]


@pytest.mark.req("DRV-2")
async def test_an_effect_and_chance_are_never_remembered(alice: Principal, raven: Raven) -> None:
    answer = (Output("answer", str(TokensId.of(b"answer"))),)
    for execution_class in (ExecutionClass.EFFECTFUL, ExecutionClass.NONDETERMINISTIC):
        invocation = msgspec.structs.replace(advance(1).invocation, execution_class=execution_class)
        made = Derivation(invocation, advance(1).outputs)
        assert await raven.remember(made) == ["not-remembered"]
        assert await raven.known(alice, made) == [False]
    for seed in (None, 7):
        made = Derivation(generation(seed=seed), answer)
        assert await raven.remember(made) == ["not-remembered"]
        assert await raven.known(alice, made) == [False]
    assert raven.tables is not None
    assert raven.tables.logs() == []


@pytest.mark.req("DRV-2")
async def test_a_promise_that_was_withdrawn_ends_what_it_allowed() -> None:
    raven = await Raven(reproducible=[PROFILE]).start()
    alice = await raven.house.enroll("alice")
    made = Derivation(generation(), (Output("answer", str(TokensId.of(b"answer"))),))
    assert await raven.remember(made) == ["inserted"]
    assert await raven.known(alice, made) == [True]
    raven.reproducible = []
    await raven.restart()
    assert await raven.known(alice, made) == [False]


@pytest.mark.req("DRV-3")
async def test_only_ones_own_evidence_is_taken(raven: Raven, alice: Principal) -> None:
    made = advance(1)
    forged = bytearray(raven.evidence(made))
    forged[-1] ^= 1
    others = {
        "forged": bytes(forged),
        "another room's": raven.evidence(made, "assembler"),
        "a stranger's": signed_by(made, STRANGER),
        "muninn's own": raven.evidence(made, "muninn"),
        "of another invocation": raven.evidence(advance(2)),
        "of less than a result": raven.evidence(Derivation(made.invocation, ())),
        "nothing": None,
        "noise": b"\x80",
    }
    for what, evidence in others.items():
        entry = messages.Execution(
            outcome="complete", invocation=made.invocation, evidence=evidence
        )
        whole = raven.execution(advance(3), run=len(what))
        results = await raven.report(entry, whole)
        assert results[0].result == "refused", what
        assert results[0].evidence is None
        # One that is refused holds up no other.
        assert results[1].result in ("inserted", "already-present")
    assert await raven.known(alice, made, advance(3)) == [False, True]


@pytest.mark.req("DRV-3")
async def test_an_id_beside_its_bytes_is_computed(raven: Raven) -> None:
    made = assembled(assembly(1), TokensId.of(b"stream"))
    for held, wanted in ((assembly(1), "inserted"), (assembly(2), "refused")):
        entry = messages.Execution(
            outcome="complete",
            invocation=made.invocation,
            evidence=raven.evidence(made, "assembler"),
            bodies=[messages.Body(label="context", body=encode_record(held))],
        )
        (result,) = await raven.report(entry, room="assembler")
        assert result.result == wanted


@pytest.mark.req("DRV-3")
async def test_nobody_else_reports_or_checks(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    report = messages.Report(entries=[raven.execution(advance(1))])
    checks = messages.Verified(
        checks=[messages.Check(domain="alice", invocation=advance(1).invocation)]
    )
    for op, ask in (("report", report), ("verified", checks)):
        with pytest.raises(InvocationError, match="needs the right 'operate'"):
            await alice.caller.ask("muninn", op, ask, messages.Results)
        for room in ("ropes", "gateway", "authority"):
            with pytest.raises(CapabilityError):
                await raven.ask_as_room(room, op, ask, messages.Results)
    # Not even one who runs the machine reports.
    with pytest.raises(CapabilityError, match="only a room that executes"):
        await operator.caller.ask("muninn", "report", report, messages.Results, administer=True)
    assert await raven.known(alice, advance(1)) == [False]


async def test_a_batch_is_bounded(raven: Raven, alice: Principal, operator: Principal) -> None:
    many = [advance(1).invocation] * (messages.BATCH_MAX + 1)
    entries = [messages.Execution(outcome="error", invocation=each) for each in many]
    with pytest.raises(LimitExceeded):
        await raven.report(*entries)
    with pytest.raises(LimitExceeded):
        await raven.look(alice, *many)
    for count in (-1, messages.BATCH_MAX + 1):
        with pytest.raises(LimitExceeded):
            await raven.sample(operator, count)
    assert await raven.charged(operator) == {}


# -- looking ---------------------------------------------------------------------------------


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


# -- checking --------------------------------------------------------------------------------


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


# -- operating -------------------------------------------------------------------------------


async def test_operating_takes_the_handle_that_operates(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    for op, ask, reply in (
        ("sample", messages.DrawSample(count=1, seed=b""), messages.Samples),
        ("status", Empty(), messages.MemoStatus),
        ("rebuild", messages.Rebuild(disown=True), messages.Rebuilt),
    ):
        with pytest.raises(InvocationError, match="needs the right 'operate'"):
            await alice.caller.ask("muninn", op, ask, reply)
        # A room's own handle is for what rooms say, not for running the machine.
        with pytest.raises(CapabilityError, match="'operate' on 'service muninn'"):
            await raven.ask_as_room("worker", op, ask, reply)
        await operator.caller.ask("muninn", op, ask, reply, administer=True)


async def test_domains_are_rebuilt_sampled_and_disowned_apart(
    raven: Raven, alice: Principal, operator: Principal
) -> None:
    bob = await raven.house.enroll("bob")
    await raven.remember(advance(1), advance(2))
    await raven.remember(advance(1), domain="bob")
    assert {each.domain for each in await raven.sample(operator, 9)} == {"alice", "bob"}
    assert [each.domain for each in await raven.sample(operator, 9, domain="bob")] == ["bob"]
    assert await raven.sample(operator, 9, domain="nobody") == []
    assert await raven.rebuild(operator) == messages.Rebuilt(domains=2, invocations=3, failed=0)
    assert await raven.rebuild(operator, domain="bob", disown=True) == messages.Rebuilt(
        domains=1, invocations=0, failed=0
    )
    assert await raven.known(bob, advance(1)) == [False]
    assert await raven.known(alice, advance(1)) == [True]


# -- trouble ---------------------------------------------------------------------------------


@pytest.mark.req("DRV-5")
@pytest.mark.parametrize("how", ["disabled", "no entries"])
async def test_a_disabled_memo_knows_nothing_and_fails_nothing(how: str) -> None:
    raven = Raven(tables=None) if how == "disabled" else Raven(limits=MemoLimits(entries_max=0))
    await raven.start()
    alice = await raven.house.enroll("alice")
    operator = await raven.house.enroll("operator", administers=True)
    assert await raven.remember(advance(1)) == ["capacity"]
    assert await raven.known(alice, advance(1)) == [False]
    check = messages.Check(domain="alice", invocation=advance(1).invocation)
    assert [each.result for each in await raven.verified(check)] == ["unknown"]
    assert await raven.sample(operator, 5) == []
    status = await raven.status(operator)
    assert (status.enabled, status.domains, status.quarantined) == (False, [], [])
    assert (await raven.rebuild(operator)).domains == 0
    await raven.room.drain()


@pytest.mark.req("DRV-5")
async def test_a_full_or_failing_disk_is_nobodys_error() -> None:
    tables = FailingTables()
    raven = await Raven(tables=tables).start()
    alice = await raven.house.enroll("alice")
    operator = await raven.house.enroll("operator", administers=True)
    await raven.remember(advance(1))
    tables.full = True
    assert await raven.remember(advance(2)) == ["unknown"]
    assert await raven.known(alice, advance(1), advance(2)) in ([True, False], [False, False])
    tables.gone = True
    assert await raven.known(alice, advance(1)) == [False]
    assert await raven.remember(advance(3)) == ["unknown"]
    assert await raven.sample(operator, 3) == []
    assert (await raven.rebuild(operator)).failed == 1
    assert [each.sound for each in (await raven.status(operator)).domains] == [False]
    tables.full = tables.gone = False
    await raven.remember(advance(4))
    assert await raven.known(alice, advance(1), advance(4)) == [True, True]


@pytest.mark.req("DRV-5")
async def test_a_damaged_index_is_mended_behind_the_callers_back(
    raven: Raven, alice: Principal
) -> None:
    tables = raven.tables
    assert tables is not None
    await raven.remember(*(advance(n) for n in range(5)))
    rows = Index(tables, "alice", 0).rows
    for key, value in rows.items():
        tables.apply([Put(rows.name, key, value[:-1])])
    assert await raven.known(alice, advance(1)) == [False]
    while await raven.known(alice, advance(1)) == [False]:
        await asyncio.sleep(0)
    assert await raven.known(alice, *(advance(n) for n in range(5))) == [True] * 5


@pytest.mark.req("DRV-5", "ASM-8")
async def test_a_room_that_starts_mends_what_it_finds(raven: Raven, alice: Principal) -> None:
    tables = raven.tables
    assert tables is not None
    await raven.remember(advance(1))
    await raven.remember(advance(2), domain="bob")
    index = Index(tables, "alice", 0)
    tables.apply(index.clear())
    await raven.restart()
    await raven.room.mended()
    assert await raven.known(alice, advance(1)) == [True]


async def test_a_drained_room_has_closed_its_tables(raven: Raven, alice: Principal) -> None:
    await raven.remember(advance(1))
    await raven.room.drain()
    assert await raven.known(alice, advance(1)) == [False]
    tables = raven.tables
    assert tables is not None
    with pytest.raises(StoreFault):
        tables.keyed(MEMO).count()


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
