"""Halls: small worlds in which a stranger tries to find out from the worker itself what alice asks.

Most are about public beginnings: what she asked behind one, or before it was one. The operator
publishes and withdraws; alice, where she is, asks in between; and the stranger asks with the
statements that there are, with old ones, and with some that were made for other tokens. What is
warm for everybody was warmed by the operator, so nothing that the stranger may know differs.

There are two streams, so one that holds something of alice's is soon the next to be taken.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any

from msgspec import structs

from protocol.blocks import Role
from protocol.derivation import invocation_id, open_evidence
from protocol.ids import BlockId, ChainId, InvocationId, PageId
from protocol.messages.muninn import Look, Report
from protocol.messages.ropes import NewBlock
from protocol.messages.worker import AskPages, AskReceipt, Cancel, Generate, Settle
from protocol.record import object_id
from tests.events_rooms import said
from tests.presence_house import OWNER_MAX, House
from tests.presence_jobs import (
    Change,
    Talk,
    as_it_is,
    chains_of,
    job_of,
    prompt_of,
    publish,
    stated,
    withdraw,
)
from tests.presence_messages import OTHER, Message
from tests.presence_seen import Seen

STREAMS = 2
# Each begins in its own way, so none of them is the beginning of another.
EARLY, AGAIN, LATE, WAITING, RACING, READY, PLAIN, SYSTEM = (
    said(Role.SYSTEM, f"{word}: what is said in the hall before anything else, at some length")
    for word in ("early", "again", "late", "waiting", "racing", "ready", "plain", "system")
)
GUIDE = said(Role.USER, "The guide of the house: knock twice, wipe your feet, and do not shout.")
PRIVATE = said(Role.USER, "What nobody but she has ever said, and nobody else shall know of it.")
PUT_BY = said(Role.USER, "What she only wanted to have ready, and never had an answer to at all.")
SECRET = said(Role.USER, "and what she goes on with")
MORE = said(Role.USER, "or with this")
ASKED = said(Role.USER, "is it true?")
ANSWERED = (said(Role.MODEL, "It is."), said(Role.USER, "why?"))


class Told:
    """What the stranger knows of what alice computed without being told here: it can compute it."""

    def __init__(self) -> None:
        self.pages: dict[ChainId, PageId] = {}
        self.invocations: list[InvocationId] = []

    def learn(self, made: House) -> None:
        """Everything that the worker has reported so far."""
        for ask in made.rooms.post.asked("muninn", "report", Report):
            for entry in ask.entries:
                ids = [each.id for each in open_evidence(entry.evidence or b"").outputs]
                chain = [ChainId.parse(each) for each in ids if each.startswith("chain:")]
                page = [PageId.parse(each) for each in ids if each.startswith("page:")]
                if page:
                    self.pages[chain[0]] = page[0]
                    self.invocations.append(invocation_id(entry.invocation))


class Hall:
    """One of two worlds; `lived`: with alice in it. What `who` is answered is `seen`."""

    def __init__(self, made: House, who: str, seen: Seen, told: Told, *, lived: bool) -> None:
        self.made = made
        self.who = who
        self.seen = seen
        self.told = told
        self.lived = lived
        self._asked: Counter[str] = Counter()

    async def job(self, who: str, talk: Talk, change: Change = as_it_is) -> Generate:
        """The next job of `who`."""
        self._asked[who] += 1
        prompt = await prompt_of(self.made, who, talk)
        return change(job_of(self.made, prompt, f"resp-{who}-{self._asked[who]}"))

    async def _ready(self, talk: Talk) -> Settle:
        prompt = await prompt_of(self.made, OTHER, talk)
        return Settle(response="resp-ready", segments=prompt.segments, public=prompt.public)

    async def alice(self, *talk: NewBlock, change: Change = as_it_is) -> None:
        """She is answered, and everything that comes of it is kept."""
        if self.lived:
            job = await self.job(OTHER, talk, change)
            assert await self.made.message(OTHER, "worker", "generate", job, Seen())
            await self.made.quiet()

    async def has_ready(self, *talk: NewBlock) -> None:
        """She has it made ready on an empty stream, and no answer to it."""
        self.emptied()
        if self.lived:
            ask = await self._ready(talk)
            assert await self.made.message(OTHER, "worker", "settle", ask, Seen())
            await self.made.quiet()

    async def withdrawn(self, block: NewBlock, work: str, *, first: bool) -> None:
        """It is withdrawn, and published again. In the same breath in which it is withdrawn she
        has an answer to it, or has it made ready (`work`): she `first`, or just after. Then the
        stranger asks."""
        self.emptied()
        both: list[Coroutine[Any, Any, Any]] = [withdraw(self.made, block)]
        if self.lived:
            talk = [block, SECRET]
            ask = await (self.job(OTHER, talk) if work == "generate" else self._ready(talk))
            both.insert(0 if first else 1, self.made.message(OTHER, "worker", work, ask, Seen()))
        await asyncio.gather(*both)
        await self.made.quiet()
        await publish(self.made, block)
        self.emptied()
        await self.stranger(block, ASKED)

    async def operator(self, *talk: NewBlock) -> None:
        """The operator is answered: on the stream that alice did not use last."""
        number = self._asked["operator"]
        job = await self.job("operator", talk or [said(Role.USER, f"something else, {number}")])
        assert await self.made.message("operator", "worker", "generate", job, Seen())
        await self.made.quiet()

    def emptied(self) -> None:
        """No stream holds anything any more."""
        self.made.worker._engine._seats.clear_all()

    async def stranger(self, *talk: NewBlock, change: Change = as_it_is) -> None:
        """The stranger is answered, and looks at its receipt."""
        job = await self.job(self.who, talk, change)
        await self.says(Message("worker", "generate", job))
        await self.made.quiet()
        await self.says(Message("worker", "receipt", AskReceipt(response=job.response)))

    async def looks_for_pages(self, *talk: NewBlock) -> None:
        """The stranger asks after the pages of what alice asked."""
        for chain in chains_of(await prompt_of(self.made, self.who, talk)):
            page = self.told.pages.get(chain)
            if page is not None:
                await self.says(Message("worker", "pages", AskPages(chain=chain, pages=[page])))

    async def looks(self) -> None:
        """The stranger looks up what the worker may have computed."""
        for each in self.told.invocations[:64]:
            await self.says(Message("muninn", "look", Look(invocations=[each])))

    async def says(self, message: Message) -> None:
        """The stranger says it, and is answered."""
        await self.made.message(self.who, message.room, message.op, message.record, self.seen)

    # -- what is said to be public ---------------------------------------------------------------

    def old(self, job: Generate) -> Generate:
        """The first block is said to be public, as it may have been once."""
        return structs.replace(job, public=stated(self.made, job.segments[:1]))

    def disguised(self, job: Generate) -> Generate:
        """Under the name of a public block, behind one that is said to be public."""
        return self.old(_named(job, object_id(GUIDE.block)))  # type: ignore[arg-type]

    def nameless(self, job: Generate) -> Generate:
        """The tokens of a public block under another name, behind one that is public."""
        return self.old(_named(job, BlockId.of(b"another")))

    @staticmethod
    def unsaid(job: Generate) -> Generate:
        """Nothing is said to be public."""
        return structs.replace(job, public=None)


def _named(job: Generate, block: BlockId) -> Generate:
    """The second block under that name."""
    first, second, *others = job.segments
    return structs.replace(job, segments=[first, structs.replace(second, block=block), *others])


async def before_it_was(hall: Hall) -> None:
    """What alice asked while it was private, and what went back to being private."""
    await hall.alice(EARLY, SECRET)
    # Restored from what was kept, and so known by its pages.
    hall.emptied()
    await hall.alice(EARLY, MORE)
    await publish(hall.made, EARLY, AGAIN)
    await hall.operator()
    await hall.stranger(EARLY, ASKED)
    await hall.alice(AGAIN, SECRET)
    await withdraw(hall.made, AGAIN)
    await publish(hall.made, AGAIN)
    await hall.operator()
    await hall.stranger(AGAIN, ASKED)


async def when_it_is_no_more(hall: Hall) -> None:
    """What alice asked of blocks that are withdrawn just then, or were before."""
    await publish(hall.made, WAITING, RACING, READY, LATE)
    await hall.withdrawn(WAITING, "generate", first=True)
    await hall.withdrawn(RACING, "generate", first=False)
    await hall.withdrawn(READY, "settle", first=True)
    await withdraw(hall.made, LATE)
    await hall.alice(LATE, SECRET, change=hall.old)
    hall.emptied()
    await hall.stranger(LATE, ASKED, change=hall.old)


async def behind_it(hall: Hall) -> None:
    """What alice asked behind a public beginning, under the name of one, and without any."""
    await publish(hall.made, SYSTEM, GUIDE)
    await hall.operator(SYSTEM, said(Role.USER, "are you there?"))
    await hall.alice(SYSTEM, GUIDE, SECRET)
    await hall.alice(SYSTEM)
    await hall.alice(SYSTEM, PRIVATE, SECRET, change=hall.disguised)
    await hall.alice(PRIVATE)
    await hall.has_ready(PUT_BY)
    hall.emptied()
    if hall.lived:
        hall.told.learn(hall.made)
    await hall.looks_for_pages(PRIVATE)
    await hall.looks_for_pages(PUT_BY)
    await hall.stranger(SYSTEM, GUIDE, ASKED, change=hall.nameless)
    await hall.stranger(SYSTEM, PRIVATE, ASKED, change=hall.disguised)
    await hall.stranger(SYSTEM, *ANSWERED)


async def without_leave(hall: Hall) -> None:
    """For who has `telemetry` in its own domain, and not in the public one."""
    await publish(hall.made, SYSTEM, GUIDE, PLAIN)
    await hall.alice(PLAIN, SECRET)
    await hall.operator()
    await hall.stranger(PLAIN, ASKED, change=hall.unsaid)
    await hall.operator(SYSTEM, said(Role.USER, "are you there?"))
    await hall.alice(SYSTEM, GUIDE, SECRET)
    hall.emptied()
    if hall.lived:
        hall.told.learn(hall.made)
    await hall.looks_for_pages(SYSTEM, GUIDE, SECRET)
    await hall.stranger(SYSTEM, GUIDE, ASKED)
    await hall.looks()


async def while_she_is_answered(hall: Hall) -> None:
    """Answers that she has open, or cancelled ahead, whose names the stranger takes too, and other
    requests of hers. So many that nobody might have more."""
    if hall.lived:
        for number in range(OWNER_MAX):
            ahead = Cancel(response=f"resp-ahead-{number}")
            await hall.made.message(OTHER, "worker", "cancel", ahead, Seen())
    await hall.says(Message("worker", "cancel", Cancel(response="resp-of-its-own")))
    names = [f"resp-open-{number}" for number in range(OWNER_MAX)] if hall.lived else []
    hers = [
        structs.replace(await hall.job(OTHER, [said(Role.USER, name)]), response=name)
        for name in names
    ]
    its = structs.replace(await hall.job(hall.who, [ASKED]), response="resp-open-0")
    await asyncio.gather(
        *(hall.made.message(OTHER, "worker", "generate", job, Seen()) for job in hers),
        hall.says(Message("worker", "generate", its)),
    )
    with ExitStack() as stack:
        for _ in hers:
            stack.enter_context(hall.made.gateway.quotas.entered(OTHER))
        await hall.made.http(hall.who, ("GET", "/v1/models", None), hall.seen)


# By what alice did and a stranger tries: which one it is.
HALLS = {
    "before it was": ("boris", before_it_was),
    "when it is no more": ("boris", when_it_is_no_more),
    "behind it": ("boris", behind_it),
    "without leave": ("vera", without_leave),
    "while she is answered": ("bob", while_she_is_answered),
}
