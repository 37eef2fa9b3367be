"""The audit log: grants, refusals and revocations in one chain, for those who operate."""

from __future__ import annotations

from typing import Any

import pytest

from actors.authority.audit import AUDIT, ROWS_MAX, audit_entry
from actors.gateway.caller import Caller
from protocol import cbor
from protocol.errors import AuthorityError, ContentError, CorruptObject, HuginnError, NotVisible
from protocol.messages import Empty
from protocol.messages import authority as messages
from protocol.record import Record
from store.tables import LogEntry, LogHead, verify_chain
from tests.authority_asks import CAROL, narrowed
from tests.rooms import Installation, Principal, opened


@pytest.fixture
async def house() -> Installation:
    return await Installation(audited=True).start()


async def page(
    by: Principal | Caller, limit: int = 100, after: int | None = None
) -> messages.AuditPage:
    caller = by if isinstance(by, Caller) else by.caller
    ask = messages.AskAudit(limit=limit, after=after)
    return await caller.ask("authority", "audit", ask, messages.AuditPage, administer=True)


def entry(row: messages.AuditRow) -> dict[str, Any]:
    decoded = cbor.decode(row.body)
    assert isinstance(decoded, dict)
    return {str(key): value for key, value in decoded.items()}


async def settle(house: Installation) -> None:
    """Everything that rooms refused is on record."""
    for room in house.post.rooms.values():
        await room.refusals.settle()


async def refused(house: Installation, room: str, message: bytes) -> str:
    with pytest.raises(HuginnError) as caught:
        opened(await house.post.call(room, message), Empty)
    return str(caught.value.details["step"])


@pytest.mark.req("AUT-8")
async def test_grants_refusals_and_revocations_are_on_record_in_order(
    house: Installation, operator: Principal
) -> None:
    alice = await house.enroll("alice")
    weak = await house.enroll("weak", rights=["write"])
    ask: Record = messages.Revoke(name="alice")
    message = alice.message("ropes", "sequence", Empty())
    assert await refused(house, "authority", alice.message("authority", "revoke", ask)) == "right"
    assert await refused(house, "ropes", weak.message("ropes", "get", Empty())) == "right"
    forged = alice.message("ropes", "get", Empty(), signer=CAROL)
    assert await refused(house, "ropes", forged) == "signer"
    await settle(house)
    await operator.caller.ask("authority", "revoke", ask, Empty, administer=True)
    assert await refused(house, "ropes", message) == "revocation"
    await settle(house)
    rows = (await page(operator)).rows
    told = [(each["act"], each["subject"]) for each in map(entry, rows)]
    wanted = [("grant", "alice"), ("grant", "weak"), ("refuse", "authority"), ("refuse", "ropes")]
    assert [each for each in told if each[0] != "register"][1:] == [
        *wanted,
        ("revoke", "alice"),
        ("refuse", "ropes"),
    ]
    refusals = [entry(row)["refusals"] for row in rows if entry(row)["act"] == "refuse"]
    assert [[each["step"] for each in batch] for batch in refusals] == [
        ["right"],
        ["right", "signer"],
        ["revocation"],
    ]
    first = refusals[0][0]
    assert (first["op"], first["principal"]) == ("revoke", alice.signer.public)
    assert (first["request_id"], first["at_ns"]) == ("request", house.clock.wall_ns())


@pytest.mark.req("AUT-8")
async def test_the_log_is_a_chain_that_a_reader_can_follow(
    house: Installation, operator: Principal
) -> None:
    for number in range(7):
        await house.enroll(f"p{number}")
    whole = (await page(operator, after=0)).rows
    read: list[messages.AuditRow] = []
    while True:
        part = await page(operator, limit=3, after=len(read))
        read += part.rows
        if len(part.rows) < 3:
            break
    assert read == whole
    entries = [LogEntry(row.seq, row.previous, row.digest, row.body) for row in read]
    head = verify_chain(AUDIT, entries, None)
    assert head == LogHead(part.head_seq, part.head_digest)
    assert (await page(operator, limit=2)).rows == whole[-2:]
    for at in range(len(entries)):
        changed = entries[at]._replace(body=entries[at].body + b"\0")
        with pytest.raises(CorruptObject, match=rf"entry {at + 1}\b"):
            verify_chain(AUDIT, [*entries[:at], changed, *entries[at + 1 :]], None)
        if at:
            with pytest.raises(CorruptObject):
                verify_chain(AUDIT, [*entries[: at - 1], *entries[at:]], None)


async def test_nobody_else_reads_it(house: Installation, operator: Principal) -> None:
    alice = await house.enroll("alice")
    with pytest.raises(AuthorityError, match="does not administer"):
        await page(alice)
    message = alice.message("authority", "audit", messages.AskAudit(limit=1))
    assert await refused(house, "authority", message) == "right"
    # Neither one who administers a part, nor a room by its own handle.
    with pytest.raises(NotVisible):
        await page(narrowed(house, operator, "team"))
    with pytest.raises(NotVisible):
        await house.post.rooms["ropes"].ask_as_self(
            "authority", "audit", messages.AskAudit(limit=1), messages.AuditPage
        )


async def test_only_rooms_say_what_they_refused_and_only_so_much(
    house: Installation, operator: Principal
) -> None:
    before = house.tables.log(AUDIT).head()
    lie = messages.Refused(refusals=[], counted={"nonce": 1})
    with pytest.raises(ContentError, match="only rooms"):
        await operator.caller.ask("authority", "refused", lie, Empty, administer=True)
    much = messages.Refused(refusals=[], counted={f"s{n}": 1 for n in range(65)})
    with pytest.raises(ContentError, match="0 refusals and 65 counts at once: at most 256 and 64"):
        await house.post.rooms["ropes"].ask_as_self("authority", "refused", much, Empty)
    assert house.tables.log(AUDIT).head() == before


@pytest.mark.parametrize(("limit", "after"), [(0, None), (ROWS_MAX + 1, None), (1, -1)])
async def test_numbers_out_of_range(operator: Principal, limit: int, after: int | None) -> None:
    with pytest.raises(ContentError, match="limit goes from 1 to 1000"):
        await page(operator, limit=limit, after=after)


def test_an_entry_says_what_when_and_with_which_rights() -> None:
    house = Installation()
    made = audit_entry(house.clock, "erase", "alice", ["read"], {"objects": 3})
    assert cbor.decode(made) == {
        "act": "erase",
        "subject": "alice",
        "at_ns": house.clock.wall_ns(),
        "rights": ["read"],
        "objects": 3,
    }
