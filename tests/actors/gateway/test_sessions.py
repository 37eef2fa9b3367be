"""Asking the events room, and what is said while it cannot be asked."""

from __future__ import annotations

import pytest

from actors.gateway.sessions import PERSONA, ask_events, open_session
from protocol.errors import NotVisible, Unavailable
from protocol.messages.events import AskSession, ListSessions, Sessions, Turns
from tests.fake_rooms import Service
from tests.happenings import caller_of, happen


@pytest.mark.req("EVT-3")
async def test_a_session_is_made_by_default_for_all_and_from_the_beginning(
    service: Service,
) -> None:
    await happen(service, "1", "2")
    row = await open_session(caller_of(service), "operator")
    assert (row.persona, row.scope, row.place, row.marks) == (PERSONA, None, None, [])
    aware = await open_session(caller_of(service), "operator", since="now", scope=["sled"])
    assert [mark.seq for mark in aware.marks] == [2]
    found = await ask_events(
        caller_of(service), "sessions", ListSessions(namespace="operator"), Sessions
    )
    assert {each.id for each in found.sessions} == {row.id, aware.id}


async def test_what_the_room_refuses_is_what_is_raised(service: Service) -> None:
    ask = AskSession(namespace="operator", id="session-x")
    with pytest.raises(NotVisible):
        await ask_events(caller_of(service), "turns", ask, Turns)


@pytest.mark.req("EVT-7")
@pytest.mark.parametrize("gone", ["died", "absent"])
async def test_a_room_that_is_gone_costs_sessions_alone(service: Service, gone: str) -> None:
    if gone == "died":
        service.mailbox.down.add("events")
    else:
        del service.mailbox.rooms["events"]
    with pytest.raises(Unavailable, match="sessions are not available now"):
        await open_session(caller_of(service), "operator")
    assert service.gateway.is_ready
