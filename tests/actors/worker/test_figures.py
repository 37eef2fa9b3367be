"""What the operator sees of a worker."""

from __future__ import annotations

from protocol.messages import Empty
from tests.worker_rooms import CHUNK, PROFILE, Talk, call_from, opened, text_ids


async def test_figures_are_those_of_the_engine() -> None:
    async with opened() as bench:
        stats = await bench.room.on_stats(call_from(None), Empty())
        assert (stats.profile, stats.streams, stats.prefilled_tokens) == (PROFILE, 4, 0)
        await bench.answer(Talk().add("user", text_ids("x" * CHUNK)).segments)
        await bench.quiet()
        stats = await bench.room.on_stats(call_from(None), Empty())
        assert stats.prefilled_tokens > CHUNK
        assert (stats.decoded_tokens > 0, stats.jobs_failed, stats.waiting) == (True, 0, 0)
        assert stats.tiers == {}
