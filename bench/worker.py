"""The worker against the bare binding: first token cold and warm, and decode in groups.

    python -m bench.worker [--history N] [--blocks [N …]] [--turn N] [--gap S] [--rounds N]
                           [--repeats N] [--conversations N] [--json PATH] [--tiny]

For a history of `--history` tokens in blocks of each of `--blocks`: the time to the first token of
a cold prompt, at once and after `--gap` idle seconds, and of warm turns of `--turn` new tokens:
after the answer before was settled, at once after an answer that was not (it is fed with the turn),
and settled and after the gap; through the worker (queue, schedule, chains, exports, sampler,
events) and on the back end alone, which feeds the same pieces in the same process, after the same
gap. Each row holds the medians over `--conversations`, a ratio's being of each pair, beside the
worst; their cold prompts are in turns at once and after the gap. `export` is one page.
CPU seconds are the process's: on a busy machine they say more than the wall. Then decoding, 1 and 3
answers at once under the exact profile and 8 under the throughput profile: see
`bench.worker_decode`; and what a warm turn writes to disk, in a worker of its own: see
`bench.worker_disk`. `--tiny` takes the tests' model.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from actors.worker.backend import Backend
from actors.worker.backends.llama import LlamaBackend
from actors.worker.schedule import advances
from actors.worker.tiers import Tiers
from bench.report import Cell, header, table, write_json
from bench.worker_decode import decode_rates
from bench.worker_disk import written_by_turns
from profiles.profile import RuntimeProfile
from protocol.ids import ProfileId
from protocol.messages.assembler import Segment
from protocol.messages.worker import Generate
from protocol.record import object_id
from protocol.tokens import pack
from tests.exact_models import MODELS, ExactModel
from tests.worker_rooms import Bench, asked, call_from, opened, segment

WORDS = "the raven flew over every land and told the king what it saw there in the evening "
OPENER_TOKENS = 4
COLD, COLD_AFTER_A_GAP = "cold", "cold, after a gap"
WARM, AT_ONCE, AFTER_A_GAP = "warm", "warm, not settled", "warm, after a gap"
_ROWS = (COLD, COLD_AFTER_A_GAP, WARM, AT_ONCE, AFTER_A_GAP)
Row = dict[str, Cell]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="the worker against the bare binding")
    parser.add_argument("--history", type=int, default=4096, help="tokens of history")
    parser.add_argument("--blocks", type=int, nargs="*", default=(40, 100, 300))
    parser.add_argument("--turn", type=int, default=24, help="new tokens of a warm turn")
    parser.add_argument("--gap", type=float, default=2.0, help="idle seconds before a turn")
    parser.add_argument("--rounds", type=int, default=24, help="tokens of each answer, decoding")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of runs, decoding")
    parser.add_argument("--conversations", type=int, default=4, help="samples of each warm turn")
    parser.add_argument("--json", metavar="PATH", help="write the figures there as well")
    parser.add_argument("--tiny", action="store_true", help="the tests' model in place of ours")
    options = parser.parse_args(arguments)
    tables = asyncio.run(_measure(options))
    print("# Worker\n")
    print(header(), "\n")
    for rows in filter(None, tables):
        print(table(rows, list(dict.fromkeys(name for row in rows for name in row))), "\n")
    if options.json:
        write_json(options.json, "worker", [row for rows in tables for row in rows])


async def _measure(options: argparse.Namespace) -> list[list[Row]]:
    model = MODELS["tiny" if options.tiny else "real"]
    first: list[Row] = []
    decoding: list[Row] = []
    async with _opened(model.open(), model.profile()) as bench:
        for size in options.blocks:
            turns: dict[str, list[Pair]] = {}
            for number in range(options.conversations):
                for turn in await _first_tokens(bench, size, number, options, model.chunk_tokens):
                    turns.setdefault(turn.what, []).append(turn)
            found = [what for what in _ROWS if what in turns]
            first += [_row(f"{what}, blocks of {size}", turns[what]) for what in found]
        first.append(_export(bench))
        for answers in (1, 3):
            decoding.append(await _decode(bench, answers, options))
    wide = model.throughput_profile()
    async with _opened(model.open(wide), wide) as bench:
        decoding.append(await _decode(bench, wide.group_max, options))
    # Blocks of the shortest: the fewest rows to a page file.
    disk = [await _disk(model, size, options) for size in sorted(options.blocks)[:1]]
    return [first, decoding, disk]


def _opened(
    backend: LlamaBackend, profile: RuntimeProfile, tiers: Tiers | None = None
) -> AbstractAsyncContextManager[Bench]:
    found = object_id(profile)
    assert isinstance(found, ProfileId)
    return opened(backend, profile=found, chunk_tokens=profile.chunk_tokens, tiers=tiers)


async def _disk(model: ExactModel, size: int, options: argparse.Namespace) -> Row:
    """Turns of an answer as long as a block, and a question."""
    backend = model.open()
    ids = _content(backend, options.history + 4 * size)
    return await written_by_turns(
        backend,
        lambda tiers: _opened(backend, model.profile(), tiers),
        _blocks(ids, size, options.history),
        ids,
        answer=size,
        turn=options.turn,
        turns=2 * options.conversations,
    )


async def _decode(bench: Bench, answers: int, options: argparse.Namespace) -> Row:
    ids = _content(bench.backend, 400)
    rates = await decode_rates(bench, ids, answers, rounds=options.rounds, repeats=options.repeats)
    return rates.row(f"decode, {answers} at once, {bench.backend.profile.name}")


async def _first_tokens(
    bench: Bench, size: int, number: int, options: argparse.Namespace, chunk_tokens: int
) -> list[Pair]:
    """Cold, and three warm turns of conversation `number`, through the worker and then bare."""
    ids = _content(bench.backend, options.history + 4 * size)
    history = _blocks(ids, size, options.history)
    opener = pack(ids[:OPENER_TOKENS])
    domain = f"block{size}-{number}"
    first = _request(history, opener, f"cold {domain}", tokens_max=1)
    turns = [_Turn(COLD_AFTER_A_GAP, first, options.gap) if number % 2 else _Turn(COLD, first, 0.0)]
    await turns[0].run(bench, domain)
    for at, what in enumerate((WARM, AT_ONCE, AFTER_A_GAP)):
        said = ids[50 + at : 50 + at + size]
        history = [*history, segment("model", ids[:OPENER_TOKENS], said, name=100 + at)]
        if what != AT_ONCE:
            await bench.settle(history, domain=domain)
        new = ids[at : at + options.turn - OPENER_TOKENS]
        history = [*history, segment("user", (), new, name=200 + at)]
        ask = _request(history, opener, f"{what} {domain}", tokens_max=1)
        turns.append(_Turn(what, ask, options.gap if what == AFTER_A_GAP else 0.0))
        await turns[-1].run(bench, domain)
    await bench.quiet()
    bare = [turn.bare(bench, chunk_tokens) for turn in turns]
    # The table does not know what was fed behind its back.
    bench.room._engine._seats.clear_all()
    cold = turns[0].times[1]
    return [
        Pair(turn.what, turn.prefilled, turn.times, alone, cold / turn.times[1])
        for turn, alone in zip(turns, bare, strict=True)
    ]


class Pair(NamedTuple):
    """One request through the worker and the same pieces bare: seconds of wall and of CPU each,
    and how many times as much CPU its conversation's cold prompt took."""

    what: str
    tokens: int
    worker: tuple[float, float]
    bare: tuple[float, float]
    cold: float


