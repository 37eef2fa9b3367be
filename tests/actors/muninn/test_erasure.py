"""Erasing a domain from the memo: all of its tables and logs, whatever goes on, and no other."""

from __future__ import annotations

import asyncio

import pytest

from actors.muninn.erasure import erase_domains, older, traces
from protocol.messages import muninn as messages
from protocol.messages.erasure import Erase
from store.memory_tables import MemoryTables
from store.tables import Append
from tests.derivations import advance
from tests.muninn_rooms import Raven, look_of


def order(*domains: str, principals: tuple[bytes, ...] = ()) -> Erase:
    return Erase(
        domains=list(domains), namespaces=[], spared=[], principals=list(principals), names=[]
    )


@pytest.mark.req("AUT-8")
async def test_a_domain_goes_and_the_others_stay(raven: Raven) -> None:
    for domain in ("alice", "bob"):
        await raven.remember(*(advance(number) for number in range(5)), domain=domain)
    assert isinstance(raven.tables, MemoryTables)
    before = traces(raven.tables, ["alice"], [])
    # Of a generation that was put aside too.
    (log,) = (name for name in raven.tables.logs() if f"log {name}" in before)
    raven.tables.apply([Append(log[:-1] + "7", b"damaged")])
    counts = await raven.room.erase(order("alice"))
    assert counts["evidence"] == 6
    assert counts["rows"] >= 11
    assert traces(raven.tables, ["alice"], []) == []
    assert traces(raven.tables, ["bob"], []) != []
    alice, bob = await raven.house.enroll("alice"), await raven.house.enroll("bob")
    for who, state in ((alice, "unknown"), (bob, "known")):
        said = await who.caller.ask("muninn", "look", look_of(advance(1)), messages.Looked)
        assert [each.state for each in said.answers] == [state]
    # It begins anew.
    assert await raven.remember(advance(1)) == ["inserted"]
    assert await raven.room.erase(order("nobody")) == {"rows": 0, "evidence": 0}


@pytest.mark.req("AUT-8")
async def test_accounts_go_with_their_principals(raven: Raven) -> None:
    alice, bob = await raven.house.enroll("alice"), await raven.house.enroll("bob")
    for who in (alice, bob):
        await who.caller.ask("muninn", "look", look_of(advance(1)), messages.Looked)
    assert raven.tables is not None
    await raven.room.erase(order(principals=(alice.signer.public,)))
    assert traces(raven.tables, [], [alice.signer.public]) == []
    assert len(traces(raven.tables, [], [bob.signer.public])) == 1
    # Not written back from memory by the next charge.
    await bob.caller.ask("muninn", "look", look_of(advance(1)), messages.Looked)
    assert traces(raven.tables, [], [alice.signer.public]) == []


@pytest.mark.req("AUT-8")
async def test_reports_that_come_meanwhile_leave_nothing(raven: Raven) -> None:
    """A report that was there first is waited for, one that comes during it is not taken in."""
    await raven.remember(advance(0))
    reports = [asyncio.create_task(raven.remember(advance(number))) for number in range(1, 6)]
    await asyncio.sleep(0)
    erasing = asyncio.create_task(raven.room.erase(order("alice")))
    await asyncio.sleep(0)
    late = await raven.remember(advance(9))
    await asyncio.gather(*reports, erasing)
    assert late in (["capacity"], ["inserted"])
    assert raven.tables is not None
    if late == ["capacity"]:
        assert traces(raven.tables, ["alice"], []) == []


async def test_a_memo_that_is_disabled_has_nothing_to_erase() -> None:
    raven = Raven(tables=None)
    await raven.start()
    assert await raven.room.erase(order("alice")) == {}


def test_what_was_never_there_is_erased() -> None:
    tables = MemoryTables()
    assert erase_domains(tables, ["alice"], [b"k" * 32]) == {"rows": 0, "evidence": 0}
    assert traces(tables, ["alice"], [b"k" * 32]) == []


@pytest.mark.req("AUT-8")
async def test_evidence_of_before_is_told_from_evidence_of_after(raven: Raven) -> None:
    await raven.remember(advance(1))
    assert raven.tables is not None
    asked_ns = raven.house.clock.wall_ns()
    assert older(raven.tables, ["alice"], asked_ns) == []
    assert len(older(raven.tables, ["alice"], asked_ns + 1)) == 1
    assert older(raven.tables, ["bob"], asked_ns + 1) == []
    await raven.room.erase(order("alice"))
    raven.house.clock.now_ns += 2
    await raven.remember(advance(1))
    assert older(raven.tables, ["alice"], asked_ns + 1) == []
