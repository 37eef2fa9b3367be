"""`python -m tests.killed_worker tiny|real DIRECTORY`: a worker that is there to be killed.

Reads prompts from standard input as `tests.bare_process` does, answers one after the other in the
domain `killed`, and writes a line for each, [prompt tokens, answer ids, state digest]; pages go to
DIRECTORY behind that. Then it waits.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from actors.worker.tiers import Tiers
from actors.worker.writer import PageWriter
from protocol.ids import BlockId
from protocol.messages.assembler import Segment
from protocol.tokens import pack
from store.pages.memory import MemoryPageTier
from tests.exact_models import MODELS
from tests.page_samples import TestClock, disk
from tests.worker_rooms import opened


def tiers_over(root: Path) -> Tiers:
    """Tiers with room for everything, pages written by a thread; nothing is synced."""
    clock = TestClock()
    host, store = MemoryPageTier(clock, 2**30), disk(root, clock)
    return Tiers(host, store, PageWriter(store, host).start())


async def main() -> None:
    model = MODELS[sys.argv[1]]
    backend, tiers = model.open(), tiers_over(Path(sys.argv[2]))
    async with opened(
        backend, profile=model.profile_id(), chunk_tokens=model.chunk_tokens, tiers=tiers
    ) as bench:
        for number, (blocks, opener) in enumerate(json.load(sys.stdin)):
            segments = [
                Segment(
                    block=BlockId.of(b""),
                    role=role,
                    type="",
                    head=pack(head),
                    content=pack(content),
                )
                for role, head, content in blocks
            ]
            answer = await bench.answer(
                segments,
                response=f"r{number}",
                opener=pack(opener),
                tokens_max=model.answer_tokens,
                stop_ids=sorted(model.grammar(backend).stop_ids),
                domain="killed",
            )
            receipt = await bench.receipt(f"r{number}", domain="killed")
            said = [receipt.prompt_tokens, answer.ids, str(receipt.state_digest)]
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main())
