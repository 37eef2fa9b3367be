"""How a turn goes on and ends: renewed, finished with its answer, or given up.

An answer is kept before anybody hears its end. First the conversation with the answer goes into the
ropes room, then the turn names it, in one transaction: a crash between the two leaves an open turn,
and the same `finish_turn` said again stores the same blocks under the same ids. A turn that
another one continued became unfinished with that, and its answer comes too late (Conflict).

Who may answer in a namespace and not read there goes on with and ends the turns that it began, and
is told nothing of the conversation. Any other turn is none for it.
"""

from __future__ import annotations

import msgspec

from actors.events.alignment import block_id
from actors.events.book import NOT_VISIBLE, Book, Live
from actors.events.conversations import Conversations
from actors.events.scope import may_have, may_read, require
from actors.events.turns import Turn, step
from actors.ports import Clock
from actors.room import Call
from protocol.blocks import BlockType, ContextBlock, Representation, Role, Source, text_block
from protocol.errors import Conflict, ContentError, DiskFull, LimitExceeded, NotVisible
from protocol.ids import TextId
from protocol.messages import Empty
from protocol.messages import events as messages
from protocol.messages.ropes import NewBlock
from protocol.record import object_id
from protocol.resource import Right
from protocol.tokenizer import Tokenizer, check_outside_ids
from protocol.tokens import unpack


class Endings:
    """Ends turns of the sessions in `book`. `tokenizer`: of the ids that answers are kept with."""

    def __init__(
        self,
        book: Book,
        conversations: Conversations,
        tokenizer: Tokenizer,
        *,
        clock: Clock,
        lease_ns: int,
    ) -> None:
        self._book = book
        self._conversations = conversations
        self._tokenizer = tokenizer
        self._contract = object_id(tokenizer.contract)
        self._clock = clock
        self._lease_ns = lease_ns

    async def renew(self, call: Call, ask: messages.RenewTurn) -> messages.Renewed:
        namespace = require(call, Right.GENERATE, ask.namespace)
        return await self._book.undivided(self._renew(call, namespace, ask))

    async def _renew(self, call: Call, namespace: str, ask: messages.RenewTurn) -> messages.Renewed:
        async with self._book.held(namespace, ask.session) as live:
            turn = _named(call, live, ask.turn)
            step(turn, "renew")
            lease_ns = self._clock.wall_ns() + self._lease_ns
            await self._book.renew(live, turn.number, lease_ns)
            return messages.Renewed(lease_ns=lease_ns)

    async def abandon(self, call: Call, ask: messages.AbandonTurn) -> Empty:
        namespace = require(call, Right.GENERATE, ask.namespace)
        await self._book.undivided(self._abandon(call, namespace, ask))
        return Empty()

    async def _abandon(self, call: Call, namespace: str, ask: messages.AbandonTurn) -> None:
        async with self._book.held(namespace, ask.session) as live:
            turn = _named(call, live, ask.turn)
            state = step(turn, "abandon")
            if state != turn.state:
                try:
                    await self._book.write(live, [msgspec.structs.replace(turn, state=state)])
                except DiskFull:
                    live.give_up(turn.number)
                    raise

    async def finish(self, call: Call, ask: messages.FinishTurn) -> messages.FinishedTurn:
        namespace = require(call, Right.GENERATE, ask.namespace)
        return await self._book.undivided(self._finish(call, namespace, ask))

    async def _finish(
        self, call: Call, namespace: str, ask: messages.FinishTurn
    ) -> messages.FinishedTurn:
        async with self._book.held(namespace, ask.session) as live:
            turn = _named(call, live, ask.turn)
            state = step(turn, "finish")
            if ask.note is not None and len(ask.note) > messages.NOTE_BYTES_MAX:
                raise LimitExceeded(
                    f"a note of {len(ask.note)} bytes: at most {messages.NOTE_BYTES_MAX}"
                )
            # A client that keeps its history sends the answer back as text: it is kept as that.
            answer = self._answer(ask.answer, as_text=turn.history_digest is not None)
            if turn.kept is not None:
                return await self._finished(call, live, turn, answer)
            asked = await self._told(call, live, turn)
            kept = await self._conversations.keep(
                call, namespace, [*turn.tail, answer], base=turn.base, keep=turn.keep
            )
            finished = msgspec.structs.replace(
                turn,
                state=state,
                tail=[],
                kept=kept,
                answer=block_id(answer),
                context=ask.context,
                note=ask.note,
                finish=ask.finish,
                usage=ask.usage,
            )
            used_ns = max(live.session.used_ns, self._clock.wall_ns())
            await self._book.write(live, [finished], used_ns=used_ns)
            # What is remembered is without the answer.
            self._conversations.forget(live.session.id, turn.number)
            if asked is None:
                return messages.FinishedTurn(sequence=kept.sequence, blocks=[])
            blocks = [*asked, answer]
            self._conversations.remember(live.session.id, turn.number, blocks)
            return messages.FinishedTurn(sequence=kept.sequence, blocks=blocks)

    async def _finished(
        self, call: Call, live: Live, turn: Turn, answer: NewBlock
    ) -> messages.FinishedTurn:
        """The answer to a finish that was heard before; Conflict if it brings another answer."""
        if turn.kept is None or turn.answer != block_id(answer):
            raise Conflict(
                f"turn {turn.id} was finished with another answer: begin another turn",
                reason="turn_finished",
                turn=turn.id,
            )
        blocks = await self._told(call, live, turn)
        return messages.FinishedTurn(sequence=turn.kept.sequence, blocks=blocks or [])

    async def _told(self, call: Call, live: Live, turn: Turn) -> list[NewBlock] | None:
        """What is kept or remembered of `turn`'s conversation; None for who may not read there."""
        if not may_read(call, live.session.namespace):
            return None
        return await self._conversations.of(call, live.session.id, turn)

    def _answer(self, given: messages.OutputBlock, *, as_text: bool) -> NewBlock:
        """The block of an answer: the ids that were generated, with their text, where there are
        such ids and the next prompt is made here; else the text."""
        if given.role is not Role.MODEL:
            raise ContentError(f"an answer is the model's, not of role {given.role.value}")
        if (given.ids is None) != (given.tokenizer is None):
            raise ContentError("ids come with the tokenizer contract that they are of, or not")
        if given.ids is not None and given.tokenizer == self._contract:
            check_outside_ids(unpack(given.ids), self._tokenizer)
        block = text_block(Role.MODEL, BlockType.MODEL_TURN, given.text)
        content = given.text.encode("utf-8")
        if given.ids is not None and not as_text:
            block = ContextBlock(
                v=1,
                role=Role.MODEL,
                type=BlockType.MODEL_TURN,
                source=Source(object=TextId.of(content)),
                representation=Representation(
                    kind="exact-tokens", tokens=given.ids, tokenizer=given.tokenizer
                ),
                rendering={},
                trust=True,
            )
        return NewBlock(block=block, content=content)


def _named(call: Call, live: Live, id: str) -> Turn:
    """The turn `id` of the session; NotVisible, also if it is another's and `call` may not read."""
    turn = live.named(id)
    if not may_have(call, live.session.namespace, turn.begun_by):
        raise NotVisible(NOT_VISIBLE)
    return turn
