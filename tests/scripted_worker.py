"""A worker room without a model, which a test directs: what it says, what it waits for, and where
it breaks. Every message goes through its door, as in production."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from actors.room import Call, Room, World
from actors.worker.charges import LogicalLedger
from protocol.errors import HuginnError, NotVisible, WorkerFault
from protocol.ids import ProfileId, StateId
from protocol.messages import Empty
from protocol.messages import worker as messages
from protocol.messages.worker import BlockReceipt, Item, Receipt, TokenLogprob, TopLogprob
from protocol.resource import Right
from protocol.tokens import pack

MODEL = "raven"
PROFILE = "raven-exact"
PROFILE_ID = ProfileId.of(b"raven-exact")
CONTEXT_TOKENS = 2048
ANSWER = "Hugin says: the café is open — 🐦, naïve raven.\nAnd that is all."
INFO = messages.ModelInfo(
    name=MODEL,
    profile=PROFILE_ID,
    context_tokens=CONTEXT_TOKENS,
    instruct=True,
    grammar="gemma3-it",
)


@dataclass
class Script:
    """What the worker does with the next answers.

    `gate`: wait here before the first token. `pace_s`: wait before each delta. `refuse`: what the
    job is refused with at once. `break_after`: fail, or go silent for good (`vanish`), after so
    many deltas. `finish`: end for this reason after `break_after` deltas.
    """

    answer: str = ANSWER
    gate: asyncio.Event | None = None
    pace_s: float = 0.0
    refuse: HuginnError | None = None
    break_after: int | None = None
    vanish: bool = False
    finish: str | None = None


class Counter:
    """A number that can be waited for."""

    def __init__(self) -> None:
        self.value = 0
        self._moved = asyncio.Condition()

    async def add(self, by: int = 1) -> None:
        async with self._moved:
            self.value += by
            self._moved.notify_all()

    async def wait_for(self, value: int, timeout_s: float = 60.0) -> None:
        """Until it is at least `value`; TimeoutError if that does not come."""
        async with asyncio.timeout(timeout_s), self._moved:
            await self._moved.wait_for(lambda: self.value >= value)


class ScriptedWorker(Room):
    """A worker room without a model. Tokens are bytes, as FakeTokenizer has it."""

    operations = messages.OPERATIONS

    def __init__(self, world: World) -> None:
        super().__init__("worker", world)
        self.script = Script()
        self.asked: list[messages.Generate] = []
        self.settled: list[messages.Settle] = []
        self.running = 0
        self.deltas = 0
        # Answers that began, that ended in whatever way, and settlements that were asked for.
        self.began, self.over, self.settlements = Counter(), Counter(), Counter()
        self.stopped_early = 0
        self.charges = LogicalLedger(None)
        self.told_of_publications = 0
        self._receipts: dict[tuple[str, str], Receipt] = {}
        self._warm: dict[str, list[tuple[int, ...]]] = {}

    async def on_generate(self, call: Call, ask: messages.Generate) -> AsyncGenerator[Item, None]:
        script = self.script
        if script.refuse is not None:
            raise script.refuse
        self.asked.append(ask)
        self.running += 1
        await self.began.add()
        ended = False
        try:
            ids = _prompt_ids(ask)
            self.charges.charge(call.handle.principal, answers=1, prompt_tokens=len(ids))
            reused = self._reused(call.domain, ids)
            if call.has(Right.TELEMETRY):
                yield Item(kind="prefill", done=reused, total=len(ids))
            if script.gate is not None:
                await script.gate.wait()
            text, finish, seed = self._answer(script, ask)
            tokens = 0
            for index, character in enumerate(text):
                if index == script.break_after:
                    if script.vanish:
                        return
                    if script.finish is None:
                        raise WorkerFault("the worker ran into a wall")
                    finish = script.finish
                    break
                await asyncio.sleep(script.pace_s)
                data = character.encode()
                self.deltas += 1
                tokens += len(data)
                yield Item(
                    kind="delta",
                    text=character,
                    ids=pack(tuple(data)),
                    logprobs=_logprobs(ask, data),
                )
            receipt = _receipt(ask, ids, reused=reused, tokens=tokens, finish=finish, seed=seed)
            self._receipts[call.domain, ask.response] = receipt
            self._warm.setdefault(call.domain, []).append(ids)
            ended = True
            yield Item(kind="end", finish=finish, receipt=receipt)
        finally:
            self.running -= 1
            self.stopped_early += not ended
            await self.over.add()

    def _answer(self, script: Script, ask: messages.Generate) -> tuple[str, str, int]:
        """The text, why it ends, and the seed: greedy is the script's answer, sampling puts
        something in front that the seed decides."""
        seed = ask.sampler.seed
        if seed is None:
            seed = int.from_bytes(self.world.entropy.draw(7), "big")
        text = script.answer
        if ask.sampler.temperature_ppm:
            text = hashlib.sha256(seed.to_bytes(8, "big")).hexdigest()[:8] + " " + text
        for stop in (*ask.stops, *ask.stop_texts):
            text = text.partition(stop)[0]
        kept = text.encode()[: ask.tokens_max].decode("utf-8", "ignore")
        return kept, "stop" if kept == text else "length", seed

    def _reused(self, domain: str, ids: tuple[int, ...]) -> int:
        """How long a prefix of `ids` was fed before in this domain, less the one token that is
        always fed again."""
        longest = 0
        for seen in self._warm.get(domain, []):
            same = 0
            for a, b in zip(seen, ids, strict=False):
                if a != b:
                    break
                same += 1
            longest = max(longest, same)
        return max(0, min(longest, len(ids) - 1))

    async def on_settle(self, call: Call, ask: messages.Settle) -> Empty:
        self.settled.append(ask)
        await self.settlements.add()
        return Empty()

    async def on_cancel(self, call: Call, ask: messages.Cancel) -> Empty:
        return Empty()

    async def on_receipt(self, call: Call, ask: messages.AskReceipt) -> Receipt:
        receipt = self._receipts.get((call.domain, ask.response))
        if receipt is None:
            raise NotVisible("no such receipt is known to you")
        return receipt

    async def on_stats(self, call: Call, ask: Empty) -> messages.Stats:
        return messages.Stats(
            profile=PROFILE_ID,
            streams=4,
            streams_busy=self.running,
            resident_tokens=0,
            waiting=0,
            prefilled_tokens=0,
            reused_tokens=0,
            decoded_tokens=self.deltas,
            jobs_failed=0,
            stream_kv_bytes=[0, 0, 0, 0],
            kv_bytes=4_096_000,
            device_bytes=5_000_000,
            tiers={"disk": {"pages": 7, "bytes": 2_000_000, "hits": 3, "refused": 1, "paused": 1}},
            process=1,
        )

    async def on_charge(self, call: Call, ask: Empty) -> messages.Charge:
        return self.charges.of(call.handle.principal)

    async def on_charges(self, call: Call, ask: Empty) -> messages.Charges:
        return self.charges.all()

    async def on_use(self, call: Call, ask: Empty) -> messages.PhysicalUse:
        return messages.PhysicalUse(profile=PROFILE_ID, used={"device_ns": 5, "cpu_ns": 7})

    async def on_publications(self, call: Call, ask: Empty) -> Empty:
        self.told_of_publications += 1
        return Empty()

    async def on_pages(self, call: Call, ask: messages.AskPages) -> messages.HeldPages:
        return messages.HeldPages(held=False)

    async def on_info(self, call: Call, ask: Empty) -> messages.ModelInfo:
        return INFO


def _prompt_ids(ask: messages.Generate) -> tuple[int, ...]:
    packed = b"".join(part.head + part.content for part in ask.segments) + ask.opener
    return tuple(int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4))


def _logprobs(ask: messages.Generate, data: bytes) -> list[TokenLogprob] | None:
    if ask.logprobs_top is None:
        return None
    return [
        TokenLogprob(
            token=byte,
            piece=bytes((byte,)),
            logprob_ppm=-500_000,
            top=[
                TopLogprob(
                    token=(byte + step) % 256,
                    piece=bytes(((byte + step) % 256,)),
                    logprob_ppm=-500_000 * (step + 1),
                )
                for step in range(ask.logprobs_top)
            ],
        )
        for byte in data
    ]


def _receipt(
    ask: messages.Generate,
    ids: tuple[int, ...],
    *,
    reused: int,
    tokens: int,
    finish: str,
    seed: int,
) -> Receipt:
    blocks = []
    start = 0
    for part in ask.segments:
        count = (len(part.head) + len(part.content)) // 4
        blocks.append(
            BlockReceipt(
                block=part.block,
                role=part.role,
                type=part.type,
                tokens=count,
                reused=max(0, min(count, reused - start)),
            )
        )
        start += count
    return Receipt(
        response=ask.response,
        profile=PROFILE_ID,
        prompt_tokens=len(ids),
        reused_tokens=reused,
        prefilled_tokens=len(ids) - reused,
        completion_tokens=tokens,
        tiers={"device": reused},
        pages_verified=0,
        pages_refused=[],
        blocks=blocks,
        advances=len(blocks),
        queued_ns=1_000_000,
        ttft_ns=2_500_000,
        total_ns=9_000_000,
        finish=finish,
        seed=seed,
        reproducible=True,
        context=ask.context,
        state_digest=StateId.of(repr(ids).encode()),
    )
