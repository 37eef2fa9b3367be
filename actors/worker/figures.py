"""What the operator may see of a worker as it runs."""

from __future__ import annotations

from actors.worker.backend import Backend
from actors.worker.engine import Engine
from actors.worker.tiers import Tiers
from protocol.ids import ProfileId
from protocol.messages.worker import Stats


def figures(
    profile: ProfileId, backend: Backend, engine: Engine, tiers: Tiers | None, process: int
) -> Stats:
    """The counters of now; those of the engine are as of its last step."""
    memory = backend.memory
    return Stats(
        profile=profile,
        streams=backend.streams,
        streams_busy=engine.streams_busy,
        resident_tokens=engine.resident_tokens,
        waiting=engine.waiting,
        prefilled_tokens=engine.prefilled_tokens,
        reused_tokens=engine.reused_tokens,
        decoded_tokens=engine.decoded_tokens,
        jobs_failed=engine.jobs_failed,
        stream_kv_bytes=[tokens * memory.kv_token for tokens in engine.stream_tokens],
        kv_bytes=memory.kv,
        device_bytes=memory.device,
        tiers={} if tiers is None else tiers.stats(),
        process=process,
    )
