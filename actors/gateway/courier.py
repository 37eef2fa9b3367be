"""The courier: how every transport carries a turn of a session, and all that it has to know.

A transport says which session and what is new (or the whole history, if its clients keep that), and
relays items. Everything a model sees beyond that is the events room's: what happened meanwhile,
where a reminder stands, which turn goes on from which. So a transport aligns no history, keeps no
mark, and a new one changes nothing in the event path (EVT-7).

    async with carry(gateway, caller, model, errand) as turn:
        work = jobs(turn.prompt, ask, model, errand.response, gateway.limits)
        async with Answers(caller, model.room, work, turn.items) as answers:
            ...                                        # relay; the end comes last
    gateway.later(turn.settle())

The end of an answer is told only when the answer is kept. A block that is left before that, for
whatever reason (the client went, the worker failed, the answer was cancelled), gives the turn up:
nothing of its answer is kept, and the next turn carries its reminder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from actors.gateway.answers import Choice, ToldAgain
from actors.gateway.caller import Caller
from actors.gateway.models import ServedModel
from actors.gateway.room import Gateway
from actors.gateway.sessions import PERSONA, ask_events, open_session
from actors.gateway.turns import Prompt, chat_prompt, settle_blocks
from protocol.blocks import Role
from protocol.errors import HuginnError, RequestError
from protocol.ids import ContextId, ContractId
from protocol.messages import Empty
from protocol.messages.events import (
    AbandonTurn,
    BeginTurn,
    BegunTurn,
    FinishedTurn,
    FinishTurn,
    OutputBlock,
    Renewed,
    RenewTurn,
    TurnUsage,
)
from protocol.messages.ropes import NewBlock
from protocol.messages.worker import Generate, Item
from protocol.record import encode_record
from protocol.resource import Right
from protocol.tokenizer import Tokenizer
from protocol.tokens import unpack

log = logging.getLogger("huginn.gateway")

_NS_PER_S: Final = 10**9
# A lease is renewed when a third of it is over, so that two renewals may fail.
_RENEW_PARTS: Final = 3
_RENEW_SECONDS_MIN: Final = 0.05
_RENEW_SECONDS_AGAIN: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What a transport brings for one turn.

    The session is the one called `session`, the one at `place` (made on first use), or that of the
    turn which `parent_response` answered: the turn continues that one then, else the newest.
    Exactly one of `history` (all messages, of a client that keeps them) and `input` (what is new).
    With `input` the answer is kept as the ids that were generated (ASM-6), with `history` as text:
    the client sends back nothing else. `before` are blocks in front of the conversation, for this
    answer alone and kept in no turn. `key`: a turn with a key that the session has seen is answered
    as it was; with other input or other `terms` it is refused. `terms` are a digest of what else
    was asked: what the client said itself, and no default of the service's, which may have changed
    when the key comes again. A transport whose messages come with nothing else has none: its
    message is answered as it was also by a service that has another model now. `note` makes what is
    kept beside the answer for `AskResponse`.
    """

    namespace: str
    response: str
    session: str | None = None
    place: str | None = None
    persona: str = PERSONA
    parent_response: str | None = None
    history: list[NewBlock] | None = None
    input: list[NewBlock] | None = None
    before: list[NewBlock] = field(default_factory=list)
    key: str | None = None
    terms: bytes | None = None
    note: Callable[[SessionTurn, Choice], bytes] | None = None


@asynccontextmanager
async def carry(
    gateway: Gateway, caller: Caller, model: ServedModel, errand: Errand
) -> AsyncIterator[SessionTurn]:
    """Begin a turn and hold it until the block is left; then it is finished, or given up.

    Raises what the events room and the assembler refuse: NotVisible for a session or response that
    this caller does not have, Conflict (its `reason` turn_in_progress) where another turn is open
    on the same parent for longer than the gateway's limits wait, BudgetExceeded, Unavailable.
    """
    session = errand.session
    if errand.place is not None:
        opened = await open_session(
            caller, errand.namespace, persona=errand.persona, place=errand.place
        )
        session = opened.id
    begun = await _begin(gateway, caller, errand, session)
    turn = SessionTurn(gateway, caller, model, errand, begun)
    try:
        await turn.open()
        yield turn
    except asyncio.CancelledError:
        # Nobody waits any more, this task least of all.
        turn.let_go()
        gateway.later(turn.close())
        raise
    except BaseException:
        await turn.close()
        raise
    else:
        await turn.close()


