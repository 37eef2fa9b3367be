"""The ports that stand in where nobody can be asked."""

from __future__ import annotations

from actors.muninn.ports import Ledger, NothingHeld, Presence, Uncharged
from protocol.ids import PageId


async def test_where_nobody_can_be_asked_nothing_is_held() -> None:
    presence: Presence = NothingHeld()
    assert list(await presence.exists("alice", [PageId.of(b"1"), PageId.of(b"2")])) == [False] * 2
    assert list(await presence.exists("alice", [])) == []


def test_where_nobody_keeps_account_charging_is_nothing() -> None:
    ledger: Ledger = Uncharged()
    ledger.charge(b"k" * 32, 5)
