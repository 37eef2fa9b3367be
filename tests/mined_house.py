"""A whole service on mined ground, from which a turn is begun, answered and settled.

All its rooms die together and rise together, from what is stored: the logs and sessions of events,
the objects of ropes, the evidence of muninn, the worker's receipts, charges and pages. The worker
runs on the strict fake, and rises with an empty one. `Oracle` is a back end that never died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from actors.assembler.contracts import ProfileContracts
from actors.gateway.models import ServedModel
from actors.gateway.turns import Prompt, chat_prompt, settle_blocks
from actors.muninn.room import MuninnRoom
from actors.room import World
from actors.worker.chain import chains
from actors.worker.drivers import LoopDriver
from actors.worker.ledgers import LedgerPorts
from actors.worker.limits import WorkerLimits
from actors.worker.pages import page_digest, state_digest
from actors.worker.room import WorkerRoom
from actors.worker.schedule import advances
from actors.worker.tiers import Tiers
from actors.worker.writer import PageWriter
from protocol.derivation import Derivation, invocation_id
from protocol.envelope import decode_envelope
from protocol.errors import NotVisible
from protocol.families import advanced
from protocol.ids import ChainId, PageId, ProfileId, StateId, TokensId
from protocol.limits import MESSAGE_BYTES_MAX
from protocol.messages import Empty
from protocol.messages.assembler import Segment
from protocol.messages.muninn import MemoStatus
from protocol.messages.ropes import NewBlock
from protocol.messages.worker import AskReceipt, Item, ModelInfo, Receipt, Settle
from protocol.record import decode_record
from protocol.signing import Signer
from protocol.tokens import TokenIds, pack
from store.files import UNFINISHED
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryTables
from store.pages.memory import MemoryPageTier
from store.pages.tier import BOTH, Refused
from tests.events_rooms import NAMESPACE, House
from tests.fake_backend import FakeBackend
from tests.fake_tokenizer import FakeTokenizer
from tests.mined_pages import MinedFiles, PageFolder
from tests.mines import Bomb, Death, MinedLogs, MinedPost, MinedTables
from tests.page_samples import files_below
from tests.rooms import PROFILE, ROOMS, SECOND, Installation, Principal, profile
from tests.worker_rooms import Result, asked, inline, opened, until

PROFILE_ID = ProfileId.of(b"raven")
CONTEXT_TOKENS = 8192
CHUNK = 64
ANSWER_TOKENS = 3
INFO = ModelInfo(
    name="raven",
    profile=PROFILE_ID,
    context_tokens=CONTEXT_TOKENS,
    instruct=True,
    grammar="gemma3-it",
)
MODEL = ServedModel("raven", PROFILE, "worker", INFO, FakeTokenizer(), 1_700_000_000)


def backend(streams: int) -> FakeBackend:
    """An empty one, over the bytes of the installation's tokenizer."""
    made = FakeBackend(
        streams=streams, context_tokens=CONTEXT_TOKENS, chunk_tokens=CHUNK, window_tokens=CHUNK
    )
    made.tokenizer = FakeTokenizer()  # type: ignore[assignment]
    return made


class Oracle:
    """What each chain's page is, computed by a plain loop over a back end: no engine, no streams,
    nothing that is kept."""

    def __init__(self) -> None:
        self.pages: dict[ChainId, PageId] = {}
        self._fed: dict[ChainId, tuple[ChainId | None, TokenIds]] = {}

    def learn(self, segments: Sequence[Segment], opener: bytes = b"") -> StateId:
        """The state after these."""
        pieces = advances(segments, opener, chunk_tokens=CHUNK)
        named = chains(PROFILE_ID, pieces)
        if not self.pages.keys() >= set(named):
            model = backend(1)
            for index, (piece, chain) in enumerate(zip(pieces, named, strict=True)):
                model.advance(0, piece.ids, logits=False)
                self.pages[chain] = page_digest(model.export(0, piece.start, piece.stop))
                self._fed[chain] = named[index - 1] if index else None, piece.ids
        return state_digest(self.pages[chain] for chain in named)

    def derivations(self) -> Iterator[Derivation]:
        """Every advance, as evidence names it."""
        for chain, (previous, ids) in self._fed.items():
            tokens = TokensId.of(pack(ids))
            yield advanced(PROFILE_ID, previous, tokens, chain, [self.pages[chain]])


@dataclass
class MinedInstallation(Installation):
    """Rooms whose messages to one another go through `wire`."""

    wire: MinedPost | None = field(default=None)

    def world(self, name: str) -> World:
        found = super().world(name)
        return found if self.wire is None else replace(found, mailbox=self.wire)


