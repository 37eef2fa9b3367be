"""The Matrix transport: messages of allowed users are turns, answers are replies.

A courier and nothing else: which session a room has, what the model sees and what it has seen are
the events room's. A message is kept in the inbox before it is worked on; its turn carries the
message's event id as its key, and its reply a transaction id made from it. So whatever crashes and
whenever, the message is answered by one turn and the server shows one reply.

In a room of two every message is for us; in a larger one those that mention us. A thread is a
conversation of its own. Edits, notices and messages of others are left alone. End-to-end encrypted
rooms are not read: the server would have to be trusted with the prompt anyway.

It answers as one principal, by its API key. When that key is no longer known here, because its
principal was revoked or erased, it says so in the log and ends: nothing is read, kept or answered
in nobody's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, Final

import nio

from actors.gateway.answers import Answers, collect
from actors.gateway.caller import Caller
from actors.gateway.courier import Errand, carry
from actors.gateway.http.ids import fresh_id
from actors.gateway.room import Gateway
from actors.gateway.sampling import SamplingFields, sampler_of
from actors.gateway.transports.matrix_account import Account
from actors.gateway.transports.matrix_inbox import Inbox, Letter
from actors.gateway.turns import Ask, jobs
from protocol.errors import AuthorityError, Conflict, HuginnError, RequestError

log = logging.getLogger("huginn.gateway")

_SYNC_MS: Final = 30_000
_REST_SECONDS: Final = 2.0
_TRIES_MAX: Final = 5
# Messages of one room in one answer of the server; more are fetched page by page.
_TIMELINE_MAX: Final = 100
_PAGES_MAX: Final = 50
_TWO: Final = 2
_NS_PER_S: Final = 10**9


def _filter(timeline_max: int) -> dict[str, Any]:
    """What a look asks for: at most so many messages of each room, and nothing else."""
    nothing: dict[str, Any] = {"types": []}
    return {
        "presence": nothing,
        "account_data": nothing,
        "room": {
            "timeline": {"limit": timeline_max, "types": ["m.room.message"]},
            "state": nothing,
            "ephemeral": nothing,
            "account_data": nothing,
        },
    }


class NotSent(Exception):
    """The server did not take what was sent, or could not be asked."""


class MatrixTransport:
    """Answers on `account` from `start` until `stop`, with the API key `key`. `timeline_max`: how
    many messages of a room one look or page brings (≥ 1)."""

    def __init__(
        self,
        gateway: Gateway,
        account: Account,
        key: str,
        inbox: Inbox,
        *,
        timeline_max: int = _TIMELINE_MAX,
    ) -> None:
        self._timeline_max = timeline_max
        self._gateway = gateway
        self._account = account
        self._key = key
        self._inbox = inbox
        self._client = nio.AsyncClient(
            account.url,
            account.user,
            device_id=account.device,
            # No retries of its own: a refusal comes back at once, and we say how long to rest.
            config=nio.AsyncClientConfig(max_limit_exceeded=0, max_timeouts=0),
        )
        self._client.access_token = account.token
        self._client.user_id = account.user
        # What runs, and the message that it answers; None: it listens.
        self._tasks: dict[asyncio.Task[None], Letter | None] = {}
        self._room_to_turns: dict[str, asyncio.Lock] = {}

    async def start(self) -> None:
        """Begin with what is waiting since the last time; returns at once. With a key that is not
        known here it ends at once, and what is waiting goes on waiting."""
        if self._whose() is not None:
            for letter in self._inbox.waiting():
                self._spawn(self._reply(letter), letter)
        self._spawn(self._listen())

    async def stop(self) -> None:
        """Stop; what is not answered stays in the inbox."""
        await _ended(list(self._tasks))
        await self._client.close()

    async def leave_off(self) -> None:
        """Something was erased: stop what answers a message that waits no longer, and everything
        if the key's principal is gone."""
        if self._whose() is not None:
            answering = [(each, letter) for each, letter in self._tasks.items() if letter]
            await _ended([each for each, letter in answering if not self._waits(letter)])
        elif self._tasks:
            self._say_that_it_ends()
            await self.stop()

    def _spawn(self, work: Coroutine[Any, Any, None], letter: Letter | None = None) -> None:
        task = asyncio.create_task(work, name="matrix")
        self._tasks[task] = letter
        task.add_done_callback(self._tasks.pop)

    def _waits(self, letter: Letter) -> bool:
        return self._inbox.is_waiting(letter)

    def _whose(self) -> Caller | None:
        """In whose name messages are taken; None: the key is not known here any more."""
        try:
            return self._caller("matrix")
        except AuthorityError:
            return None

    def _say_that_it_ends(self) -> None:
        log.error(
            "matrix: %s answers no longer: the key in %s is not known here, its principal was "
            "revoked or erased; put another there and start again, or `huginn matrix logout`",
            self._account.user,
            self._account.key_file,
        )

    # -- listening ---------------------------------------------------------------------------

    async def _listen(self) -> None:
        while self._whose() is not None:
            try:
                await self._sync()
            except (NotSent, OSError, TimeoutError) as error:
                log.warning("matrix: %s: asked again in %s s", error, _REST_SECONDS)
                await asyncio.sleep(_REST_SECONDS)
            except Exception:
                # Nobody would ever listen again.
                log.exception("matrix: a fault while listening")
                await asyncio.sleep(_REST_SECONDS)
        self._say_that_it_ends()

    async def _sync(self) -> None:
        since = self._inbox.since
        first = since is None
        answer = await self._client.sync(
            timeout=0 if first else _SYNC_MS,
            since=since,
            # The first takes the position alone: what was said before we came is not for us.
            sync_filter=_filter(0 if first else self._timeline_max),
            # Who is answered here is awake, whatever reads for it.
            set_presence="offline",
        )
        if not isinstance(answer, nio.SyncResponse):
            raise NotSent(f"the server was not read ({answer})")
        whose = self._whose()
        if whose is None:
            return  # gone while the server was waited for: what it gave is for nobody
        letters: list[Letter] = []
        if not first:
            for room, info in answer.rooms.join.items():
                letters += await self._letters(room, info.timeline, since, whose)
        for letter in await asyncio.to_thread(self._inbox.take, letters, answer.next_batch):
            self._spawn(self._reply(letter), letter)
        for room, invite in answer.rooms.invite.items():
            await self._answer_invite(room, invite)

    async def _letters(
        self, room: str, timeline: Any, since: str | None, whose: Caller
    ) -> list[Letter]:
        """The messages of one room that are for us, oldest first, for `whose` to answer."""
        events = list(timeline.events)
        start = timeline.prev_batch
        for _ in range(_PAGES_MAX):
            if not timeline.limited or start is None:
                break
            page = await self._client.room_messages(
                room,
                start,
                end=since,
                limit=self._timeline_max,
                direction=nio.MessageDirection.back,
            )
            if not isinstance(page, nio.RoomMessagesResponse):
                raise NotSent(f"earlier messages of {room} were not read ({page})")
            events[:0] = reversed(page.chunk)
            start = page.end if page.chunk else None
        letters = [self._letter(room, event, whose) for event in events]
        wanted = [letter for letter in letters if letter is not None]
        if not wanted or await self._is_private(room):
            return wanted
        return [
            letter
            for letter, event in zip(letters, events, strict=True)
            if letter is not None and self._is_mentioned(event)
        ]

    def _letter(self, room: str, event: Any, whose: Caller) -> Letter | None:
        """The message to answer that `event` is; None: it is none."""
        if not isinstance(event, nio.RoomMessageText) or event.sender not in self._account.allow:
            return None
        if event.sender == self._account.user:
            return None
        related = event.source.get("content", {}).get("m.relates_to") or {}
        kind = related.get("rel_type") if isinstance(related, dict) else None
        if kind == "m.replace" or not event.body.strip():
            return None
        thread = related.get("event_id") if kind == "m.thread" else None
        return Letter(
            event=event.event_id,
            room=room,
            sender=event.sender,
            body=event.body,
            principal=whose.public,
            namespace=whose.namespace,
            thread=thread if isinstance(thread, str) else None,
        )

    async def _is_private(self, room: str) -> bool:
        members = await self._client.joined_members(room)
        if not isinstance(members, nio.JoinedMembersResponse):
            raise NotSent(f"the members of {room} were not read ({members})")
        return len(members.members) <= _TWO

    def _is_mentioned(self, event: Any) -> bool:
        mentions = event.source.get("content", {}).get("m.mentions") or {}
        named = mentions.get("user_ids") if isinstance(mentions, dict) else None
        if isinstance(named, list) and self._account.user in named:
            return True
        local = self._account.user[1:].partition(":")[0]
        return local.casefold() in event.body.casefold()

    async def _answer_invite(self, room: str, invite: Any) -> None:
        senders = {
            event.sender
            for event in invite.invite_state
            if isinstance(event, nio.InviteMemberEvent) and event.state_key == self._account.user
        }
        if senders.intersection(self._account.allow):
            await self._client.join(room)

    # -- answering ---------------------------------------------------------------------------

    async def _reply(self, letter: Letter) -> None:
        """Answer `letter`, in its turn, until the server has the reply."""
        lock = self._room_to_turns.setdefault(letter.place, asyncio.Lock())
        async with lock:
            if not self._waits(letter):
                return  # erased before its turn came
            text = await self._text(letter)
            while True:
                try:
                    await self._send(letter, text)
                    break
                except (NotSent, OSError, TimeoutError) as error:
                    log.warning("matrix: a reply waits: %s", error)
                    await asyncio.sleep(_REST_SECONDS)
            await asyncio.to_thread(self._inbox.answered, letter)

    async def _text(self, letter: Letter) -> str:
        """What to reply. A fault of ours is tried again; what stays one is told, without detail."""
        for attempt in range(_TRIES_MAX):
            try:
                return await self._answer(letter)
            except Conflict as error:
                # Somebody else's turn of a shared session, or ours of before a crash: it ends.
                log.info("matrix: %s", error.message)
            except AuthorityError as error:
                log.warning("matrix: %s may not ask: %s", self._account.key_file, error.message)
                return "(The key that this service answers with may not ask.)"
            except RequestError as error:
                return f"({error.message})"
            except HuginnError as error:
                log.warning("matrix: try %d: %s: %s", attempt + 1, error.code, error.message)
            except Exception:
                log.exception("matrix: a fault while answering")
            await asyncio.sleep(_REST_SECONDS)
        return "(No answer could be made: the service's log says why.)"

    async def _answer(self, letter: Letter) -> str:
        gateway = self._gateway
        entropy = gateway.ports.entropy
        caller = self._caller(fresh_id("matrix-", entropy))
        model = next(iter(gateway.models))
        await gateway.ports.readiness.wait(gateway.limits.worker_wait_ns / _NS_PER_S)
        ask = Ask(
            sampler=sampler_of(
                SamplingFields(), model.tokenizer, temperature_default=model.temperature_default
            ),
            stops=[],
            choices=1,
            tokens_max=None,
            logprobs_top=None,
            deliver_trim=True,
        )
        errand = Errand(
            namespace=caller.namespace,
            response=fresh_id("resp_", entropy),
            place=letter.place,
            persona=self._account.persona,
            input=letter.input,
            key=letter.event,
        )
        async with self._typing(letter.room), carry(gateway, caller, model, errand) as turn:
            work = jobs(turn.prompt, ask, model, errand.response, gateway.limits)
            async with Answers(caller, model.room, work, turn.items) as answers:
                (choice,) = await collect(answers, 1)
        gateway.later(turn.settle())
        return "".join(choice.text).strip() or "(The model had nothing to say.)"

    def _caller(self, request: str) -> Caller:
        return self._gateway.authenticate(f"Bearer {self._key}", request)

    @contextlib.asynccontextmanager
    async def _typing(self, room: str) -> AsyncIterator[None]:
        """The server shows that we are typing; if it cannot, that is nobody's concern."""
        with contextlib.suppress(Exception):
            await self._client.room_typing(room, True, timeout=_SYNC_MS)
        try:
            yield
        finally:
            with contextlib.suppress(Exception):
                await self._client.room_typing(room, False)

    async def _send(self, letter: Letter, text: str) -> None:
        content: dict[str, Any] = {"msgtype": "m.text", "body": text}
        if letter.thread is not None:
            content["m.relates_to"] = {
                "rel_type": "m.thread",
                "event_id": letter.thread,
                "is_falling_back": True,
                "m.in_reply_to": {"event_id": letter.event},
            }
        answer = await self._client.room_send(
            letter.room, "m.room.message", content, tx_id=transaction(letter)
        )
        if isinstance(answer, nio.RoomSendError) and answer.status_code in (
            "M_FORBIDDEN",
            "M_TOO_LARGE",
        ):
            # It never will: we are no longer in the room, or the answer is too long for an event.
            log.warning("matrix: %s takes no reply: %s", letter.room, answer.message)
        elif not isinstance(answer, nio.RoomSendResponse):
            raise NotSent(f"{letter.room} took no reply ({answer})")


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Stop `tasks`; when it returns they are over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def transaction(letter: Letter) -> str:
    """The transaction id of the reply to `letter`: the server keeps one event for each."""
    return "huginn-" + hashlib.sha256(letter.event.encode()).hexdigest()[:32]
