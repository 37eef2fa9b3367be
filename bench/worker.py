"""The worker against the bare binding: first token cold and warm, and decode in groups.

    python -m bench.worker [--history N] [--blocks [N …]] [--turn N] [--rounds N] [--repeats N]
                           [--json PATH] [--tiny]

For a history of `--history` tokens in blocks of each of `--blocks`: the time to the first token of
a cold prompt, and of a warm turn of `--turn` new tokens after its answer was settled, through the
worker (queue, schedule, chains, exports, sampler, events) and on the back end alone, which feeds
the same pieces in the same process. `export` is one page. CPU seconds are the process's: on a busy
machine they say more than the wall. Then decoding, 1 and 3 answers at once under the exact profile
and 8 under the throughput profile: see `bench.worker_decode`. `--tiny` takes the tests' model.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from actors.worker.backends.llama import LlamaBackend
from actors.worker.schedule import advances
from bench.report import Cell, header, table, write_json
from bench.worker_decode import decode_rates
from profiles.profile import RuntimeProfile
from protocol.ids import ProfileId
from protocol.messages.assembler import Segment
from protocol.messages.worker import Generate
from protocol.record import object_id
from protocol.tokens import pack
from tests.exact_models import MODELS
from tests.worker_rooms import Bench, asked, call_from, opened, segment

WORDS = "the raven flew over every land and told the king what it saw there in the evening "
OPENER_TOKENS = 4
Row = dict[str, Cell]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="the worker against the bare binding")
    parser.add_argument("--history", type=int, default=4096, help="tokens of history")
    parser.add_argument("--blocks", type=int, nargs="*", default=(40, 100, 300))
    parser.add_argument("--turn", type=int, default=24, help="new tokens of a warm turn")
    parser.add_argument("--rounds", type=int, default=24, help="tokens of each answer, decoding")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of runs, decoding")
    parser.add_argument("--json", metavar="PATH", help="write the figures there as well")
    parser.add_argument("--tiny", action="store_true", help="the tests' model in place of ours")
    options = parser.parse_args(arguments)
    tables = asyncio.run(_measure(options))
    print("# Worker\n")
    print(header(), "\n")
    for rows in tables:
        print(table(rows, list(dict.fromkeys(name for row in rows for name in row))), "\n")
    if options.json:
        write_json(options.json, "worker", [row for rows in tables for row in rows])


async def _measure(options: argparse.Namespace) -> list[list[Row]]:
    model = MODELS["tiny" if options.tiny else "real"]
    first: list[Row] = []
    decoding: list[Row] = []
    async with _opened(model.open(), model.profile()) as bench:
        for size in options.blocks:
            first += await _first_tokens(bench, size, options, model.chunk_tokens)
        first.append(_export(bench))
        for answers in (1, 3):
            decoding.append(await _decode(bench, answers, options))
    wide = model.throughput_profile()
    async with _opened(model.open(wide), wide) as bench:
        decoding.append(await _decode(bench, wide.group_max, options))
    return [first, decoding]


def _opened(backend: LlamaBackend, profile: RuntimeProfile) -> AbstractAsyncContextManager[Bench]:
    found = object_id(profile)
    assert isinstance(found, ProfileId)
    return opened(backend, profile=found, chunk_tokens=profile.chunk_tokens)


async def _decode(bench: Bench, answers: int, options: argparse.Namespace) -> Row:
    ids = _content(bench, 400)
    rates = await decode_rates(bench, ids, answers, rounds=options.rounds, repeats=options.repeats)
    return rates.row(f"decode, {answers} at once, {bench.backend.profile.name}")


async def _first_tokens(
    bench: Bench, size: int, options: argparse.Namespace, chunk_tokens: int
) -> list[Row]:
    """Cold and warm, through the worker and bare."""
    ids = _content(bench, options.history + 4 * size)
    history = _blocks(ids, size, options.history)
    opener = pack(ids[:OPENER_TOKENS])
    domain = f"block{size}"
    cold = _request(history, opener, f"cold{size}", tokens_max=1)
    cold_times = await _first_token(bench, cold, domain)
    receipt = await bench.receipt(cold.response, domain=domain)
    answer = segment("model", ids[:OPENER_TOKENS], ids[50 : 50 + size])
    await bench.settle([*history, answer], domain=domain)
    turn = segment("user", (), ids[: options.turn - OPENER_TOKENS], name=7)
    warm = _request([*history, answer, turn], opener, f"warm{size}", tokens_max=1)
    warm_times = await _first_token(bench, warm, domain)
    warm_receipt = await bench.receipt(warm.response, domain=domain)
    await bench.quiet()
    bare_cold = _bare(bench, cold, 0, chunk_tokens)
    bare_warm = _bare(bench, warm, warm_receipt.reused_tokens, chunk_tokens)
    # The table does not know what was fed behind its back.
    bench.room._engine._seats.clear_all()
    return [
        _row(f"cold, blocks of {size}", receipt.prefilled_tokens, cold_times, bare_cold),
        {
            **_row(f"warm, blocks of {size}", warm_receipt.prefilled_tokens, warm_times, bare_warm),
            "cold/warm": cold_times[1] / warm_times[1],
        },
    ]


def _row(what: str, tokens: int, worker: tuple[float, float], bare: tuple[float, float]) -> Row:
    return {
        "what": what,
        "tokens": tokens,
        "worker s": worker[0],
        "worker cpu s": worker[1],
        "bare s": bare[0],
        "bare cpu s": bare[1],
        "tokens/cpu s": tokens / worker[1],
        "worker/bare cpu": worker[1] / bare[1],
    }


async def _first_token(bench: Bench, ask: Generate, domain: str) -> tuple[float, float]:
    """Seconds of wall and of CPU until the first delta; the answer is read to its end."""
    begun, cpu = time.perf_counter(), time.process_time()
    found: tuple[float, float] | None = None
    async for item in bench.room.on_generate(call_from(domain), ask):
        if item.kind == "delta" and found is None:
            found = time.perf_counter() - begun, time.process_time() - cpu
    assert found is not None
    return found


def _bare(bench: Bench, ask: Generate, reused: int, chunk_tokens: int) -> tuple[float, float]:
    """The same pieces on stream 0, those before `reused` not counted."""
    backend = bench.backend
    pieces = advances(ask.segments, ask.opener, chunk_tokens=chunk_tokens)
    if reused == 0:
        backend.truncate(0, 0)
    kept = [piece for piece in pieces if piece.stop <= backend.length(0)]
    backend.truncate(0, kept[-1].stop if kept else 0)
    for piece in pieces[len(kept) :]:
        if piece.stop <= reused:
            backend.advance(0, piece.ids, logits=False)
    begun, cpu = time.perf_counter(), time.process_time()
    for piece in pieces:
        if piece.stop > reused:
            backend.advance(0, piece.ids, logits=piece is pieces[-1])
    return time.perf_counter() - begun, time.process_time() - cpu


def _export(bench: Bench) -> Row:
    """One page of 64 tokens behind 2,000."""
    backend = bench.backend
    ids = _content(bench, 256)
    backend.truncate(0, 0)
    for _ in range(min(2_000, backend.context_tokens - 64) // 64):
        backend.advance(0, ids[:64], logits=False)
    stop = backend.length(0)
    begun, cpu = time.perf_counter(), time.process_time()
    for _ in range(8):
        backend.export(0, stop - 64, stop)
    wall, used = time.perf_counter() - begun, time.process_time() - cpu
    backend.truncate(0, 0)
    return {"what": "export of a page", "tokens": 64, "bare s": wall / 8, "bare cpu s": used / 8}


def _content(bench: Bench, count: int) -> tuple[int, ...]:
    ids = bench.backend.tokenizer.encode(WORDS * (count // 10 + 1))
    return tuple(ids[:count])


def _blocks(ids: tuple[int, ...], size: int, tokens: int) -> list[Segment]:
    """Blocks of `size` tokens by turns of a user and a model, `tokens` in all."""
    found: list[Segment] = []
    for number in range(max(1, tokens // size)):
        role, head = ("user", ()) if number % 2 == 0 else ("model", ids[:OPENER_TOKENS])
        content = ids[number : number + size - len(head)]
        found.append(segment(role, head, content, name=number))
    return found if len(found) % 2 else found[:-1]


def _request(segments: list[Segment], opener: bytes, response: str, **changes: Any) -> Generate:
    return asked(segments, opener=opener, response=response, stop_ids=[], **changes)


if __name__ == "__main__":
    main()
