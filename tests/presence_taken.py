"""What strangers have taken away, or do beside her, and what alice still has after it.

They erase what is their own: an object that she has too, a namespace, themselves; one of them works
in her namespace, one in her domain. One is revoked, and forgotten a day later. They cancel answers
by the names of hers, and one is forgotten while she is being answered. All of that is done in one
world, and none of it in the other.
"""

from __future__ import annotations

import asyncio

from msgspec import structs

from actors.authority.targets import of_domain
from actors.gateway.transports.matrix_inbox import Letter
from protocol.blocks import Role
from protocol.derivation import invocation_id, open_evidence
from protocol.errors import HuginnError
from protocol.ids import InvocationId
from protocol.messages.authority import Revoke, Revoked
from protocol.messages.erasure import ErasureRow, RequestErasure
from protocol.messages.events import Follow, StreamItem
from protocol.messages.muninn import Look, Report
from protocol.messages.ropes import NewBlock
from protocol.messages.worker import AskReceipt, Cancel, Settle
from protocol.publication import PUBLIC
from protocol.record import Record, object_id
from tests.events_rooms import said
from tests.presence_house import (
    ALL_RIGHTS,
    DAY_NS,
    MODEL,
    OWNER_MAX,
    TEXTS,
    House,
    Request,
    chat,
    merged,
    responded,
)
from tests.presence_jobs import job_of, prompt_of, publish
from tests.presence_messages import OTHER, Leaked
from tests.presence_probes import everything
from tests.presence_seen import Seen
from tests.worker_rooms import until

STREAMS = 32
WALL = said(Role.SYSTEM, "What hangs on the wall of the hall, for everybody to read who comes in.")
SHARED = said(Role.SYSTEM, TEXTS[0])
LONG = said(Role.USER, " ".join(TEXTS))
READY = said(Role.USER, "what she has made ready, while somebody else is being forgotten")
PUT = said(Role.USER, "what is put by behind everybody's back, and not yet on disk when they go")
NOW = said(Role.USER, "what she asks in the same breath")
LATER = said(Role.USER, "what she asks later")
FRESH = said(Role.USER, "what nobody was told yet that it was put together")
ASKED = said(Role.USER, "is it true?")
# Of what was computed for her one of so many is looked up.
_OF_SO_MANY = 8
# She may be told of an erasure that reaches into her namespace.
_NOT_ASKED = ("/huginn/v1/erasures",)


def kept() -> list[Request]:
    """What alice does, and keeps."""
    messages = chat(*TEXTS[:2])["messages"]
    return [
        # First: its id follows from how much was drawn before, and reports are sent by the clock.
        ("POST", "/huginn/v1/capabilities", {"lifetime_s": 30 * 86_400}),
        ("POST", "/huginn/v1/sources", {"name": "sled"}),
        ("POST", "/huginn/v1/sources/sled/events", merged("0")),
        ("POST", "/huginn/v1/kinds", {"kind": "Seen", "schema": {"type": "object"}}),
        ("POST", "/huginn/v1/sources", {"name": "kite"}),
        ("POST", "/huginn/v1/sessions", {"persona": "sally", "place": "well", "since": "now"}),
        # A session is told that it missed the end of a source.
        ("POST", "/huginn/v1/sources/kite/events", merged("1")),
        ("DELETE", "/huginn/v1/sources/kite", None),
        ("POST", "/v1/responses", responded(TEXTS[1])),
        ("POST", "/v1/chat/completions", chat(*TEXTS[:2])),
        ("POST", "/huginn/v1/contexts", {"model": MODEL, "messages": messages}),
        ("GET", f"/huginn/v1/derivations/{InvocationId.of(b'never executed')}", None),
    ]


