"""A Matrix room that nobody wrote in for long: who writes again is answered, and told the news."""

from __future__ import annotations

import pytest

from actors.gateway.transports.matrix import MatrixTransport
from actors.gateway.transports.matrix_account import Account
from actors.gateway.transports.matrix_inbox import Inbox
from store.memory_tables import MemoryTables
from tests.fake_rooms import AheadClock, running
from tests.happenings import happen, prompt_text
from tests.matrix.homeserver import ALICE, BOT, homeserver
from tests.scripted_worker import ANSWER

DAY_NS = 24 * 3600 * 10**9


@pytest.mark.req("EVT-5", "EVT-9", "SRV-5")
async def test_who_writes_in_a_room_that_was_idle_for_too_long_is_answered() -> None:
    """Its session is due to be collected in the same moment."""
    clock = AheadClock()
    async with running(clock=clock) as service, homeserver() as server:
        account = Account(url=server.url, user=BOT, device="D", token="t", allow=(ALICE,))
        inbox = Inbox(MemoryTables())
        transport = MatrixTransport(service.gateway, account, service.operator_key, inbox)
        await transport.start()
        try:
            # The first look takes the position alone; what is said from the second on is for us.
            await server.until_looked(2)
            await happen(service, "1122")
            await server.say("hello")
            await server.until_replied(1)
            assert prompt_text(service).count("1122 merged") == 1
            clock.ahead_ns += 31 * DAY_NS
            await happen(service, "1123")
            await server.say("anything new?")
            await server.until_replied(2)
        finally:
            await transport.stop()
    assert [reply.endswith(ANSWER.strip()) for reply in server.replies.values()] == [True, True]
    prompt = prompt_text(service)
    assert (prompt.count("1122 merged"), prompt.count("1123 merged")) == (0, 1)