async def _begin(
    gateway: Gateway, caller: Caller, errand: Errand, session: str | None
) -> BegunTurn:
    ask = BeginTurn(
        namespace=errand.namespace,
        response=errand.response,
        wait_ns_max=gateway.limits.turn_wait_ns,
        session=session,
        history=errand.history,
        input=errand.input,
        parent_response=errand.parent_response,
        key=errand.key,
        terms=errand.terms,
    )
    begun = asyncio.ensure_future(ask_events(caller, "begin_turn", ask, BegunTurn))
    try:
        return await asyncio.shield(begun)
    except asyncio.CancelledError:
        gateway.later(_give_up(caller, errand.namespace, begun))
        raise


async def _give_up(caller: Caller, namespace: str, begun: asyncio.Future[BegunTurn]) -> None:
    """Abandon a turn whose client went while it was being begun."""
    made = await begun
    if made.answer is None:
        await _abandon(caller, namespace, made)


async def _abandon(caller: Caller, namespace: str, begun: BegunTurn) -> None:
    ask = AbandonTurn(namespace=namespace, session=begun.session, turn=begun.turn)
    await ask_events(caller, "abandon_turn", ask, Empty)


class SessionTurn:
    """One turn while it is carried. `prompt` is what the model reads; `session` and `turn` name it;
    `response` is the errand's, or that of the turn which was answered before under the same key."""

    prompt: Prompt

    def __init__(
        self,
        gateway: Gateway,
        caller: Caller,
        model: ServedModel,
        errand: Errand,
        begun: BegunTurn,
    ) -> None:
        self._gateway = gateway
        self._caller = caller
        self._model = model
        self._errand = errand
        self._begun = begun
        self._lost: HuginnError | None = None
        self._holding: asyncio.Task[None] | None = None
        self._finishing: asyncio.Future[FinishedTurn] | None = None
        self._finished: FinishedTurn | None = None

    @property
    def session(self) -> str:
        return self._begun.session

    @property
    def turn(self) -> str:
        return self._begun.turn

    @property
    def lease_ns(self) -> int:
        """Until when the turn was held as it began, in Unix nanoseconds."""
        return self._begun.lease_ns

    @property
    def response(self) -> str:
        return self._begun.response or self._errand.response

    @property
    def is_known(self) -> bool:
        """Whether this turn was answered before: its answer is told again, and nothing computed."""
        return self._begun.answer is not None

    async def open(self) -> None:
        """Assemble the prompt and hold the lease from now on. Raises as `chat_prompt` does."""
        if self._begun.usage is not None:
            # Nothing will read it: what it was is told again, also if the model reads less now.
            self.prompt = _told_prompt(self._begun.usage, self._begun.context)
            return
        if not self.is_known:
            self._holding = asyncio.create_task(self._hold(), name="hold a turn")
        blocks = [*self._errand.before, *self._begun.blocks]
        self.prompt = await chat_prompt(self._caller, self._model, blocks, self._errand.namespace)

    async def items(self, job: Generate) -> AsyncGenerator[Item, None]:
        """The items of the answer. The last of them comes when the answer is kept, durably.

        Raises what the worker and the events room raise: then nothing is kept.
        """
        begun = self._begun
        if begun.answer is not None:
            yield Item(kind="delta", text=begun.answer, ids=b"")
            yield ToldAgain(kind="end", finish=begun.finish or "stop", usage=begun.usage)
            return
        made = Choice()
        items = self._caller.stream(self._model.room, "generate", job, Item)
        async with aclosing(items):
            async for item in items:
                if self._lost is not None:
                    raise self._lost
                made.take(item)
                if item.kind == "end":
                    await self._finish(made)
                yield item

    async def settle(self) -> None:
        """Have the worker advance the conversation with its answer, for the turn that follows."""
        # A key that may not read is not told the conversation: its next turn is computed then.
        if self._finished is not None and self._finished.blocks:
            await settle_blocks(
                self._caller,
                self._model,
                [*self._errand.before, *self._finished.blocks],
                namespace=self._errand.namespace,
                response=self.response,
            )

    def let_go(self) -> None:
        """Renew the lease no more."""
        if self._holding is not None:
            self._holding.cancel()

    async def close(self) -> None:
        """Let the lease go; give the turn up unless it was finished."""
        self.let_go()
        if self._holding is not None:
            await asyncio.gather(self._holding, return_exceptions=True)
        if self._finishing is not None:
            # It may be on its way, and what it comes to counts.
            await asyncio.gather(self._finishing, return_exceptions=True)
        if self._finished is None and not self.is_known:
            try:
                await _abandon(self._caller, self._errand.namespace, self._begun)
            except HuginnError as error:
                # Its lease runs out, which comes to the same.
                log.info("a turn was not abandoned: %s: %s", error.code, error.message)

    async def _finish(self, made: Choice) -> None:
        note = self._errand.note
        ask = FinishTurn(
            namespace=self._errand.namespace,
            session=self.session,
            turn=self.turn,
            answer=self._output(made),
            context=self.prompt.context,
            note=None if note is None else note(self, made),
            finish=made.finish,
            usage=TurnUsage(
                prompt_tokens=self.prompt.tokens,
                output_tokens=made.completion_tokens,
                reused_tokens=made.reused_tokens if self._caller.has(Right.TELEMETRY) else 0,
            ),
        )
        # A client that goes now does not undo what may have been kept already.
        self._finishing = asyncio.ensure_future(self._ask_finish(ask))
        await asyncio.shield(self._finishing)

    async def _ask_finish(self, ask: FinishTurn) -> FinishedTurn:
        self._finished = await ask_events(self._caller, "finish_turn", ask, FinishedTurn)
        return self._finished

    def _output(self, made: Choice) -> OutputBlock:
        text = "".join(made.text)
        ids = b"".join(made.ids)
        tokenizer = self._model.tokenizer
        if self._errand.history is None and spells(tokenizer, ids, text):
            contract = ContractId.of(encode_record(tokenizer.contract))
            return OutputBlock(text=text, role=Role.MODEL, ids=ids, tokenizer=contract)
        return OutputBlock(text=text, role=Role.MODEL)

    async def _hold(self) -> None:
        """Renew the lease until cancelled, or until another turn has it."""
        lease_ns = self._begun.lease_ns
        ask = RenewTurn(namespace=self._errand.namespace, session=self.session, turn=self.turn)
        clock = self._gateway.ports.clock
        while True:
            left_s = (lease_ns - clock.wall_ns()) / _NS_PER_S
            await asyncio.sleep(max(left_s / _RENEW_PARTS, _RENEW_SECONDS_MIN))
            try:
                renewed = await ask_events(self._caller, "renew_turn", ask, Renewed)
                lease_ns = renewed.lease_ns
            except RequestError as error:
                self._lost = error
                return
            except HuginnError as error:
                log.info("a lease was not renewed: %s: %s", error.code, error.message)
                await asyncio.sleep(_RENEW_SECONDS_AGAIN)


def _told_prompt(usage: TurnUsage, context: ContextId | None) -> Prompt:
    """The prompt of an answer that was given before, as far as it is told."""
    return Prompt(
        segments=[],
        opener=b"",
        tokens=usage.prompt_tokens,
        stop_ids=[],
        stop_texts=[],
        context=context,
    )


def spells(tokenizer: Tokenizer, ids: bytes, text: str) -> bool:
    """Whether packed `ids` are the answer `text`, white space at its ends aside. They are not where
    a stop text ended the answer inside a token: then the text is what was said."""
    if not ids:
        return False
    return tokenizer.decode(unpack(ids)).decode("utf-8", "replace").strip() == text.strip()
