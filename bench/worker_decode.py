"""Decoding through the worker and on the bare binding, grouped alike, by turns.

The bare peer is what the binding's own user writes for greedy answers: a batch of one token a
stream, `llama_decode`, and the largest logit straight from the library's buffer. The worker does
the same with its queue, checks, deny mask, sampler, text, stops and events. Both start behind
prompts of 64 tokens on the same streams of the same context, one after the other; a pair gives a
ratio, and the median of the pairs' ratios is the figure, so that a busy machine slows both alike.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bench.report import Cell
from protocol.tokens import TokenIds, pack
from tests.worker_rooms import Bench, asked, call_from, segment

PROMPT_TOKENS = 64
OPENER_TOKENS = 4
Row = dict[str, Cell]


class Spent(NamedTuple):
    """Tokens, and the seconds of wall and of CPU that they took."""

    tokens: int
    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Rates:
    """One pair of runs after the other, worker and bare."""

    pairs: Sequence[tuple[Spent, Spent]]

    def row(self, what: str) -> Row:
        """Median rates, and the worker's as a multiple of the bare one: 1 is no loss."""

        def rate(side: int, field: int) -> float:
            return statistics.median(pair[side].tokens / pair[side][field] for pair in self.pairs)

        def ratio(field: int) -> float:
            return statistics.median(
                (worker.tokens / worker[field]) / (bare.tokens / bare[field])
                for worker, bare in self.pairs
            )

        return {
            "what": what,
            "pairs": len(self.pairs),
            "worker tokens/s": rate(0, 1),
            "bare tokens/s": rate(1, 1),
            "worker x bare": ratio(1),
            "worker tokens/cpu s": rate(0, 2),
            "bare tokens/cpu s": rate(1, 2),
            "worker x bare, cpu": ratio(2),
        }


async def decode_rates(
    bench: Bench, ids: TokenIds, answers: int, *, rounds: int, repeats: int
) -> Rates:
    """`answers` at once for at least `rounds` tokens each, `repeats` times; `ids` are content."""
    pairs = []
    for repeat in range(repeats):
        worker = await _worker(bench, ids, answers, rounds, repeat)
        await bench.quiet()
        bare = _bare(bench.backend, ids, answers, rounds)
        # The table does not know what was fed behind its back.
        bench.room._engine._seats.clear_all()
        pairs.append((worker, bare))
    return Rates(pairs)


async def _worker(bench: Bench, ids: TokenIds, answers: int, rounds: int, repeat: int) -> Spent:
    """What is timed begins when every answer has begun and ends when the first one ends."""
    begun, ended = asyncio.Event(), asyncio.Event()
    waiting = set(range(answers))

    async def answer(number: int) -> None:
        content = ids[number : number + PROMPT_TOKENS - OPENER_TOKENS]
        ask = asked(
            [segment("user", (), content, name=number)],
            opener=pack(ids[:OPENER_TOKENS]),
            response=f"decode{answers}-{repeat}-{number}",
            stop_ids=[],
            tokens_max=rounds + 2 * answers,
        )
        async for item in bench.room.on_generate(call_from("decode"), ask):
            if item.kind == "delta":
                waiting.discard(number)
                if not waiting:
                    begun.set()
        ended.set()

    running = [asyncio.ensure_future(answer(number)) for number in range(answers)]
    await begun.wait()
    first = _now(bench)
    await ended.wait()
    last = _now(bench)
    await asyncio.gather(*running)
    return Spent(last[0] - first[0], last[1] - first[1], last[2] - first[2])


def _now(bench: Bench) -> tuple[int, float, float]:
    return bench.room._engine.decoded_tokens, time.perf_counter(), time.process_time()


def _bare(backend: Any, ids: TokenIds, answers: int, rounds: int) -> Spent:
    library, batch = backend._library, backend._batch
    for stream in range(answers):
        backend.truncate(stream, 0)
        backend.advance(stream, ids[stream : stream + PROMPT_TOKENS], logits=False)
    backend._set_threads(batch=False)
    vocabulary = backend.tokenizer.contract.vocabulary_tokens
    chosen = list(ids[:answers])
    begun, cpu = time.perf_counter(), time.process_time()
    for step in range(rounds):
        batch.n_tokens = answers
        for stream in range(answers):
            batch.token[stream], batch.pos[stream] = chosen[stream], PROMPT_TOKENS + step
            batch.n_seq_id[stream], batch.seq_id[stream][0] = 1, stream
            batch.logits[stream] = True
        code = library.llama_decode(backend._context, batch)
        assert code == 0, f"the library failed with code {code}"
        for stream in range(answers):
            row = library.llama_get_logits_ith(backend._context, stream)
            chosen[stream] = int(np.argmax(np.ctypeslib.as_array(row, shape=(vocabulary,))))
    spent = Spent(answers * rounds, time.perf_counter() - begun, time.process_time() - cpu)
    for stream in range(answers):
        library.llama_memory_seq_rm(backend._memory, stream, PROMPT_TOKENS, -1)
    return spent
