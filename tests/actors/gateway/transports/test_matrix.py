"""The Matrix transport against a real server: who is answered, where, once, and through crashes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from actors.gateway.transports.matrix import MatrixTransport
from actors.gateway.transports.matrix_account import Account
from actors.gateway.transports.matrix_inbox import Inbox, Letter
from store.memory_tables import MemoryTables
from tests.fake_rooms import Service, running
from tests.happenings import QUESTION, happen, prompt_text, prompt_types
from tests.matrix.people import Person
from tests.matrix.synapse import Synapse
from tests.scripted_worker import ANSWER, Script

pytestmark = pytest.mark.slow
_names = itertools.count()
REPLY = ANSWER.strip()


def plain(content: dict[str, Any]) -> str:
    """A reply without what the scripted worker puts in front of what is sampled."""
    body: str = content["body"]
    return body if body.startswith("(") else body.partition(" ")[2]


@dataclass
class Talk:
    """A service with an account, and Alice in a room with it."""

    service: Service
    account: Account
    tables: MemoryTables
    synapse: Synapse
    alice: Person
    room: str

    def transport(
        self, kind: type[MatrixTransport] = MatrixTransport, **changes: Any
    ) -> MatrixTransport:
        key = self.service.operator_key
        return kind(self.service.gateway, self.account, key, Inbox(self.tables), **changes)

    async def heard(self, count: int) -> list[str]:
        contents = await self.alice.until_said(self.room, self.account.user, count)
        return [plain(content) for content in contents]


@asynccontextmanager
async def person(synapse: Synapse, name: str) -> AsyncIterator[Person]:
    made = Person(synapse.url, synapse.register(f"{name}{next(_names)}"))
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def going(transport: MatrixTransport) -> AsyncIterator[None]:
    await transport.start()
    try:
        yield
    finally:
        await transport.stop()


@pytest.fixture
async def talk(synapse: Synapse) -> AsyncIterator[Talk]:
    # A turn that was lost in a crash holds its lease no longer than a test waits.
    async with running(lease_ns=10**9) as service, person(synapse, "alice") as alice:
        bot = synapse.register(f"huginn{next(_names)}")
        account = Account(
            url=synapse.url, user=bot.id, device="D", token=bot.token, allow=(alice.id,)
        )
        talk = Talk(service, account, MemoryTables(), synapse, alice, "")
        async with going(talk.transport()):
            # The first look is over when it takes an invitation.
            talk.room = await alice.room(bot.id)
            await alice.until_joined(talk.room, bot.id)
        yield talk


@pytest.mark.req("EVT-7", "EVT-11", "EVT-12", "SRV-5")
async def test_the_model_is_told_once_what_happened(talk: Talk) -> None:
    await happen(talk.service, "1122")
    async with going(talk.transport()):
        await talk.alice.say(talk.room, QUESTION)
        assert await talk.heard(1) == [REPLY]
        first = prompt_text(talk.service)
        assert first.count("1122 merged") == 1
        await talk.alice.say(talk.room, "and now?")
        assert await talk.heard(2) == [REPLY, REPLY]
    second = prompt_text(talk.service)
    assert second.count("1122 merged") == 1
    assert second.index("1122 merged") == first.index("1122 merged")
    assert prompt_types(talk.service) == ["event reminder", "user turn", "model turn", "user turn"]


@pytest.mark.req("EVT-7")
async def test_a_room_a_thread_and_another_room_are_sessions_of_their_own(talk: Talk) -> None:
    other = await talk.alice.room(talk.account.user)
    async with going(talk.transport()):
        await talk.alice.until_joined(other, talk.account.user)
        root = await talk.alice.say(talk.room, "one")
        await talk.heard(1)
        thread = {"rel_type": "m.thread", "event_id": root}
        await talk.alice.say(talk.room, "two", **{"m.relates_to": thread})
        contents = await talk.alice.until_said(talk.room, talk.account.user, 2)
        await talk.alice.say(other, "three")
        await talk.alice.until_said(other, talk.account.user, 1)
    assert [len(ask.segments) for ask in talk.service.worker.asked] == [1, 1, 1]
    assert contents[1]["m.relates_to"]["event_id"] == root
    assert "m.relates_to" not in contents[0]


async def test_who_is_not_allowed_is_not_answered_nor_followed(talk: Talk) -> None:
    async with going(talk.transport()), person(talk.synapse, "mallory") as mallory:
        theirs = await mallory.room(talk.account.user)
        ours = await talk.alice.room(talk.account.user, mallory.id)
        await talk.alice.until_joined(ours, talk.account.user)
        await mallory.join(ours)
        name = talk.account.user[1:].partition(":")[0]
        await mallory.say(ours, f"{name}: tell me everything")
        await talk.alice.say(ours, "not for you")
        await talk.alice.say(ours, f"{name}: hello")
        await talk.alice.until_said(ours, talk.account.user, 1)
        mention = {"user_ids": [talk.account.user]}
        await talk.alice.say(ours, "you there", **{"m.mentions": mention})
        await talk.alice.until_said(ours, talk.account.user, 2)
        assert [member.user_id for member in await mallory._members(theirs)] == [mallory.id]
    # Mallory's words and what was said to others reached no prompt.
    assert all("everything" not in prompt_text(talk.service, index) for index in range(2))
    assert all("not for you" not in prompt_text(talk.service, index) for index in range(2))
    assert len(talk.service.worker.asked) == 2


async def test_edits_notices_and_emptiness_are_no_questions(talk: Talk) -> None:
    async with going(talk.transport()):
        first = await talk.alice.say(talk.room, "one")
        await talk.heard(1)
        edit = {"rel_type": "m.replace", "event_id": first}
        await talk.alice.say(talk.room, "* one!", **{"m.relates_to": edit})
        await talk.alice.say(talk.room, "beep", msgtype="m.notice")
        await talk.alice.say(talk.room, "  ")
        await talk.alice.say(talk.room, "two")
        await talk.heard(2)
    assert len(talk.service.worker.asked) == 2
    assert "beep" not in prompt_text(talk.service)


async def test_what_was_said_meanwhile_is_read_however_much_it_is(talk: Talk) -> None:
    for number in range(7):
        await talk.alice.say(talk.room, f"no. {number}")
    # Pages of two: the server gives the newest, and the others are fetched.
    async with going(talk.transport(timeline_max=2)):
        assert len(await talk.heard(7)) == 7
    last = prompt_text(talk.service)
    assert [last.count(f"no. {number}") for number in range(7)] == [1] * 7
    assert [last.index(f"no. {number}") for number in range(7)] == sorted(
        last.index(f"no. {number}") for number in range(7)
    )


async def test_a_fault_is_tried_again_and_a_refusal_is_told(talk: Talk) -> None:
    async with going(talk.transport()):
        talk.service.worker.script = Script(answer="half of it", break_after=3)
        await talk.alice.say(talk.room, "one")
        await talk.service.worker.over.wait_for(1)
        talk.service.worker.script = Script()
        assert await talk.heard(1) == [REPLY]
        await talk.alice.say(talk.room, "x" * 4000)
        assert "tokens" in (await talk.heard(2))[1]


class _Cut(MatrixTransport):
    """Dies at a point of answering: nothing of it runs on, as after a `kill -9`."""

    point = ""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.died = asyncio.Event()

    async def _die_at(self, point: str) -> None:
        if self.point == point:
            self.died.set()
            await asyncio.sleep(3600)

    async def _text(self, letter: Letter) -> str:
        await self._die_at("before the turn")
        text = await super()._text(letter)
        await self._die_at("after the turn")
        return text

    async def _send(self, letter: Letter, text: str) -> None:
        await super()._send(letter, text)
        await self._die_at("after the reply")


class _Forgetful(_Cut):
    """The negative control: a reply that does not know which message it answers."""

    async def _send(self, letter: Letter, text: str) -> None:
        anew = replace(letter, event=f"${next(_names)}", thread=None)
        await super()._send(anew, text)


async def _crashed(talk: Talk, kind: type[_Cut], point: str) -> list[str]:
    """What was replied to one message when the transport died at `point` and was started again."""
    await talk.alice.say(talk.room, "once")
    cut = talk.transport(type("Cut", (kind,), {"point": point}))
    assert isinstance(cut, _Cut)
    async with going(cut):
        async with asyncio.timeout(60):
            await cut.died.wait()
    async with going(talk.transport()):
        # Whatever was to come for the first message came before the reply to the second.
        await talk.alice.say(talk.room, "twice")
        async with asyncio.timeout(120):
            while Inbox(talk.tables).waiting() or len(talk.service.worker.asked) < 2:
                await asyncio.sleep(0.1)
    replies = await talk.alice.said(talk.room, talk.account.user)
    return [plain(reply) for reply in replies]


@pytest.mark.req("EVT-5", "EVT-7")
@pytest.mark.parametrize("point", ["before the turn", "after the turn", "after the reply"])
async def test_a_message_has_one_reply_whenever_we_die(talk: Talk, point: str) -> None:
    assert await _crashed(talk, _Cut, point) == [REPLY, REPLY]
    # One turn each: what was answered before the end is told again, not asked again.
    assert len(talk.service.worker.asked) == 2


async def test_without_the_transaction_id_there_are_two(talk: Talk) -> None:
    assert await _crashed(talk, _Forgetful, "after the reply") == [REPLY, REPLY, REPLY]


async def test_dying_within_an_answer_costs_a_second_try_and_no_second_reply(talk: Talk) -> None:
    gate = asyncio.Event()
    talk.service.worker.script = Script(gate=gate)
    await talk.alice.say(talk.room, "once")
    async with going(talk.transport()):
        await talk.service.worker.began.wait_for(1)
    talk.service.worker.script = Script()
    async with going(talk.transport()):
        assert await talk.heard(1) == [REPLY]
        await talk.alice.say(talk.room, "more")
        assert await talk.heard(2) == [REPLY, REPLY]
    assert "once" in prompt_text(talk.service)
