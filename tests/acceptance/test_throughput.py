"""A profile whose answers may differ: eight decode as one group, and their states stay exact.

The tiny model with eight streams and groups of eight. Beside it runs what never sees a neighbour:
the same prompts asked one by one of an exact profile's worker.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from actors.worker.backends.llama import LlamaBackend
from profiles.profile import RuntimeProfile
from protocol.families import ADVANCE_FAMILY, FAMILIES
from protocol.ids import ProfileId
from protocol.messages.assembler import Segment
from protocol.record import object_id
from tests.exact_models import MODELS
from tests.model_fixtures import tiny
from tests.worker_rooms import Bench, Listener, Result, opened, segment, until

MODEL = MODELS["tiny"]
WIDE = MODEL.throughput_profile()
AT_ONCE = 8


class Counted(LlamaBackend):
    """Notes how many streams each decode carried. Nothing is fed until `all_here` is set: then
    whoever is asked together is computed together, however busy the machine is."""

    groups: list[int]
    all_here: threading.Event

    def advance(self, stream: int, ids: Sequence[int], *, logits: bool) -> Any:
        assert self.all_here.wait(60)
        return super().advance(stream, ids, logits=logits)

    def decode(self, items: Sequence[tuple[int, int]]) -> list[Any]:
        self.groups.append(len(items))
        return super().decode(items)


def profile_id(profile: RuntimeProfile) -> ProfileId:
    found = object_id(profile)
    assert isinstance(found, ProfileId)
    return found


def prompts(bench: Bench) -> list[list[Segment]]:
    ids = bench.backend.tokenizer.encode("the hen and the ring in the sand " * 20)
    return [
        [
            segment("user", (2,), ids[n : n + 40 + n], name=n),
            segment("model", ids[:2], ids[3 * n : 3 * n + 70], name=40 + n),
            segment("user", (), ids[n : n + 11], name=80 + n),
        ]
        for n in range(AT_ONCE)
    ]


async def ask(bench: Bench, number: int, segments: list[Segment], tokens: int) -> Result:
    return await bench.answer(
        segments, response=f"r{number}", domain=f"d{number}", stop_ids=[], tokens_max=tokens
    )


@pytest.mark.req("KV-1", "KV-2", "KV-9")
async def test_eight_decode_together_over_exact_states() -> None:
    backend = Counted(tiny()[0], WIDE)
    backend.groups, backend.all_here = [], threading.Event()
    states: dict[str, list[object]] = {"wide": [], "exact": []}
    listener = Listener()
    async with opened(
        backend,
        profile=profile_id(WIDE),
        chunk_tokens=MODEL.chunk_tokens,
        reproducible=WIDE.reproducible_generation,
        states_equal=True,
        mailbox=listener,
    ) as bench:
        asks = prompts(bench)
        asking = [asyncio.create_task(ask(bench, n, each, 48)) for n, each in enumerate(asks)]
        engine = bench.room._engine
        await until(lambda: engine.waiting + engine.running == AT_ONCE)
        backend.all_here.set()
        answers = await asyncio.gather(*asking)
        assert max(backend.groups) == AT_ONCE
        assert backend.groups.count(AT_ONCE) > len(backend.groups) // 2
        assert not any(answer.receipt.reproducible for answer in answers)
        assert [len(answer.ids) for answer in answers] == [48] * AT_ONCE
        states["wide"] = [
            (await bench.receipt(f"r{n}", domain=f"d{n}")).state_digest for n in range(AT_ONCE)
        ]
    # What muninn hears of is advances, which are exact; never an answer.
    assert listener.heard
    families = {FAMILIES[entry.invocation.transform_contract] for entry in listener.heard}
    assert families == {ADVANCE_FAMILY}

    async with opened(
        MODEL.open(), profile=MODEL.profile_id(), chunk_tokens=MODEL.chunk_tokens
    ) as bench:
        for number, segments in enumerate(asks):
            alone = await ask(bench, number, segments, 1)
            assert alone.receipt.reproducible
            # The first token comes from prefill, which is nobody's neighbour.
            assert alone.ids == answers[number].ids[:1]
            receipt = await bench.receipt(f"r{number}", domain=f"d{number}")
            states["exact"].append(receipt.state_digest)
    assert None not in states["exact"]
    assert states["wide"] == states["exact"]


@pytest.mark.req("KV-1")
def test_no_state_goes_by_the_same_name_in_both() -> None:
    assert profile_id(WIDE) != MODEL.profile_id()
