"""An installation with a muninn room, and rooms that report and look there, for tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from actors.muninn.limits import MemoLimits
from actors.muninn.room import MuninnRoom
from actors.room import Call
from protocol.derivation import Derivation, DerivationInvocation, Output, invocation_id
from protocol.envelope import open_reply, seal
from protocol.ids import InvocationId, ProfileId
from protocol.limits import MESSAGE_BYTES_MAX
from protocol.messages import Empty
from protocol.messages import muninn as messages
from protocol.record import Record, decode_record, encode_record
from protocol.signing import Signer
from store.memory_tables import MemoryTables
from store.tables import Tables
from tests.derivations import signed
from tests.rooms import Installation, Principal, opened

R = TypeVar("R", bound=Record)
LIMITS = MemoLimits(entries_max=500, resident_max=50)


class Held:
    """A `Presence`: what is held, by domain. `meanwhile` runs while it is asked."""

    def __init__(self) -> None:
        self.ids: dict[str, set[str]] = defaultdict(set)
        self.asked: list[tuple[str, list[str]]] = []
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.trouble: Exception | None = None

    def hold(self, domain: str, derivation: Derivation) -> None:
        self.ids[domain] |= {output.id for output in derivation.outputs}

    async def held(self, call: Call, outputs: Sequence[Output]) -> bool:
        self.asked.append((call.domain, [each.id for each in outputs]))
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.trouble is not None:
            raise self.trouble
        return {each.id for each in outputs} <= self.ids[call.domain]


def look_of(*wanted: Derivation | DerivationInvocation) -> messages.Look:
    """A look for these."""
    invocations = [w.invocation if isinstance(w, Derivation) else w for w in wanted]
    ids: list[InvocationId] = [invocation_id(each) for each in invocations]
    return messages.Look(invocations=ids)


@dataclass
class Raven:
    """An installation whose muninn room is over `tables`. `restart` keeps what is stored."""

    tables: Tables | None = field(default_factory=MemoryTables)
    limits: MemoLimits = LIMITS
    reproducible: Iterable[ProfileId] = ()
    reporting: bool = False

    def __post_init__(self) -> None:
        self.house = Installation(reporting=self.reporting)
        self.house.signers["muninn"] = Signer(self.house.entropy.draw(32))
        self.house.room_to_key["muninn"] = self.house.signers["muninn"].public
        self.held: Held | None = Held()
        self.verifier = Signer(self.house.entropy.draw(32))

    async def start(self) -> Raven:
        await self.house.start()
        await self.restart()
        return self

    async def restart(self) -> None:
        room = MuninnRoom(
            self.house.world("muninn"),
            self.tables,
            self.held,
            reproducible=frozenset(self.reproducible),
            verifiers=(self.verifier.public,),
            limits=self.limits,
        )
        # Whatever was said to the room before counts as replayed.
        self.house.clock.now_ns += 10**9
        await self.house.add(room)
        self.room = room

    # -- rooms that execute ------------------------------------------------------------------

    def evidence(self, derivation: Derivation, room: str = "worker", **changes: Any) -> bytes:
        return signed(derivation, self.house.signers[room], **changes)

    def execution(
        self, derivation: Derivation, room: str = "worker", **changes: Any
    ) -> messages.Execution:
        """A complete execution by that room, which holds what it gave."""
        if self.held is not None:
            self.held.hold(changes.get("domain", "alice"), derivation)
        return messages.Execution(
            outcome="complete",
            invocation=derivation.invocation,
            origin=changes.pop("origin", None),
            evidence=self.evidence(derivation, room, **changes),
        )

    async def ask_as_room(self, room: str, op: str, record: Record, reply: type[R]) -> R:
        """Ask under a room's own service handle."""
        world = self.house.world(room)
        message = seal(
            world.service_chain,
            world.signer,
            room="muninn",
            op=op,
            body=encode_record(record, size_max=MESSAGE_BYTES_MAX),
            ts_ns=self.house.clock.wall_ns(),
            nonce=self.house.entropy.draw(16),
            request_id=room,
        )
        body = open_reply(await self.house.post.call("muninn", message))
        return decode_record(reply, body, size_max=MESSAGE_BYTES_MAX)

    async def report(
        self, *entries: messages.Execution, room: str = "worker"
    ) -> list[messages.Result]:
        ask = messages.Report(entries=list(entries))
        return (await self.ask_as_room(room, "report", ask, messages.Results)).results

    async def remember(self, *derivations: Derivation, **changes: Any) -> list[str]:
        """Report executions of the worker's; what became of them."""
        entries = [self.execution(each, **changes) for each in derivations]
        return [result.result for result in await self.report(*entries)]

    async def verified(
        self, *checks: messages.Check, room: str = "worker"
    ) -> list[messages.Result]:
        ask = messages.Verified(checks=list(checks))
        return (await self.ask_as_room(room, "verified", ask, messages.Results)).results

    # -- looking -----------------------------------------------------------------------------

    async def look(
        self, principal: Principal, *wanted: Derivation | DerivationInvocation, **changes: Any
    ) -> list[messages.Answer]:
        message = principal.message("muninn", "look", look_of(*wanted), **changes)
        reply = await self.house.post.call("muninn", message)
        return opened(reply, messages.Looked).answers

    async def known(self, principal: Principal, *wanted: Derivation) -> list[bool]:
        """Which are known, and then with exactly their outputs."""
        answers = await self.look(principal, *wanted)
        for answer, derivation in zip(answers, wanted, strict=True):
            if answer.state == "known":
                assert answer.invocation == derivation.invocation
                assert answer.outputs == list(derivation.outputs)
            else:
                assert answer == messages.Answer(state="unknown")
        return [answer.state == "known" for answer in answers]

    # -- operating ---------------------------------------------------------------------------

    async def charged(self, operator: Principal) -> dict[bytes, int]:
        """Derivations on every account."""
        accounts = (await self.status(operator)).accounts
        return {each.principal: each.derivations for each in accounts}

    async def status(self, operator: Principal) -> messages.MemoStatus:
        return await operator.caller.ask(
            "muninn", "status", Empty(), messages.MemoStatus, administer=True
        )

    async def sample(
        self, operator: Principal, count: int, seed: bytes = b"", domain: str | None = None
    ) -> list[messages.Sampled]:
        ask = messages.DrawSample(count=count, seed=seed, domain=domain)
        found = await operator.caller.ask(
            "muninn", "sample", ask, messages.Samples, administer=True
        )
        return found.entries

    async def rebuild(
        self, operator: Principal, *, disown: bool = False, domain: str | None = None
    ) -> messages.Rebuilt:
        ask = messages.Rebuild(disown=disown, domain=domain)
        return await operator.caller.ask(
            "muninn", "rebuild", ask, messages.Rebuilt, administer=True
        )