class Beside:
    """A world in which alice lives beside strangers; `taken`: in which they do all that."""

    def __init__(self, made: House, seen: Seen, *, taken: bool) -> None:
        self.made = made
        self.seen = seen
        self.taken = taken

    async def live(self) -> None:
        """All of it, and then her questions."""
        await self.made.enroll("dave", ALL_RIGHTS, telemetry=None, domain=OTHER)
        # Where he works begins as where she does.
        await self.made.enroll("carl", ALL_RIGHTS, telemetry=None, namespace=OTHER[:2])
        await publish(self.made, WALL)
        told = Seen()
        for request in kept():
            await self.made.http(OTHER, request, told)
        self.made.inbox.take([self._letter(1)], "s-1")
        await self._answered("resp-wall", WALL, LONG)
        await self.made.quiet()
        # What is public is on streams alone, and on hers first.
        self._unpaged()
        if self.taken:
            await self._as_she_did()
        self._unpaged()
        await self._in_the_same_breath()
        await self._while_she_follows()
        self.made.rooms.clock.now_ns += 2 * DAY_NS
        await self.made.rooms.post.rooms["authority"].erasures.step()  # type: ignore[attr-defined]
        await self._hers(told)

    def _unpaged(self) -> None:
        for tier in (self.made.host, self.made.disk):
            tier.drop_domain(PUBLIC)

    async def _while_she_follows(self) -> None:
        """She is told what happens, before strangers have gone and after."""
        caller = self.made.people[OTHER].principal.caller
        items = caller.stream("events", "follow", Follow(namespace=OTHER), StreamItem)
        first = asyncio.ensure_future(anext(items))
        await until(lambda: self.made.events._sources.subscribers > 0)
        if self.taken:
            await self._gone()
        news = ("POST", "/huginn/v1/sources/sled/events", merged("2"))
        await self.made.http(OTHER, news, self.seen)
        try:
            self.seen.add("news", (await first).source)
        except HuginnError as error:
            self.seen.add("news", repr(error))
        await items.aclose()
        self.made.inbox.take([self._letter(2)], "s-2")

    def _letter(self, number: int) -> Letter:
        alice = self.made.people[OTHER].principal.row
        return Letter(
            event=f"$to-alice-{number}",
            room="!room:host",
            sender="@somebody:host",
            body=TEXTS[1],
            principal=alice.public,
            namespace=alice.namespace,
        )

    async def _answered(
        self, response: str, *talk: NewBlock, who: str = OTHER, tokens_max: int = 4
    ) -> None:
        job = job_of(self.made, await prompt_of(self.made, who, talk), response)
        job = structs.replace(job, tokens_max=tokens_max)
        seen = self.seen if who == OTHER else Seen()
        await self.made.message(who, "worker", "generate", job, seen)

    # -- what strangers do -----------------------------------------------------------------------

    async def _as_she_did(self) -> None:
        """Bob has what she has, and goes on behind what is public as she did."""
        for request in (
            ("POST", "/huginn/v1/sources", {"name": "kite"}),
            ("DELETE", "/huginn/v1/sources/kite", None),
            ("POST", "/v1/chat/completions", chat(*TEXTS[:2])),
        ):
            await self.made.http("bob", request, Seen())
        await self._answered("resp-wall", WALL, ASKED, who="bob")
        await self.made.quiet()

    async def _in_the_same_breath(self) -> None:
        """What she asks while names are cancelled that are hers, and a stranger is forgotten."""
        await self._says(OTHER, "cancel", Cancel(response="resp-later"))
        if self.taken:
            for number in range(OWNER_MAX + 1):
                await self._says("bob", "cancel", Cancel(response=f"resp-{number}"))
        await self._answered("resp-later", LATER)
        job = job_of(self.made, await prompt_of(self.made, OTHER, [NOW]), "resp-now")
        ready = (await prompt_of(self.made, OTHER, [READY])).segments
        await self.made.quiet()
        at_once = [
            self.made.message(OTHER, "worker", "generate", job, self.seen),
            self._says(OTHER, "settle", Settle(response="resp-ready", segments=ready)),
        ]
        if self.taken:
            cancel = Cancel(response="resp-now")
            at_once += [self._says(who, "cancel", cancel) for who in ("bob", "dave")]
        await asyncio.gather(*at_once, self._forgotten("worker"))
        await self.made.quiet()
        # Its pages are still to be exported, and its state has no digest yet.
        await self._answered("resp-long", LONG, ASKED, tokens_max=1)
        await self._forgotten("worker")
        await self.made.quiet()
        # Its pages wait to be written.
        await self._answered("resp-put", PUT, ASKED)
        await until(lambda: not self.made.worker._driver._scheduled)  # type: ignore[attr-defined]
        await self._forgotten("worker")
        await self.made.quiet()
        # Nobody was told yet that it was put together.
        await prompt_of(self.made, OTHER, [FRESH])
        await self._forgotten("assembler")
        await self.made.quiet()
        await asyncio.gather(self._forgotten("muninn"), self._looks())

    async def _says(self, who: str, op: str, record: Record) -> bool:
        seen = self.seen if who == OTHER else Seen()
        return await self.made.message(who, "worker", op, record, seen)

    async def _forgotten(self, room: str) -> None:
        """`room` has the authority's order to forget what was computed for bob."""
        if self.taken:
            authority = self.made.rooms.post.rooms["authority"]
            await authority._order(room, of_domain("bob"))  # type: ignore[attr-defined]

    async def _gone(self) -> None:
        """What bob erases, himself at last; and who is erased or revoked by the operator."""
        await self._answered("resp-last", ASKED, who="bob")
        await self.made.quiet()
        block = str(object_id(SHARED.block))
        await self._erases("bob", RequestErasure(target="object", name=block, namespace="bob"))
        await self._erases("bob", RequestErasure(target="namespace", name="bob/old"))
        await self._erases("carl", RequestErasure(target="namespace", name=OTHER[:2]))
        for name in ("wendy", "dave"):
            await self._erases("operator", RequestErasure(target="principal", name=name))
        await self._erases("bob", RequestErasure(target="principal", name="bob"))
        operator = self.made.people["operator"].principal.caller
        await operator.ask("authority", "revoke", Revoke(name="carl"), Revoked, administer=True)

    async def _erases(self, who: str, ask: RequestErasure) -> None:
        caller = self.made.people[who].principal.caller
        row = await caller.ask(
            "authority", "request_erasure", ask, ErasureRow, administer=caller.administers
        )
        assert row.done_ns is not None, row.waits

    # -- what alice is answered then -------------------------------------------------------------

    async def _hers(self, told: Seen) -> None:
        made, seen = self.made, self.seen
        objects = map(str, made.rooms.store.list_members(OTHER))
        derived = self._derived()
        seen.add("derived", repr(derived))
        leaked = Leaked([*told.ids, *map(str, derived), *objects])
        for each in leaked.some():
            seen.known(each)
        for request in everything(made.app, leaked):
            if request[0] == "GET" and not request[1].startswith(_NOT_ASKED):
                await made.http(OTHER, request, seen)
        await self._looks()
        for response in ("resp-wall", "resp-now", "resp-long"):
            await self._says(OTHER, "receipt", AskReceipt(response=response))
        # As warm as she left it, and where she left it.
        await self._answered("resp-1", WALL, LONG, ASKED)
        await self._answered("resp-2", READY, ASKED)
        await made.quiet()
        # As after a restart: what is on disk is there.
        made.worker._engine._seats.clear_all()
        made.host.drop_domain(OTHER)
        await self._answered("resp-3", PUT, ASKED, LATER)
        seen.add("letters", repr(made.inbox.waiting()))

    async def _looks(self) -> None:
        """She looks up some of what was computed for her."""
        look = Look(invocations=self._derived()[::_OF_SO_MANY])
        await self.made.message(OTHER, "muninn", "look", look, self.seen)

    def _derived(self) -> list[InvocationId]:
        """What rooms reported that they computed for her."""
        return sorted(
            {
                invocation_id(entry.invocation)
                for ask in self.made.rooms.post.asked("muninn", "report", Report)
                for entry in ask.entries
                if open_evidence(entry.evidence or b"").domain == OTHER
            }
        )
