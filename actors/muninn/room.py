"""The muninn room: known, and verified; or not.

Rooms that execute report here under their own service handles, off the caller's path. Who has the
right `telemetry` on a domain looks here what is known in it: that right is checked before the look
and again before the answer, and a look costs the caller the same whether or not anything was known
(DRV-6). No answer tells `unknown` apart: never there, not yet, evicted, quarantined, with outputs
that nobody holds any more, another domain's, or a memo in trouble.

The operator draws samples and hands in what executing them again gave, signed with the key that
the installation keeps for verifying (DRV-4).

Nothing that goes wrong with the memo is an error of a look or a report (DRV-5).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from actors.muninn import telling
from actors.muninn.erasure import erase_domains
from actors.muninn.evidence import Examined, examine
from actors.muninn.index import domains
from actors.muninn.ledger import Ledger
from actors.muninn.limits import MemoLimits
from actors.muninn.memo import DomainMemo, Found
from actors.muninn.ports import Presence, RoomPresence
from actors.room import Call, Room, World
from protocol.errors import (
    CapabilityError,
    CorruptObject,
    LimitExceeded,
    RequestError,
    StoreFault,
)
from protocol.families import unremembered
from protocol.ids import InvocationId, ProfileId
from protocol.messages import Empty
from protocol.messages import muninn as messages
from protocol.messages.erasure import Erase
from protocol.record import encode_record
from protocol.resource import Resource, ResourceKind, Right
from store.tables import Tables

log = logging.getLogger("huginn.muninn")

EXECUTORS: Final = ("assembler", "worker")
_UNKNOWN: Final = messages.Answer(state="unknown")


class MuninnRoom(Room):
    """Owns `tables`; closes them when drained. None, or limits of no entries: the memo is disabled,
    and everything is unknown. `executors` are the rooms whose evidence counts, `verifiers` the keys
    of those who check it; `reproducible` the profiles that proved their generation reproducible on
    this machine. `presence` says which outputs are there: by default the rooms that hold them."""

    operations = messages.OPERATIONS

    def __init__(
        self,
        world: World,
        tables: Tables | None,
        presence: Presence | None = None,
        *,
        reproducible: Collection[ProfileId] = (),
        executors: Sequence[str] = EXECUTORS,
        verifiers: Collection[bytes] = (),
        limits: MemoLimits | None = None,
    ) -> None:
        super().__init__("muninn", world)
        self._limits = limits or MemoLimits()
        self._tables = tables
        self._enabled = tables if self._limits.entries_max > 0 else None
        self._presence = presence or RoomPresence(self)
        self._ledger = Ledger(self._enabled)
        self._reproducible = frozenset(reproducible)
        self._executors = frozenset(
            world.room_to_key[name] for name in executors if name in world.room_to_key
        )
        self._verifiers = frozenset(verifiers)
        self._memos: dict[str, DomainMemo] = {}
        self._mending: dict[str, asyncio.Task[object]] = {}
        self._counters: Counter[str] = Counter()
        self._erasing: set[str] = set()

    async def start(self) -> None:
        await super().start()
        for domain in self._known_domains():
            self._memo(domain)

    async def mended(self) -> None:
        """Wait until nothing is being rebuilt."""
        await asyncio.gather(*list(self._mending.values()), return_exceptions=True)

    async def drain(self) -> None:
        await self.mended()
        if self._tables is not None:
            self._tables.close()

    async def erase(self, ask: Erase) -> dict[str, int]:
        """While it is erased a domain has no memo; what is in one's hands is let go of first."""
        self._erasing.update(ask.domains)
        try:
            memos = [memo for each in ask.domains if (memo := self._memos.pop(each, None))]
            await self.mended()
            for memo in memos:
                await memo.admit([])  # behind all who were before us
            self._ledger.forget(ask.principals)
            if self._tables is None:
                return {}
            return await asyncio.to_thread(erase_domains, self._tables, ask.domains, ask.principals)
        finally:
            self._erasing.difference_update(ask.domains)

    # -- reporting ---------------------------------------------------------------------------

    async def on_report(self, call: Call, ask: messages.Report) -> messages.Results:
        executor = self._executor(call)
        _check_batch(len(ask.entries))
        results: list[messages.Result] = []
        examined: dict[int, Examined] = {}
        for place, entry in enumerate(ask.entries):
            judged = self._examine(entry, (executor,))
            if isinstance(judged, Examined):
                examined[place] = judged
                judged = messages.Result(result="unknown", evidence=judged.id)
            results.append(judged)
        for domain in dict.fromkeys(each.evidence.domain for each in examined.values()):
            places = [p for p, each in examined.items() if each.evidence.domain == domain]
            said = await self._take_in(domain, [examined[p] for p in places])
            for place, result in zip(places, said, strict=True):
                results[place] = messages.Result(result=result, evidence=examined[place].id)
        return self._counted("report", results)

    async def on_verified(self, call: Call, ask: messages.Verified) -> messages.Results:
        executors = self._checkers(call)
        _check_batch(len(ask.checks))
        results = [await self._check(check, executors) for check in ask.checks]
        return self._counted("check", results)

    def _examine(
        self, entry: messages.Execution, executors: Collection[bytes]
    ) -> Examined | messages.Result:
        """The evidence of `entry`, if it may be remembered and is by one of `executors`."""
        reason = unremembered(entry.invocation, self._reproducible)
        if entry.outcome != "complete":
            reason = f"its outcome is {entry.outcome}"
        if reason is not None:
            return messages.Result(result="not-remembered", reason=reason)
        try:
            evidence, bodies = entry.evidence or b"", entry.bodies or ()
            return examine(entry.invocation, evidence, executors, bodies, entry.origin)
        except (RequestError, CorruptObject) as error:
            log.warning("evidence was refused: %s", error)
            return messages.Result(result="refused", reason=error.message)

    async def _check(self, check: messages.Check, executors: Collection[bytes]) -> messages.Result:
        entry = messages.Execution(
            outcome="complete",
            invocation=check.invocation,
            evidence=check.evidence,
            origin=check.origin,
        )
        if check.evidence is None:
            key = InvocationId.of(encode_record(check.invocation))
            said = await self._take_in(check.domain, [key], known_only=True)
            return messages.Result(result=said[0])
        judged = self._examine(entry, executors)
        if not isinstance(judged, Examined):
            return judged
        if judged.evidence.domain != check.domain:
            return messages.Result(result="refused", reason="the evidence is of another domain")
        said = await self._take_in(check.domain, [judged], known_only=True)
        return messages.Result(result=said[0], evidence=judged.id)

    async def _take_in(
        self, domain: str, said: Sequence[Examined | InvocationId], *, known_only: bool = False
    ) -> list[messages.Verdict]:
        try:
            memo = self._memo(domain)
            if memo is None:
                return ["unknown" if known_only else "capacity"] * len(said)
            taken = await memo.admit(said, known_only=known_only)
            self._mend(memo)
            return taken
        except Exception:
            log.exception("a report was lost")
            return ["unknown"] * len(said)

    def _counted(self, what: str, results: list[messages.Result]) -> messages.Results:
        self._counters.update(f"{what} {each.result}" for each in results)
        return messages.Results(results=results)

    # -- looking -----------------------------------------------------------------------------

    async def on_look(self, call: Call, ask: messages.Look) -> messages.Looked:
        _check_batch(len(ask.invocations))
        domain = call.domain
        # Before anything is looked up, so that what is found cannot change it.
        charged = len(ask.invocations)
        self._ledger.charge(call.handle.principal, charged)
        memo, found = self._find(domain, ask.invocations)
        held = [each is not None and await self._is_held(call, each) for each in found]
        # What ran meanwhile may have revoked the caller, or put what was found into quarantine.
        self._require_still(call)
        answers = [
            telling.answer(each) if memo and each and there and memo.stands(each) else _UNKNOWN
            for each, there in zip(found, held, strict=True)
        ]
        self._counters.update(f"look {answer.state}" for answer in answers)
        return messages.Looked(answers=answers, charged=charged)

    def _find(
        self, domain: str, invocations: Sequence[InvocationId]
    ) -> tuple[DomainMemo | None, list[Found | None]]:
        try:
            memo = self._memo(domain)
            if memo is None:
                return None, [None] * len(invocations)
            found = [self._remembered(memo.find(each)) for each in invocations]
            self._mend(memo)
        except Exception:
            log.exception("a look found trouble")
            return None, [None] * len(invocations)
        return memo, found

    def _remembered(self, found: Found | None) -> Found | None:
        """`found`, if such a thing may be remembered still."""
        if found is None or unremembered(found.examined.invocation, self._reproducible):
            return None
        return found

    async def _is_held(self, call: Call, found: Found) -> bool:
        try:
            held = await self._presence.held(call, found.examined.evidence.outputs)
        except Exception as error:
            log.warning("nothing is served: who holds outputs cannot be asked: %s", error)
            held = False
        self._counters["look expired"] += not held
        return held

    # -- operating ---------------------------------------------------------------------------

    async def on_sample(self, call: Call, ask: messages.DrawSample) -> messages.Samples:
        _operates(call)
        _check_batch(ask.count)
        drawn = [
            (each.rank, memo.domain, each)
            for memo in self._asked(ask.domain)
            for each in memo.draw(ask.count, ask.seed)
        ]
        drawn.sort(key=lambda each: each[:2])
        return messages.Samples(
            entries=[
                messages.Sampled(
                    domain=domain,
                    invocation=each.invocation,
                    evidence=each.evidence,
                    origin=each.origin,
                )
                for _, domain, each in drawn[: ask.count]
            ],
            epoch=self.epoch,
        )

    async def on_status(self, call: Call, ask: Empty) -> messages.MemoStatus:
        _operates(call)
        memos = self._asked(None)
        quarantined = [
            telling.quarantined(memo.domain, key, suspicion)
            for memo in memos
            for key, suspicion in memo.suspicions(messages.QUARANTINED_MAX)
        ]
        return messages.MemoStatus(
            enabled=self._enabled is not None,
            domains=[
                messages.DomainMemo(domain=memo.domain, sound=memo.sound, **memo.figures())
                for memo in memos
            ],
            quarantined=quarantined[: messages.QUARANTINED_MAX],
            counters=dict(self._counters),
            accounts=[
                messages.Account(principal=key, derivations=total)
                for key, total in sorted(self._ledger.totals().items())
            ],
        )

    async def on_charge(self, call: Call, ask: Empty) -> messages.Account:
        principal = call.handle.principal
        total = self._ledger.totals().get(principal, 0)
        return messages.Account(principal=principal, derivations=total)

    async def on_rebuild(self, call: Call, ask: messages.Rebuild) -> messages.Rebuilt:
        _operates(call)
        memos = self._asked(ask.domain)
        built = [await memo.rebuild(disown=ask.disown) for memo in memos]
        return messages.Rebuilt(
            domains=sum(built),
            invocations=sum(memo.figures()["invocations"] for memo in memos),
            failed=len(built) - sum(built),
        )

    # -- memos and who may -------------------------------------------------------------------

    def _memo(self, domain: str) -> DomainMemo | None:
        """The memo of `domain`, opened if it was not; None if the memo is disabled."""
        if self._enabled is None or domain in self._erasing:
            return None
        memo = self._memos.get(domain)
        if memo is None:
            memo = DomainMemo(
                self._enabled,
                domain,
                self._executors | self._verifiers,
                self._limits,
                self._counters,
                signer=self.world.signer,
                clock=self.world.clock,
            )
            self._memos[domain] = memo
            self._mend(memo)
        return memo

    def _asked(self, domain: str | None) -> list[DomainMemo]:
        """The memo of `domain` if there is one, or all, by name."""
        known = sorted({*self._memos, *self._known_domains()})
        memos = [self._memo(each) for each in known if domain in (None, each)]
        return [memo for memo in memos if memo is not None]

    def _known_domains(self) -> list[str]:
        try:
            return [] if self._enabled is None else domains(self._enabled)
        except StoreFault as error:
            log.warning("the memo cannot be read: %s", error)
            return []

    def _mend(self, memo: DomainMemo) -> None:
        """Have a memo that is not sound rebuilt, or a crowded one compacted, once at a time, while
        others go on."""
        if (memo.sound and not memo.is_crowded) or memo.domain in self._mending:
            return
        work = memo.compact() if memo.sound else memo.mend()
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(work)
        self._mending[memo.domain] = task
        task.add_done_callback(lambda _: self._mending.pop(memo.domain, None))

    def _executor(self, call: Call) -> bytes:
        """The key of the executing room that asks; CapabilityError (step `scope`) for others."""
        if call.handle.audience not in self._executors:
            raise CapabilityError("scope", "only a room that executes reports here")
        return call.handle.audience

    def _checkers(self, call: Call) -> Collection[bytes]:
        """Whose evidence counts in a check that this caller hands in: an executing room's own, or
        the verifiers' if the operator brings it. CapabilityError for others."""
        if call.handle.audience in self._executors:
            return (call.handle.audience,)
        _operates(call)
        return self._verifiers

    def _require_still(self, call: Call) -> None:
        """Raises CapabilityError unless the handle that was admitted holds now."""
        handle = call.handle
        if any(link.digest in self._revoked for link in handle.lineage):
            raise CapabilityError("revocation", "the handle was revoked while it was answered")
        if self.world.clock.wall_ns() >= handle.exp_ns:
            raise CapabilityError("time", "the handle ended while it was answered")


def _operates(call: Call) -> None:
    call.handle.require(Right.OPERATE, Resource(kind=ResourceKind.SERVICE, name="muninn"))


def _check_batch(count: int) -> None:
    if not 0 <= count <= messages.BATCH_MAX:
        raise LimitExceeded(
            f"{count} entries in one message: 0 to {messages.BATCH_MAX} are allowed"
        )