@dataclass
class _Turn:
    """One request, after `gap` idle seconds; `times` and `reused` are what it came to."""

    what: str
    ask: Generate
    gap: float
    times: tuple[float, float] = (0.0, 0.0)
    reused: int = 0
    prefilled: int = 0

    async def run(self, bench: Bench, domain: str) -> None:
        """Through the worker."""
        await asyncio.sleep(self.gap)
        self.times = await _first_token(bench, self.ask, domain)
        receipt = await bench.receipt(self.ask.response, domain=domain)
        self.reused, self.prefilled = receipt.reused_tokens, receipt.prefilled_tokens

    def bare(self, bench: Bench, chunk_tokens: int) -> tuple[float, float]:
        """Seconds of wall and of CPU for the same pieces on stream 0; what the worker found there
        is fed before the gap."""
        backend = bench.backend
        pieces = advances(self.ask.segments, self.ask.opener, chunk_tokens=chunk_tokens)
        there = min(backend.length(0), self.reused)
        kept = [piece for piece in pieces if piece.stop <= there]
        backend.truncate(0, kept[-1].stop if kept else 0)
        for piece in pieces[len(kept) :]:
            if piece.stop <= self.reused:
                backend.advance(0, piece.ids, logits=False)
        time.sleep(self.gap)
        begun, cpu = time.perf_counter(), time.process_time()
        for piece in pieces:
            if piece.stop > self.reused:
                backend.advance(0, piece.ids, logits=piece is pieces[-1])
        return time.perf_counter() - begun, time.process_time() - cpu


def _row(what: str, pairs: Sequence[Pair]) -> Row:
    """Medians over `pairs` of one kind; a ratio is of each pair, before its median."""
    cpu = statistics.median(pair.worker[1] for pair in pairs)
    wall = [pair.worker[0] / pair.bare[0] for pair in pairs]
    return {
        "what": what,
        "tokens": pairs[0].tokens,
        "worker s": statistics.median(pair.worker[0] for pair in pairs),
        "worker cpu s": cpu,
        "bare s": statistics.median(pair.bare[0] for pair in pairs),
        "bare cpu s": statistics.median(pair.bare[1] for pair in pairs),
        "tokens/cpu s": pairs[0].tokens / cpu,
        "worker/bare": statistics.median(wall),
        "worst": max(wall),
        "worker/bare cpu": statistics.median(pair.worker[1] / pair.bare[1] for pair in pairs),
        "cold/warm": statistics.median(pair.cold for pair in pairs),
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


def _export(bench: Bench) -> Row:
    """One page of 64 tokens behind 2,000."""
    backend = bench.backend
    ids = _content(backend, 256)
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


def _content(backend: Backend, count: int) -> tuple[int, ...]:
    ids = backend.tokenizer.encode(WORDS * (count // 10 + 1))
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
