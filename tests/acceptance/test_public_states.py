"""Random plans of several domains over public prefixes: the same states and answers as computed
anew, and nothing reused that is neither the caller's own nor public.

The strict fake over a real page directory; the oracle is a back end that never saw anything but the
prompt. Blocks are published and withdrawn in between, workers evict, die and come back.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from protocol.ids import BlockId
from protocol.messages.assembler import Segment
from protocol.tokens import TokenIds
from store.memory_tables import MemoryTables
from store.pages.header import domain_digest
from tests.kept_states import Keeper, expected
from tests.worker_rooms import CHUNK, Bench, Board, Talk, stated, text_ids
from tests.worker_talks import prompt_ids, shared

# What may be public: one after the other at the beginning of a conversation.
PUBLIC_TALK = Talk().add("user", text_ids("a" * 40)).add("user", text_ids("b" * 11))
# The same tokens out of blocks that nobody published: they are the caller's own.
DISGUISED = Talk(
    [structs.replace(s, block=BlockId.of(s.block.digest)) for s in PUBLIC_TALK.segments]
)
KINDS = ["turn"] * 8 + ["publish", "publish one", "withdraw", "evict", "restart", "retell"]
steps = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.sampled_from(["alice", "bob", "carol"]),
        st.integers(0, 3),
        st.text("ab", min_size=1, max_size=30).map(text_ids),
        st.booleans(),
    ),
    min_size=3,
    max_size=16,
)


class Follower:
    """Follows a plan with one worker after the other, and checks every turn."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.keeper = Keeper(root)
        self.board = Board()
        self.table = MemoryTables().keyed("public")
        self.talks: dict[str, Talk] = {}
        self.own: dict[str, list[TokenIds]] = {}
        # What was derived while its beginning was public, and not withdrawn since.
        self.public: list[TokenIds] = []
        self.asked = 0

    def leading(self, segments: Sequence[Segment]) -> list[Segment]:
        found = []
        for segment in segments:
            if segment.block not in self.board.blocks:
                break
            found.append(segment)
        return found

    async def turn(self, bench: Bench, domain: str, talk: Talk, *, settle: bool) -> None:
        self.asked += 1
        name, fed = f"r{self.asked}", len(bench.backend.fed)
        first = self.leading(talk.segments)
        statement = stated(first)
        found = await bench.answer(talk.segments, response=name, domain=domain, public=statement)
        given = [i for kind, _, run in bench.backend.fed[fed:] if kind == "advance" for i in run]
        receipt = await bench.receipt(name, domain=domain)
        wanted, ids = expected(talk), prompt_ids(talk)
        assert (found.ids, receipt.state_digest) == wanted
        assert tuple(given) == ids[receipt.reused_tokens :], "what was restored is not fed"
        limit = sum(len(s.head) + len(s.content) for s in first) // 4
        tokens = receipt.public_tokens or 0
        assert limit - CHUNK < tokens <= limit or tokens == limit == 0
        own = max((shared(ids, past) for past in self.own.get(domain, [])), default=0)
        public = max((shared(ids, past) for past in self.public), default=0)
        assert receipt.reused_tokens <= max(own, min(public, tokens))
        answered = talk.add("model", found.ids)
        if settle:
            again = stated(self.leading(answered.segments))
            await bench.settle(answered.segments, domain=domain, public=again)
        self.talks[domain] = answered
        self.own.setdefault(domain, []).append(prompt_ids(answered))
        self.public.append(ids[:tokens])

    async def change(self, bench: Bench, kind: str) -> None:
        """Publish or withdraw, as the ropes room tells it."""
        blocks = [segment.block for segment in PUBLIC_TALK.segments]
        if kind == "withdraw":
            self.board.blocks.discard(blocks[0])
            self.public.clear()
        else:
            self.board.blocks.update(blocks[: 1 if kind == "publish one" else 2])
        await bench.room._public.refresh()
        if kind == "withdraw":
            assert self.kept("public") == 0

    def kept(self, domain: str) -> int:
        digest = domain_digest(domain)
        self.keeper.writer.flush()
        return len(list((self.root / digest.hex()).glob("*"))) + sum(
            entry.header.domain == digest for entry in self.keeper.host._catalog.entries()
        )

    def next(self, domain: str, beginning: int, content: TokenIds) -> Talk:
        talk = self.talks.get(domain, Talk())
        if beginning == 3:
            talk = DISGUISED
        elif beginning or not talk.segments or len(prompt_ids(talk)) > 500:
            talk = Talk(PUBLIC_TALK.segments[:beginning])
        return talk.add("user", content)

    async def follow(self, plan: list[Any], streams: int) -> None:
        rest = list(plan)
        while rest:
            options = {"mailbox": self.board, "public_table": self.table}
            async with self.keeper.worker(streams, **options) as bench:
                await bench.room._public.known()
                while rest:
                    kind, domain, beginning, content, flag = rest.pop(0)
                    if flag:
                        self.keeper.writer.flush()
                    if kind == "restart":
                        break
                    if kind in ("publish", "publish one", "withdraw"):
                        await self.change(bench, kind)
                    elif kind == "retell":
                        await bench.room._public.refresh()
                    elif kind == "evict":
                        for number in range(streams):
                            other = Talk().add("user", text_ids(f"{number}") + content)
                            await self.turn(bench, "dora", other, settle=False)
                    else:
                        talk = self.next(domain, beginning, content)
                        await self.turn(bench, domain, talk, settle=flag)


@pytest.mark.req("AUT-5", "KV-1", "KV-2", "KV-5")
@settings(max_examples=60)
@given(plan=steps, streams=st.integers(1, 3))
def test_domains_share_what_is_public_and_nothing_else(plan: list[Any], streams: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(Follower(Path(root) / "pages").follow(plan, streams))


@pytest.mark.req("AUT-5", "KV-5")
async def test_a_stranger_costs_a_conversation_nothing(tmp_path: Path) -> None:
    """Bob's prompt matches the beginning of alice's stream. While another stream is free he gets
    that one, and she finds her conversation where it was, on her stream."""
    follower = Follower(tmp_path / "pages")
    async with follower.keeper.worker(2, mailbox=follower.board, gain_tokens_min=10**6) as bench:
        await follower.change(bench, "publish")
        mine = PUBLIC_TALK.add("user", text_ids("mine " * 8))
        await follower.turn(bench, "alice", mine, settle=True)
        await follower.turn(bench, "bob", PUBLIC_TALK.add("user", text_ids("his")), settle=False)
        more = follower.talks["alice"].add("user", text_ids("more"))
        await follower.turn(bench, "alice", more, settle=False)
        receipt = await bench.receipt("r3", domain="alice")
        assert receipt.tiers["device"] == receipt.reused_tokens > len(prompt_ids(mine)) - 3
        # None is free now: the one that goes first is bob's, and carol keeps what is public of it.
        await follower.turn(bench, "carol", PUBLIC_TALK.add("user", text_ids("hers")), settle=False)
        hers = await bench.receipt("r4", domain="carol")
        assert hers.tiers["device"] == hers.reused_tokens == hers.public_tokens
        await follower.turn(bench, "alice", more, settle=False)
        again = await bench.receipt("r5", domain="alice")
        assert again.tiers["device"] == again.reused_tokens >= receipt.reused_tokens
