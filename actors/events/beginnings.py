"""The beginning of a turn: what it is told, where every reminder stands, one row that says so.

Under the session's lock the parent is settled (waiting for one that is open, giving up one whose
lease ran out), `assemble_prompt_context` says what is new above its marks, and the conversation is
put together. Then the turn, its reminder, its marks and the session's counters are one transaction.
So a crash leaves either no turn, and nothing was told, or a turn with its reminder in it, which
the next turn on it carries: an event reaches a lineage's prompts once (I-ONCE).

With `input` the conversation is the kept one of the nearest finished turn, what unfinished turns
after it were told, and the input. With `history` it is what the client resent, with every reminder
at its anchor (`alignment`).

A session that has turns is gone on with only by who may read its namespace: what the turn begins
with is what was said, also where it is remembered here. Others have the first turn of sessions that
they opened themselves, which holds nothing but what they bring and may observe; any other session
is none for them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from actors.events.alignment import (
    Anchor,
    block_id,
    check_messages,
    fresh_from,
    newest_anchor,
    realign,
    seen,
    woven,
)
from actors.events.book import NOT_VISIBLE, RESPONSES, Live, response_key, response_row
from actors.events.context import PromptContext
from actors.events.conversations import Conversations
from actors.events.reminder import is_reminder
from actors.events.replays import asked_digest, check_asked, told_again
from actors.events.scope import holder, may_read, require
from actors.events.sessions import Sessions, check_text, marked, new_id, unmarked, used
from actors.events.turns import Kept, Placed, Turn, step
from actors.ports import Clock, Entropy
from actors.room import Call
from protocol.errors import Conflict, ContentError, NotVisible
from protocol.messages import events as messages
from protocol.messages.ropes import NewBlock
from protocol.resource import Right
from store.tables import Put

WAIT_NS_MAX: Final = 600 * 10**9
# New blocks up to this many bytes lie in the turn's row until it is finished.
INLINE_BYTES_MAX: Final = 256 * 1024
_NS_PER_S: Final = 10**9


@dataclass(frozen=True)
class _Talk:
    """A conversation put together: its blocks, of which the first `keep` are those of `base`, and
    what a turn has to remember of it."""

    blocks: list[NewBlock]
    base: Kept | None
    keep: int
    placed: list[Placed]
    messages: int
    history_digest: bytes | None = None


@dataclass(frozen=True)
class _Busy:
    """An open turn that is in the way: until its lease ends, or something `changed`."""

    turn: str
    lease_ns: int
    changed: asyncio.Event

    @classmethod
    def of(cls, live: Live, turn: Turn) -> _Busy:
        return cls(turn.id, live.leases.get(turn.number, turn.lease_ns), live.changed)


class Beginnings:
    """Begins turns of `sessions`; `counters` are the room's."""

    def __init__(
        self,
        sessions: Sessions,
        conversations: Conversations,
        counters: Counter[str],
        *,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._sessions = sessions
        self._book = sessions.book
        self._conversations = conversations
        self._counters = counters
        self._clock = clock
        self._entropy = entropy

    async def begin(self, call: Call, ask: messages.BeginTurn) -> messages.BegunTurn:
        """As `BeginTurn` says. Raises Conflict with reason `turn_in_progress` when the wait for a
        turn on the same parent was in vain."""
        namespace = require(call, Right.GENERATE, ask.namespace)
        _check(ask)
        if ask.parent_response is not None:
            _check_reads(call, namespace)
        session, number = self._named(namespace, ask)
        until_ns = self._clock.steady_ns() + ask.wait_ns_max
        while True:
            work = self._try(call, ask, (namespace, session), number)
            outcome = await self._book.undivided(work)
            if isinstance(outcome, messages.BegunTurn):
                return outcome
            left_ns = until_ns - self._clock.steady_ns()
            if left_ns <= 0:
                raise Conflict(
                    f"turn {outcome.turn} is in progress on the same parent: wait for it, or raise "
                    "wait_ns_max",
                    reason="turn_in_progress",
                    turn=outcome.turn,
                )
            wait_ns = max(1, min(left_ns, outcome.lease_ns - self._clock.wall_ns()))
            try:
                async with asyncio.timeout(wait_ns / _NS_PER_S):
                    await outcome.changed.wait()
            except TimeoutError:
                continue

    def _named(self, namespace: str, ask: messages.BeginTurn) -> tuple[str, int | None]:
        """The session, and the number of the parent where it is named by its response."""
        if ask.parent_response is None:
            return ask.session or "", None
        session, number = self._book.answered(namespace, ask.parent_response)
        if ask.session not in (None, session):
            raise ContentError(
                f"response {ask.parent_response:.80} is of another session", param="session"
            )
        return session, number

    # -- under the session's lock --------------------------------------------------------------

    async def _try(
        self, call: Call, ask: messages.BeginTurn, where: tuple[str, str], number: int | None
    ) -> messages.BegunTurn | _Busy:
        """The turn that was begun, or the open one that is in the way."""
        async with self._book.held(*where) as live:
            if live.session.turns or live.session.alone != holder(call):
                _check_reads(call, live.session.namespace)
            now_ns = self._clock.wall_ns()
            known = live.keyed(ask.key) if ask.key else None
            finished = known is not None and known.state == "finished"
            if known is not None and (finished or live.is_live(known, now_ns)):
                check_asked(known, ask)
                if finished or known.response == ask.response:
                    return await self._again(call, live, known)
                return _Busy.of(live, known)
            if ask.parent is not None:
                number = live.named(ask.parent).number
            elif number is None:
                number = live.session.turns or None
            parent = None if number is None else live.turn(number)
            for other in [*([parent] if parent else []), *live.children(number)]:
                if live.is_live(other, now_ns):
                    return _Busy.of(live, other)
            return await self._begin(call, ask, live, parent, now_ns)

    async def _begin(
        self,
        call: Call,
        ask: messages.BeginTurn,
        live: Live,
        parent: Turn | None,
        now_ns: int,
    ) -> messages.BegunTurn:
        session = live.session
        number = session.turns + 1
        told = self._sessions.told(call, live, parent.number if parent else None, ask.tokens_max)
        talk = await self._talk(call, ask, live, parent, (number, told.block))
        base, keep, tail = talk.base, talk.keep, talk.blocks[talk.keep :]
        if sum(len(block.content) for block in tail) > INLINE_BYTES_MAX:
            base = await self._conversations.keep(
                call, session.namespace, tail, base=base, keep=keep
            )
            keep, tail = base.blocks, []
        turn = Turn(
            v=1,
            id=new_id("turn", self._entropy),
            number=number,
            state="open",
            response=ask.response,
            began_ns=now_ns,
            lease_ns=now_ns + self._sessions.limits.lease_ns,
            marks_before=parent.marks_after if parent else session.start,
            marks_after=marked(told.marks),
            gaps=told.gaps,
            events=told.events,
            folded=told.folded,
            placed=talk.placed,
            messages=talk.messages,
            keep=keep,
            tail=tail,
            parent=parent.number if parent else None,
            key=ask.key,
            asked=asked_digest(ask),
            reminder=told.block,
            history_digest=talk.history_digest,
            base=base,
            begun_by=holder(call),
        )
        assert _grows(turn), "marks only grow along a lineage"
        await self._keep(live, turn, parent, told, now_ns)
        self._conversations.remember(session.id, number, talk.blocks)
        return self._begun(live, turn, talk.blocks)

    async def _keep(
        self, live: Live, turn: Turn, parent: Turn | None, told: PromptContext, now_ns: int
    ) -> None:
        """The one transaction in which a turn begins and its marks move."""
        session = live.session
        turns = [turn]
        if parent is not None:
            state = step(parent, "continue")
            if state != parent.state:
                turns.insert(0, msgspec.structs.replace(parent, state=state))
        row = response_row(session.id, turn.number)
        changes = [Put(RESPONSES, response_key(session.namespace, turn.response), row)]
        await self._book.write(live, turns, changes, **used(session, turn.id, now_ns, told))
        self._counters["injected"] += turn.injected
        self._counters["counted"] += turn.folded
        self._counters["gaps seen"] += sum(gap.count for gap in turn.gaps)
        self._counters["turns"] += 1

    async def _again(self, call: Call, live: Live, turn: Turn) -> messages.BegunTurn:
        """What became of a turn that was begun before."""
        blocks = await self._conversations.of(call, live.session.id, turn)
        begun = self._begun(live, turn, blocks)
        return begun if turn.state != "finished" else told_again(begun, turn, holder(call))

    def _begun(self, live: Live, turn: Turn, blocks: list[NewBlock]) -> messages.BegunTurn:
        return messages.BegunTurn(
            session=live.session.id,
            turn=turn.id,
            blocks=blocks,
            lease_ns=live.leases.get(turn.number, turn.lease_ns),
            reminders=sum(map(is_reminder, blocks)),
            injected=turn.injected,
            gaps=turn.gaps,
        )

    # -- putting the conversation together -----------------------------------------------------

    async def _talk(
        self,
        call: Call,
        ask: messages.BeginTurn,
        live: Live,
        parent: Turn | None,
        own: tuple[int, NewBlock | None],
    ) -> _Talk:
        """The conversation with its reminders; `own` is the number of the new turn and what it is
        told."""
        unfinished: list[Turn] = []
        ground = parent
        while ground is not None and ground.kept is None:
            unfinished.insert(0, ground)
            ground = live.turn(ground.parent) if ground.parent is not None else None
        if ask.history is not None:
            return self._history(ask.history, live, parent, ground, own)
        assert ask.input is not None, "one of history and input was checked to be there"
        before: list[NewBlock] = []
        if ground is not None:
            before = await self._conversations.of(call, live.session.id, ground)
        carried = [(turn.number, turn.reminder) for turn in unfinished]
        stood = live.view(parent.number if parent else None)
        stands = live.view(ground.number if ground else None)
        # What unfinished turns moved in histories of theirs is where the kept one has it.
        back = [Placed.at(turn, at) for turn, at in stands.items() if stood.get(turn) != at]
        return _continued(ask.input, before, ground, [*carried, own], back)

    def _history(
        self,
        blocks: Sequence[NewBlock],
        live: Live,
        parent: Turn | None,
        ground: Turn | None,
        own: tuple[int, NewBlock | None],
    ) -> _Talk:
        ids = [block_id(block) for block in blocks]
        stood = live.view(parent.number if parent else None)
        newest = newest_anchor(blocks, ids, fresh_from(ids, parent.history if parent else None))
        held = realign(list(stood.values()), ids)
        stands = {turn: anchor or newest for turn, anchor in zip(stood, held, strict=True)}
        told: dict[Anchor, list[NewBlock]] = defaultdict(list)
        for turn, anchor in stands.items():
            told[anchor].append(_reminder(live.turn(turn)))
        if own[1] is not None:
            stands[own[0]] = newest
            told[newest].append(own[1])
        talk = woven(blocks, told)
        known = ground and self._conversations.recall(live.session.id, ground.number)
        keep = _common(known, talk) if known else 0
        return _Talk(
            blocks=talk,
            base=ground.kept if ground and keep else None,
            keep=keep,
            placed=[
                Placed.at(turn, anchor)
                for turn, anchor in stands.items()
                if stood.get(turn) != anchor
            ],
            messages=len(blocks),
            history_digest=seen(ids).digest,
        )


def _continued(
    given: Sequence[NewBlock],
    before: list[NewBlock],
    ground: Turn | None,
    reminders: Sequence[tuple[int, NewBlock | None]],
    back: Sequence[Placed],
) -> _Talk:
    """What is new behind `before`, with reminders before its last message of a user's."""
    ids = [block_id(block) for block in given]
    offset = ground.messages_after if ground else 0
    there = newest_anchor(given, ids, 0)
    anchor = there._replace(position=there.position + offset)
    told = [(turn, block) for turn, block in reminders if block is not None]
    tail = woven(given, {there: [block for _, block in told]})
    return _Talk(
        blocks=[*before, *tail],
        base=ground.kept if ground else None,
        keep=len(before),
        placed=[*back, *(Placed.at(turn, anchor) for turn, _ in told)],
        messages=offset + len(given),
    )


def _check_reads(call: Call, namespace: str) -> None:
    """Raises NotVisible, as for a session that is not there, unless `call` may read there."""
    if not may_read(call, namespace):
        raise NotVisible(NOT_VISIBLE)


def _check(ask: messages.BeginTurn) -> None:
    if (ask.history is None) == (ask.input is None):
        raise ContentError("a turn begins with either `history` or `input`")
    if ask.history is not None and (ask.parent or ask.parent_response):
        raise ContentError("a resent history continues the newest turn: name no parent with it")
    if ask.session is None and ask.parent_response is None:
        raise ContentError("a turn is of a session, or continues a response", param="session")
    if ask.parent and ask.parent_response:
        raise ContentError("a parent is named by its turn or by its response, not by both")
    if not 0 <= ask.wait_ns_max <= WAIT_NS_MAX:
        raise ContentError(f"wait_ns_max is 0 to {WAIT_NS_MAX}, not {ask.wait_ns_max}")
    check_text("response", ask.response)
    if ask.key is not None:
        check_text("key", ask.key)
    if ask.terms is not None and len(ask.terms) != messages.TERMS_BYTES:
        raise ContentError(f"terms are a digest of {messages.TERMS_BYTES} bytes", param="terms")
    check_messages(ask.history if ask.history is not None else ask.input or [])


def _grows(turn: Turn) -> bool:
    after = unmarked(turn.marks_after)
    return all(after.get(source, -1) >= seq for source, seq in unmarked(turn.marks_before).items())


def _reminder(turn: Turn) -> NewBlock:
    assert turn.reminder is not None, "only a turn with a reminder stands anywhere"
    return turn.reminder


def _common(known: Sequence[NewBlock], talk: Sequence[NewBlock]) -> int:
    """How many blocks the two begin with alike."""
    same = 0
    for old, new in zip(known, talk, strict=False):
        if old.block != new.block:
            break
        same += 1
    return same