class MinedHouse(House):
    """`stored` are the tables of events, `root` is where pages lie, at most `budget_bytes` of them.
    Without `works`, nobody computes or remembers anything: there is no worker and no muninn.
    Without `looks`, what lies there is not compared with what it should be. `restored_tokens`
    counts what prompts were restored from disk, `remembered` the advances of which muninn had
    evidence in the end."""

    def __init__(
        self,
        root: Path,
        bomb: Bomb,
        stored: MemoryTables,
        *,
        files: type[MinedFiles] = MinedFiles,
        budget_bytes: int = 2**30,
        works: bool = True,
        looks: bool = True,
    ) -> None:
        self.bomb = bomb
        self.works = works
        self.looks = looks
        self.folder = PageFolder(root, bomb, budget_bytes, files)
        self.oracle = Oracle()
        self.restored_tokens = 0
        self.remembered = 0
        self._stored = (stored, MemoryEventLogs(stored))
        self._worker_tables, self._memo_tables = MemoryTables(), MemoryTables()
        self._response_to_state: dict[str, StateId] = {}
        self.worker: WorkerRoom | None = None
        super().__init__(
            tables=MinedTables(stored, bomb),
            logs=MinedLogs(self._stored[1], bomb),
            rooms=MinedInstallation({PROFILE: _profile()}, reporting=True),
        )
        signer = Signer(self.rooms.entropy.draw(32))
        self.rooms.signers["muninn"], self.rooms.room_to_key["muninn"] = signer, signer.public

    # -- living and dying ----------------------------------------------------------------------

    async def start(self) -> MinedHouse:
        await self.rooms.start()
        self.principal = await self.rooms.enroll(NAMESPACE)
        self._operator = await self.rooms.enroll("operator", administers=True)
        await self.crash()
        return self

    async def crash(self) -> None:
        """All rooms are gone, and others find what is stored. Raises Death, or what comes of it, if
        the next life ends while it begins."""
        await self.kill()
        self._rise()
        for name in ROOMS:
            await self.rooms.restart(name)
        await super().crash()
        if not self.works:
            return
        self.muninn = MuninnRoom(
            self.rooms.world("muninn"),
            MinedTables(self._memo_tables, self.bomb),
        )
        await self.rooms.add(self.muninn)
        self.worker = self._worker()
        await self.rooms.add(self.worker)

    async def kill(self) -> None:
        """Nothing of this life goes on: no engine, and no task."""
        self.bomb.die()
        if self.worker is not None:
            await self.worker._driver.stop()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.folder.bury()

    def _rise(self) -> None:
        """New wires into the same stores; those of the dead lead nowhere."""
        rooms = self.rooms
        self.bomb.rise()
        # Whatever was said before counts as replayed.
        rooms.clock.now_ns += SECOND
        rooms.post.forget()
        assert isinstance(rooms, MinedInstallation)
        self._wire = rooms.wire = MinedPost(rooms.post, self.bomb)
        self.tables = MinedTables(self._stored[0], self.bomb)
        self.logs = MinedLogs(self._stored[1], self.bomb)
        ports = replace(rooms.ports, mailbox=self._wire)
        self.principal = Principal(self.principal.row, self.principal.signer, ports)

    def _worker(self) -> WorkerRoom:
        clock = self.rooms.clock
        tables = MinedTables(self._worker_tables, self.bomb)
        host = MemoryPageTier(clock, 2**30)
        disk = self.folder.open(clock)
        self.writer = PageWriter(disk, host)
        return WorkerRoom(
            self.rooms.world("worker"),
            backend(4),
            PROFILE_ID,
            INFO,
            tables.keyed("receipts"),
            profile_name=PROFILE,
            public_table=tables.keyed("public"),
            ledgers=LedgerPorts(tables.keyed("charges"), tables.keyed("use")),
            tiers=Tiers(host, disk, self.writer, gain_tokens_min=1, tail_tokens_min=1),
            limits=WorkerLimits(chunk_tokens=CHUNK, states_equal=True, drain_ns=SECOND),
            driver=LoopDriver(),
            blocking=inline,
        )

    # -- what a turn asks of it ----------------------------------------------------------------

    async def answer(self, blocks: list[NewBlock], response: str) -> tuple[Prompt, Result]:
        """What the worker says to `blocks`, as the gateway asks."""
        caller = self.principal.caller
        prompt = await chat_prompt(caller, MODEL, blocks, NAMESPACE)
        state = self.oracle.learn(prompt.segments, prompt.opener)
        self._response_to_state[response] = state
        ask = asked(prompt.segments, response=response, **_how(prompt), context=prompt.context)
        async with aclosing(caller.stream("worker", "generate", ask, Item)) as items:
            return prompt, Result([item async for item in items])

    async def settle(self, blocks: list[NewBlock], response: str, *, late: bool = False) -> None:
        """Have a conversation settled, and wait until nothing goes on behind it any more; `late`:
        its pages wait to be written."""
        caller = self.principal.caller
        try:
            await settle_blocks(caller, MODEL, blocks, namespace=NAMESPACE, response=response)
        finally:
            for message in self._wire.heard:
                envelope = decode_envelope(message)
                if envelope.op == "settle":
                    ask = decode_record(Settle, envelope.body, size_max=MESSAGE_BYTES_MAX)
                    self.oracle.learn(ask.segments)
            self._wire.heard.clear()
        await self.quiet(late=late)

    async def quiet(self, *, late: bool = False) -> None:
        """Wait until everything is told and written that is told and written behind an answer;
        `late`: but for pages. Raises Death if it died meanwhile: who works there says nothing."""
        if not self.works:
            return
        worker: Any = self.worker
        assembler: Any = self.rooms.post.rooms["assembler"]
        queues = [assembler._evidence, worker._testimony._queue]

        def is_quiet() -> bool:
            for queue in queues:
                # What waits for more to come does not wait here.
                queue._full.set()
            return self.bomb.dead or not (
                worker._driver._scheduled
                or worker._posts._gathered
                or worker._engine.waiting
                or worker._engine.running
                or worker._receipts._writer
                or worker._ledgers.charges._writer
                or any(queue._sender and not queue._sender.done() for queue in queues)
            )

        # Twice: what ends may set something else going.
        for _ in range(2):
            await until(is_quiet)
            await asyncio.sleep(0)
        if not late:
            self.writer.flush()
        assert self.folder.store is not None
        assert not self.folder.store.stats().conflicts, "a page came out as another than before"
        if self.bomb.dead:
            raise Death
        # Here somebody who went meanwhile is gone.
        await asyncio.sleep(0)

    # -- what has to hold ----------------------------------------------------------------------

    async def check(self) -> None:
        """What was left by the dead: every page is whole and right, or it is not there; nothing is
        in conflict; no receipt says what is not so."""
        if not self.works:
            return
        if self.looks:
            self._check_pages()
        await self._check_memo()
        for response, state in self._response_to_state.items():
            receipt = await self._receipt(response)
            said = None if receipt is None else receipt.state_digest
            assert said in (None, state), f"the receipt of {response} names another state"

    def _check_pages(self) -> None:
        store = self.folder.store
        assert store is not None
        stats = store.stats()
        assert not stats.refused, f"a page was refused: {stats.refused}"
        names = [path.name for path in files_below(self.folder.path)]
        assert not [name for name in names if name.endswith(UNFINISHED)], "unfinished files stay"
        assert len(names) == stats.pages, "a file that is no page stays"
        assert stats.bytes <= self.folder.budget_bytes
        infos = store.find(NAMESPACE, list(self.oracle.pages))
        assert len(infos) == stats.pages, "a page that nobody asked for"
        for info in infos:
            rows = store.read(info, BOTH)
            right = not isinstance(rows, Refused) and page_digest(rows)
            wanted = self.oracle.pages[info.page.chain]
            assert info.digest == wanted, "a page is kept as what it is not"
            assert right == wanted, "a page is not what a worker computes that never died"

    async def _check_memo(self) -> None:
        caller = self._operator.caller
        status = await caller.ask("muninn", "status", Empty(), MemoStatus, administer=True)
        assert status.quarantined == [], "two results of one advance were reported"
        for domain in status.domains:
            assert domain.sound
            assert not domain.damaged
            assert not domain.quarantined

    def check_evidence(self) -> None:
        """What muninn remembers of advances is what they give."""
        memo = self.muninn._memos.get(NAMESPACE) if self.works else None
        if memo is None:
            return
        for derivation in self.oracle.derivations():
            found = memo.find(invocation_id(derivation.invocation))
            if found is not None:
                self.remembered += 1
                outputs = tuple(found.examined.evidence.outputs)
                assert outputs == tuple(derivation.outputs), "evidence of another result"

    async def compare(self, blocks: list[NewBlock], response: str) -> None:
        """This worker says to `blocks` what one says that has seen nothing before, on the same
        state."""
        prompt, warm = await self.answer(blocks, response)
        await self.quiet()
        receipt = await self._receipt(response)
        assert receipt is not None
        self.restored_tokens += receipt.tiers["disk"]
        async with opened(
            backend(1), driver=LoopDriver(), profile=PROFILE_ID, chunk_tokens=CHUNK
        ) as bench:
            cold = await bench.answer(prompt.segments, **_how(prompt))
            cold_receipt = await bench.receipt()
        assert cold_receipt.state_digest == self._response_to_state[response]
        assert (warm.ids, receipt.prompt_tokens, receipt.state_digest) == (
            cold.ids,
            cold_receipt.prompt_tokens,
            cold_receipt.state_digest,
        ), "another answer than that of a worker that never died, or another state"

    async def _receipt(self, response: str) -> Receipt | None:
        try:
            ask = AskReceipt(response=response)
            return await self.principal.caller.ask("worker", "receipt", ask, Receipt)
        except NotVisible:
            # Written behind the answer: a death may take it along.
            return None


def _profile() -> ProfileContracts:
    """With one grammar: every contract costs time in every life."""
    whole: ProfileContracts = profile()
    return replace(whole, grammars={"gemma3-it": whole.grammar})


def _how(prompt: Prompt) -> dict[str, Any]:
    return {
        "opener": prompt.opener,
        "stop_ids": prompt.stop_ids,
        "stop_texts": prompt.stop_texts,
        "tokens_max": ANSWER_TOKENS,
    }
