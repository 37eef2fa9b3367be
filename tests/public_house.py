"""An installation with a real worker on the tiny model, for tests of what is public.

Authority, ropes, assembler and worker are the product's own; turns are made as the gateway makes
them. The worker keeps pages in a directory, and can be stopped and started again over it.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from actors.gateway.limits import Limits
from actors.gateway.models import ServedModel
from actors.gateway.turns import Ask, Prompt, chat_prompt, jobs, settle
from actors.runtime.wiring import profile_contracts
from actors.worker.backends.llama_tokenizer import LlamaTokenizer
from actors.worker.limits import WorkerLimits
from actors.worker.room import WorkerRoom
from actors.worker.tiers import Tiers
from actors.worker.writer import PageWriter
from protocol.ids import BlockId
from protocol.messages.ropes import Publication, Publish, Withdraw
from protocol.messages.worker import GREEDY, AskReceipt, Generate, Item, ModelInfo, Receipt
from protocol.publication import PUBLIC
from protocol.tokens import TokenIds, unpack
from store.memory_tables import MemoryTables
from store.pages.disk import PageStore
from store.pages.header import domain_digest
from store.pages.memory import MemoryPageTier
from tests.block_samples import Pair, system, user
from tests.exact_models import MODELS
from tests.model_fixtures import tiny
from tests.page_samples import TestClock, key_for
from tests.rooms import PROFILE, Installation, Principal, new_blocks
from tests.worker_rooms import inline

TINY = MODELS["tiny"]
RESPONSE_TOKENS = 6
NO_TELEMETRY = ("advance", "assemble", "generate", "read", "write")
# What is published, if anything is.
SYSTEM = system("You are a raven that answers in few words. " * 8)
GUIDE = user("The guide of the house: knock twice, wipe your feet. " * 4)


@dataclass
class Told:
    """What a turn gave its caller."""

    prompt: Prompt
    items: list[Item]
    receipt: Receipt | None

    @property
    def ids(self) -> TokenIds:
        return unpack(b"".join(item.ids or b"" for item in self.items))

    @property
    def text(self) -> str:
        return "".join(item.text or "" for item in self.items)

    @property
    def known(self) -> Receipt:
        assert self.receipt is not None
        return self.receipt


class PublicHouse:
    """`post` says what was sent; `pages` is the worker's directory. While `broken`, no erasure of
    pages is durable, and so each fails."""

    def __init__(self, pages: Path) -> None:
        self.pages = pages
        self.worker_tables = MemoryTables()
        self.turns = 0
        self.broken = False

    def _sync(self, descriptor: int) -> None:
        if self.broken and os.readlink(f"/proc/self/fd/{descriptor}") == str(self.pages):
            raise OSError(errno.EIO, "bad disk")

    async def start(self) -> PublicHouse:
        self.tokenizer = LlamaTokenizer(tiny()[0])
        contracts = replace(profile_contracts(TINY.profile(), self.tokenizer), name=PROFILE)
        self.house = await Installation(profiles={PROFILE: contracts}).start()
        self.post = self.house.post
        await self.start_worker()
        self.operator = await self.house.enroll("operator", administers=True, telemetry=[PUBLIC])
        return self

    async def start_worker(self) -> None:
        self.backend = TINY.open()
        self.host = MemoryPageTier(TestClock(), 2**30)
        self.disk = PageStore(self.pages, TestClock(), key_for, 2**30, fsync=self._sync)
        self.writer = PageWriter(self.disk, self.host)
        self.worker = WorkerRoom(
            self.house.world("worker"),
            self.backend,
            TINY.profile_id(),
            self.info,
            self.worker_tables.keyed("receipts"),
            profile_name=PROFILE,
            public_table=self.worker_tables.keyed("public"),
            tiers=Tiers(self.host, self.disk, self.writer, gain_tokens_min=1),
            limits=WorkerLimits(chunk_tokens=TINY.chunk_tokens, drain_ns=10**8),
            blocking=inline,
        )
        self.post.down.discard("worker")
        await self.house.add(self.worker)

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            name="tiny",
            profile=TINY.profile_id(),
            context_tokens=self.backend.context_tokens,
            instruct=True,
            grammar="gemma3-it",
        )

    async def stop_worker(self) -> None:
        """It is gone: nobody reaches it, what it had written is on disk."""
        self.post.down.add("worker")
        await self.worker.drain()

    async def stop(self) -> None:
        await self.stop_worker()

    async def restart(self) -> None:
        """All of it, over what is kept."""
        await self.stop_worker()
        for name in ("authority", "ropes", "assembler"):
            await self.house.restart(name)
        await self.start_worker()

    async def publish(self, pair: Pair, principal: Principal | None = None) -> BlockId:
        block, text = pair
        ask = Publish(block=block, content=text.encode())
        caller = (principal or self.operator).caller
        return (await caller.ask("ropes", "publish", ask, Publication, administer=True)).block

    async def withdraw(self, block: BlockId, principal: Principal | None = None) -> None:
        caller = (principal or self.operator).caller
        ask = Withdraw(block=block)
        await caller.ask("ropes", "withdraw", ask, Publication, administer=True)

    @property
    def model(self) -> ServedModel:
        return ServedModel("tiny", PROFILE, "worker", self.info, self.tokenizer, 0)

    async def job(self, who: Principal, talk: Sequence[Pair]) -> tuple[Prompt, Generate]:
        """A turn of `who`, assembled and not yet asked for."""
        self.turns += 1
        caller = who.caller
        prompt = await chat_prompt(caller, self.model, new_blocks(talk), caller.namespace)
        ask = Ask(GREEDY, [], 1, RESPONSE_TOKENS, None, False)
        (job,) = jobs(prompt, ask, self.model, f"r{self.turns}", Limits())
        return prompt, job

    async def turn(self, who: Principal, talk: Sequence[Pair], *, settled: bool = False) -> Told:
        """The answer to `talk`, and what `who` is told of it when all is known."""
        prompt, job = await self.job(who, talk)
        items = [item async for item in who.caller.stream("worker", "generate", job, Item)]
        told = Told(prompt, items, await self._receipt(who, job.response))
        if settled:
            await settle(
                who.caller,
                self.model,
                prompt,
                namespace=who.caller.namespace,
                response=job.response,
                answer=told.text,
            )
        return told

    async def _receipt(self, who: Principal, response: str) -> Receipt | None:
        if "telemetry" not in {right.value for right in who.caller._leaf.rights}:
            return None
        domain = who.row.domain
        async with asyncio.timeout(60):
            while True:
                whole = await self.worker._receipts.get(domain, response)
                if whole is not None and whole.state_digest is not None:
                    break
                await asyncio.sleep(0.002)
        return await who.caller.ask("worker", "receipt", AskReceipt(response=response), Receipt)

    def kept(self, domain: str) -> int:
        """How many pages of `domain` lie in memory or on disk."""
        self.writer.flush()
        digest = domain_digest(domain)
        files = list((self.pages / digest.hex()).glob("*"))
        held = [e for e in self.host._catalog.entries() if e.header.domain == digest]
        assert len([e for e in self.disk._catalog.entries() if e.header.domain == digest]) == len(
            files
        )
        return len(files) + len(held)


@asynccontextmanager
async def public_house(pages: Path) -> AsyncIterator[PublicHouse]:
    house = await PublicHouse(pages).start()
    try:
        yield house
    finally:
        await house.stop()


async def seer(house: PublicHouse, name: str) -> Principal:
    """Who may know what was reused, in its own domain and in the public one."""
    return await house.house.enroll(name, telemetry=["public"])


async def private_run(house: PublicHouse, talk: list[Pair], name: str) -> Told:
    """What a worker gives that never saw anything, of an installation without publications."""
    async with public_house(house.pages.parent / f"private-{name}") as other:
        return await other.turn(await seer(other, "nobody"), talk)


def same(told: Told, other: Told) -> None:
    """The same answer out of the same state."""
    assert told.ids == other.ids
    assert told.known.state_digest == other.known.state_digest
    assert told.known.prompt_tokens == other.known.prompt_tokens
    assert told.prompt.context == other.prompt.context
