"""Sessions: opened on first use or by hand, listed, looked into, collected when nobody uses them.

A session is a conversation, neither a persona nor a transport. Where a transport's conversation
happens (`place`) there is one, made on first use; sharing one is to name it. A session that was
idle for long is collected: its turns go, and what it had seen stays in the archive of its place, so
that a conversation taken up again is told what happened meanwhile and nothing twice.

Who may not read a namespace finds no session there but its own: where others have a session it
opens another, and its own has ended for it with the first turn (`beginnings`): then it opens the
next, which has seen as much as it did itself.

To open is to use: a session that was opened is there for the turn that follows. One that was idle
for too long is not gone on with, whether it was collected yet or not: it is then.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from actors.events.book import (
    ARCHIVE,
    NOT_VISIBLE,
    Book,
    Live,
    Session,
    archive_key,
    session_row,
    spot,
)
from actors.events.context import Marks, PromptContext, assemble_prompt_context
from actors.events.scope import Scopes, holder, may_have, may_read, require
from actors.events.turns import Turn, listed
from actors.ports import Clock, Entropy
from actors.room import Call
from protocol.errors import ContentError, NotVisible
from protocol.ids import SourceId
from protocol.limits import RENDER_TOKENS_MAX, RENDER_TOKENS_MIN
from protocol.messages import Empty
from protocol.messages import events as messages
from protocol.messages.events import Mark
from protocol.record import encode_record
from protocol.resource import Resource, ResourceKind, Right, path_covers
from protocol.tokenizer import Tokenizer
from store.events import EventLogs
from store.tables import Change, Put, Trim

TURNS_SHOWN: Final = 1000
TEXT_CHARS_MAX: Final = 255
SCOPE_MAX: Final = 256
# Collected sessions whose marks are remembered: of one namespace, and of all together.
ARCHIVED_MAX: Final = 100_000
ARCHIVED_TOTAL_MAX: Final = 1_000_000
_ID_BYTES: Final = 10
_DAY_NS: Final = 24 * 3600 * 10**9
# To open a session is written down as its use where the last one is longer ago: no write each time.
_USE_NS: Final = 3600 * 10**9


@dataclass(frozen=True)
class SessionLimits:
    """`render_tokens`: a reminder's budget where a turn names none. `lease_ns`: how long a turn is
    held without a renewal. `idle_ns`: after it a session is collected; the marks of the newest
    `archived_max` of each namespace are remembered."""

    render_tokens: int = 2048
    lease_ns: int = 30 * 10**9
    idle_ns: int = 30 * _DAY_NS
    archived_max: int = ARCHIVED_MAX


class Sessions:
    """All sessions in `book`. What they are told comes from `scopes` and `logs`."""

    def __init__(
        self,
        book: Book,
        scopes: Scopes,
        logs: EventLogs,
        tokenizer: Tokenizer,
        *,
        clock: Clock,
        entropy: Entropy,
        limits: SessionLimits,
    ) -> None:
        self.book = book
        self._scopes = scopes
        self._logs = logs
        self._tokenizer = tokenizer
        self._clock = clock
        self._entropy = entropy
        self.limits = limits
        self._opening = asyncio.Lock()
        self._collected = 0

    def __len__(self) -> int:
        return len(self.book.sessions())

    # -- operations --------------------------------------------------------------------------

    async def open(self, call: Call, ask: messages.OpenSession) -> messages.SessionRow:
        namespace = require(call, Right.GENERATE, ask.namespace)
        check_text("persona", ask.persona)
        if ask.place is not None:
            check_text("place", ask.place)
        return await self.book.undivided(self._open(call, ask, namespace))

    async def _open(
        self, call: Call, ask: messages.OpenSession, namespace: str
    ) -> messages.SessionRow:
        alone = None if may_read(call, namespace) else holder(call)
        place = None if ask.place is None else spot(ask.place, alone)
        before: list[Mark] | None = None
        if place is not None:
            kept, before = await self._taken_up(namespace, place, alone)
            if kept is not None:
                return session_row(kept)
        async with self._opening:
            there = None if place is None else self.book.at_place(namespace, place)
            if there is not None and (alone is None or not there.turns):
                # Another opened it meanwhile.
                return session_row(there)
            now_ns = self._clock.wall_ns()
            if place is not None and before is None:
                before = self._before(namespace, place, there)
            start = marked(self._start(call, ask, namespace, before))
            session = Session(
                v=1,
                id=new_id("session", self._entropy),
                namespace=namespace,
                persona=ask.persona,
                principal=call.handle.principal,
                created_ns=now_ns,
                used_ns=now_ns,
                turns=0,
                start=start,
                marks=start,
                injected=0,
                gaps=0,
                dropped=0,
                scope=None if ask.scope is None else sorted(set(ask.scope)),
                place=ask.place,
                alone=alone,
            )
            await self.book.add(session)
            return session_row(session)

    async def _taken_up(
        self, namespace: str, place: str, alone: bytes | None
    ) -> tuple[Session | None, list[Mark] | None]:
        """The session to go on with at the spot `place`, in use as of now; or, of one that was idle
        for too long and is collected with this, what it had seen."""
        there = self.book.at_place(namespace, place)
        if there is None or (alone is not None and there.turns):
            return None, None
        now_ns = self._clock.wall_ns()
        if now_ns - there.used_ns < min(_USE_NS, self.limits.idle_ns // 2):
            return there, None
        try:
            async with self.book.held(namespace, there.id) as live:
                if alone is not None and live.session.turns:
                    return None, None
                if live.session.used_ns < now_ns - self.limits.idle_ns:
                    seen = live.seen
                    await self._put_away(live)
                    return None, seen
                await self.book.write(live, [], used_ns=max(live.session.used_ns, now_ns))
                return live.session, None
        except NotVisible:
            # Collected or removed, while this waited for its lock.
            return None, None

    def _before(self, namespace: str, place: str, there: Session | None) -> list[Mark] | None:
        """The marks of the session that is, or was, at the spot `place`."""
        if there is not None:
            return self.book.live(namespace, there.id).seen
        archived = self.book.archived(namespace, place)
        return None if archived is None else archived.marks

    def _start(
        self, call: Call, ask: messages.OpenSession, namespace: str, before: list[Mark] | None
    ) -> Marks:
        """What a new session counts as having seen; `before`: what was seen at its place."""
        sources = self._scopes.in_scope(call, namespace, ask.scope)
        if ask.scope is not None:
            if len(ask.scope) > SCOPE_MAX:
                raise ContentError(f"a scope of {len(ask.scope)} sources: at most {SCOPE_MAX}")
            missing = set(ask.scope) - {source.label(namespace) for source in sources}
            if missing:
                raise NotVisible(f"no such source in this view: {min(missing)!r:.80}")
        if before is not None:
            # Anything since is news.
            return unmarked(before)
        if ask.since == "beginning":
            return {}
        return {source.id: source.head for source in sources}

    def list(self, call: Call, ask: messages.ListSessions) -> messages.Sessions:
        found = [
            session
            for session in self.book.sessions()
            if path_covers(ask.namespace, session.namespace)
            and call.handle.permits(
                Right.OBSERVE, Resource(kind=ResourceKind.NAMESPACE, name=session.namespace)
            )
        ]
        return messages.Sessions(sessions=[session_row(session) for session in found])

    def turns(self, call: Call, ask: messages.AskSession) -> messages.Turns:
        live = self.book.live(require(call, Right.OBSERVE, ask.namespace), ask.id)
        return messages.Turns(
            session=session_row(live.session),
            turns=[self._listed(live, turn) for turn in live.turns[-TURNS_SHOWN:]],
        )

    def response(self, call: Call, ask: messages.AskResponse) -> messages.ResponseRow:
        namespace = require(call, Right.OBSERVE, ask.namespace)
        session, number = self.book.answered(namespace, ask.response)
        live = self.book.live(namespace, session)
        turn = live.turn(number)
        if turn.state != "finished":
            raise NotVisible(NOT_VISIBLE)
        return messages.ResponseRow(session=session, turn=self._listed(live, turn), note=turn.note)

    async def forget_response(self, call: Call, ask: messages.AskResponse) -> Empty:
        namespace = require(call, Right.GENERATE, ask.namespace)
        session, number = self.book.answered(namespace, ask.response)
        turn = self.book.live(namespace, session).turn(number)
        if turn.state != "finished" or not may_have(call, namespace, turn.begun_by):
            raise NotVisible(NOT_VISIBLE)
        await self.book.undivided(self._forget_response(namespace, session, ask.response))
        return Empty()

    async def _forget_response(self, namespace: str, session: str, response: str) -> None:
        async with self.book.held(namespace, session) as live:
            await self.book.unname(live, response)

    def _listed(self, live: Live, turn: Turn) -> messages.TurnRow:
        parent = None if turn.parent is None else live.turn(turn.parent).id
        return listed(turn, parent, live=live.is_live(turn, self._clock.wall_ns()))

    async def remove(self, call: Call, ask: messages.AskSession) -> Empty:
        namespace = require(call, Right.ERASE, ask.namespace)
        await self.book.undivided(self._remove(namespace, ask.id))
        return Empty()

    async def _remove(self, namespace: str, id: str) -> None:
        async with self.book.held(namespace, id) as live:
            await self.book.remove(live)

    def preview(self, call: Call, ask: messages.Preview) -> messages.Previewed:
        live = self.book.live(require(call, Right.OBSERVE, ask.namespace), ask.session)
        parent = live.named(ask.parent).number if ask.parent else live.session.turns or None
        told = self.told(call, live, parent, ask.tokens_max)
        return messages.Previewed(
            text=told.text,
            tokens=told.tokens,
            events=told.events,
            folded=told.folded,
            gaps=told.gaps,
            marks=marked(told.marks),
        )

    # -- what turns need ---------------------------------------------------------------------

    def told(
        self, call: Call, live: Live, parent: int | None, tokens_max: int | None
    ) -> PromptContext:
        """What a turn on turn `parent` (None: the first) that began now would be told."""
        session = live.session
        budget = self.limits.render_tokens if tokens_max is None else tokens_max
        if not RENDER_TOKENS_MIN <= budget <= RENDER_TOKENS_MAX:
            raise ContentError(
                f"a reminder's budget is {RENDER_TOKENS_MIN} to {RENDER_TOKENS_MAX} tokens, not "
                f"{budget}",
                param="tokens_max",
            )
        marks = session.start if parent is None else live.turn(parent).marks_after
        return assemble_prompt_context(
            self._scopes.in_scope(call, session.namespace, session.scope),
            namespace=session.namespace,
            marks=unmarked(marks),
            logs=self._logs,
            tokenizer=self._tokenizer,
            tokens_max=budget,
        )

    # -- collection --------------------------------------------------------------------------

    async def collect(self) -> int:
        """Archive the sessions that nobody used for too long; how many went since the last time."""
        before_ns = self._clock.wall_ns() - self.limits.idle_ns
        for session in [each for each in self.book.sessions() if each.used_ns < before_ns]:
            # One that went meanwhile keeps no other.
            with suppress(NotVisible):
                await self.book.undivided(self._archive(session.namespace, session.id, before_ns))
        collected, self._collected = self._collected, 0
        return collected

    async def _archive(self, namespace: str, id: str, before_ns: int) -> None:
        async with self.book.held(namespace, id) as live:
            if live.session.used_ns < before_ns:
                await self._put_away(live)

    async def _put_away(self, live: Live) -> None:
        """Forget the session but for what it had seen. Under its lock."""
        session = live.session
        key = archive_key(session.namespace, session.spot or session.id)
        row = encode_record(msgspec.structs.replace(session, marks=live.seen))
        changes: list[Change] = [
            Put(ARCHIVE, key, row),
            Trim(ARCHIVE, self.limits.archived_max, archive_key(session.namespace, "")),
            Trim(ARCHIVE, ARCHIVED_TOTAL_MAX),
        ]
        await self.book.remove(live, changes)
        self._collected += 1

    def floor(self, source: SourceId, namespace: str, name: str) -> int | None:
        """The newest number of a source that every session with it in scope has seen; None if no
        session has it."""
        marks = []
        for session in self.book.sessions():
            if not path_covers(session.namespace, namespace):
                continue
            if session.scope is not None:
                below = namespace.removeprefix(session.namespace).strip("/")
                if (f"{below}/{name}" if below else name) not in session.scope:
                    continue
            marks.append(_mark(session.marks, source))
        return min(marks, default=None)


def new_id(kind: str, entropy: Entropy) -> str:
    """A new name, such as `session-0f1e…`: 80 random bits."""
    return f"{kind}-{entropy.draw(_ID_BYTES).hex()}"


def check_text(what: str, text: str) -> None:
    """Raises ContentError for a name that is empty, too long, or not one printable line."""
    if not 1 <= len(text) <= TEXT_CHARS_MAX or not text.isprintable():
        raise ContentError(
            f"a {what} is 1 to {TEXT_CHARS_MAX} printable characters, not {text!r:.80}", param=what
        )


def marked(marks: Marks) -> list[Mark]:
    """Marks as they are kept: sorted, so that equal marks are equal records."""
    return [Mark(source=source, seq=seq) for source, seq in sorted(marks.items())]


def _mark(marks: Sequence[Mark], source: SourceId) -> int:
    """One of `marked` marks, found by halving: every session is asked for it in a sweep."""
    at = bisect_left(marks, source.digest, key=lambda mark: mark.source.digest)
    return marks[at].seq if at < len(marks) and marks[at].source == source else 0


def unmarked(marks: Sequence[Mark]) -> Marks:
    return {mark.source: mark.seq for mark in marks}


def used(session: Session, turn: str, now_ns: int, told: PromptContext) -> dict[str, object]:
    """What changes in a session with turn `turn`, which is told this."""
    return {
        "head": turn,
        "used_ns": max(session.used_ns, now_ns),
        "injected": session.injected + told.events - told.folded,
        "gaps": session.gaps + sum(gap.count for gap in told.gaps),
        "dropped": session.dropped + told.folded,
        "marks": marked(told.marks),
    }
