"""What the muninn room is told of every advance, and for whom its pages are held."""

from __future__ import annotations

import pytest

from actors.worker.pages import state_digest
from actors.worker.tiers import Tiers
from protocol.derivation import Derivation, check_pair, open_evidence
from protocol.families import ADVANCE_FAMILY, FAMILIES, advancing
from protocol.ids import ChainId, PageId, TokensId
from protocol.messages.worker import AskPages
from protocol.tokens import pack
from store.pages.memory import MemoryPageTier
from tests.page_samples import TestClock
from tests.worker_rooms import (
    OPENER,
    PROFILE,
    Bench,
    Listener,
    Talk,
    call_from,
    opened,
    text_ids,
    until,
)


@pytest.mark.req("DRV-7")
async def test_every_advance_that_was_fed_is_reported_once_with_its_page() -> None:
    listener = Listener()
    talk = Talk().add("user", text_ids("Who flies out at dawn and comes back?"))
    async with opened(mailbox=listener, states_equal=True) as bench:
        cold = await bench.answer(talk.segments)
        receipt = await bench.receipt()
        await bench.answer(talk.segments, response="again")
        longer = talk.add("model", cold.ids[:-1]).add("user", text_ids("And then?"))
        await bench.settle(longer.segments)
        prompt = bench.room._reader.read(longer.segments, b"", answer_tokens=0)
        own = bench.room.world.signer.public
    evidence = {}
    for execution in listener.heard:
        assert execution.evidence is not None
        said = open_evidence(execution.evidence)
        check_pair(execution.invocation, said)
        FAMILIES[execution.invocation.transform_contract].check(
            Derivation(execution.invocation, said.outputs)
        )
        assert (said.domain, said.executor, said.engine_build) == ("alice", own, "huginn")
        evidence[said.outputs[0].id] = (execution.invocation, said)
    # Each once, each from the state before it, and the pages are those of the state digest.
    assert len(evidence) == len(listener.heard)
    before: ChainId | None = None
    pages = []
    for advance, chain in zip(prompt.advances, prompt.chains, strict=True):
        invocation, said = evidence[str(chain)]
        assert invocation == advancing(PROFILE, before, TokensId.of(pack(advance.ids)))
        assert said.measurements == {"tokens": len(advance.ids)}
        pages.append(PageId.parse(said.outputs[1].id))
        before = chain
    first = bench.room._reader.read(talk.segments, pack(OPENER), answer_tokens=1)
    assert first.chains == prompt.chains[: len(first.chains)]
    assert state_digest(pages[: len(first.chains)]) == receipt.state_digest


@pytest.mark.req("KV-2", "DRV-2", "DRV-7")
async def test_states_that_are_not_equal_bit_by_bit_are_told_with_what_they_started_from() -> None:
    listener = Listener()
    talk = Talk().add("user", text_ids("Who flies out at dawn?"))
    longer = talk.add("model", text_ids("A raven.")).add("user", text_ids("Which?"))
    async with opened(mailbox=listener, states_equal=False, reproducible=False) as bench:
        await bench.answer(talk.segments)
        first = await bench.receipt()
        await bench.answer(longer.segments, response="r2")
        receipt = await bench.receipt("r2")
        prompt = bench.room._reader.read(longer.segments, pack(OPENER), answer_tokens=1)
        told = len(bench.room._reader.read(talk.segments, pack(OPENER), answer_tokens=1).chains)
    said = [open_evidence(each.evidence or b"") for each in listener.heard]
    pages = [PageId.parse(each.outputs[1].id) for each in said]
    before: ChainId | None = None
    for index, (advance, chain) in enumerate(zip(prompt.advances, prompt.chains, strict=True)):
        snapshot = state_digest(pages[:index])
        assert listener.heard[index].invocation == advancing(
            PROFILE, before, TokensId.of(pack(advance.ids)), snapshot=snapshot
        )
        ADVANCE_FAMILY.check(Derivation(listener.heard[index].invocation, said[index].outputs))
        before = chain
    # The second turn went on from the pages of the first, which its own snapshots name.
    assert len(pages) == len(prompt.advances) > told
    assert listener.heard[told].invocation.snapshot == str(first.state_digest)
    assert state_digest(pages) == receipt.state_digest


@pytest.mark.req("DRV-6", "AUT-5")
async def test_pages_are_held_for_their_domain_while_their_bytes_are_there() -> None:
    listener = Listener()
    host = MemoryPageTier(TestClock(), 2**20)
    talk = Talk().add("user", text_ids("Who flies out at dawn?"))

    async def held(bench: Bench, chain: str, *pages: str, domain: str = "alice") -> bool:
        ask = AskPages(chain=ChainId.parse(chain), pages=[PageId.parse(page) for page in pages])
        return (await bench.room.on_pages(call_from(domain), ask)).held

    async with opened(mailbox=listener, states_equal=True, tiers=Tiers(host)) as bench:
        await bench.answer(talk.segments)
        await bench.receipt()
        await until(lambda: len(listener.heard) > 1, pause_s=0.01)
        said = [open_evidence(each.evidence or b"").outputs for each in listener.heard]
        chain, page = next([each.id for each in outputs] for outputs in said if len(outputs) == 2)
        assert await held(bench, chain, page)
        assert not await held(bench, chain, page, domain="bob")
        assert not await held(bench, chain, page, str(PageId.of(b"another")))
        assert not await held(bench, str(ChainId.of(b"another")), page)
        (info,) = host.find("alice", [ChainId.parse(chain)])
        host.spoil(info)
        assert not await held(bench, chain, page)
    async with opened() as bench:
        assert not await held(bench, chain, page)
