"""Which schedule: an advance for each block, or fixed pages of tokens from position 0.

    python -m bench.schedule [--history N] [--turns N] [--blocks [N …]] [--pages [N …]]
                             [--json PATH] [--tiny]

Both in the real worker, on the same text. A history of `--history` tokens is prefilled cold; then
`--turns` turns follow, each of 24 new tokens and an answer of 40 that is settled before the next.
The block schedule feeds what is new and nothing else. Fixed pages feed the last page again, from
its beginning: a page is a state only when it is full. They are what the same worker does with a
history that is one long block, cut every `--pages` tokens. CPU seconds are the process's.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.report import Cell, header, table, write_json
from protocol.messages.assembler import Segment
from protocol.messages.worker import Generate
from protocol.record import object_id
from protocol.tokens import TokenIds
from tests.exact_models import MODELS
from tests.worker_rooms import Bench, asked, call_from, opened, segment

WORDS = "the raven flew over every land and told the king what it saw there in the evening "
TURN_TOKENS = 24
ANSWER_TOKENS = 40
Row = dict[str, Cell]
Cut = Callable[[TokenIds], list[Segment]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="block schedule against fixed pages")
    parser.add_argument("--history", type=int, default=2048, help="tokens of the cold history")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--blocks", type=int, nargs="*", default=(40, 100, 300))
    parser.add_argument("--pages", type=int, nargs="*", default=(64, 128, 256))
    parser.add_argument("--json", metavar="PATH", help="write the figures there as well")
    parser.add_argument("--tiny", action="store_true", help="the tests' model in place of ours")
    options = parser.parse_args(arguments)
    rows = asyncio.run(_measure(options))
    print("# Schedule\n")
    print(header(), "\n")
    print(table(rows, list(rows[0])))
    if options.json:
        write_json(options.json, "schedule", rows)


async def _measure(options: argparse.Namespace) -> list[Row]:
    model = MODELS["tiny" if options.tiny else "real"]
    rows = [
        await _run(options, f"blocks of {size}", model.chunk_tokens, _blocks_of(size))
        for size in options.blocks
    ]
    return rows + [
        await _run(options, f"pages of {page}", min(page, model.chunk_tokens), _one_block)
        for page in options.pages
    ]


def _blocks_of(size: int) -> Cut:
    def cut(ids: TokenIds) -> list[Segment]:
        return [
            segment("user", (), ids[start : start + size], name=start)
            for start in range(0, len(ids), size)
        ]

    return cut


def _one_block(ids: TokenIds) -> list[Segment]:
    return [segment("user", (), ids, name=len(ids))]


async def _run(options: argparse.Namespace, what: str, chunk_tokens: int, cut: Cut) -> Row:
    """One schedule: cold, then turn by turn. What follows the history is blocks of its own where
    the schedule is of blocks, and more of the one block where it is of pages."""
    model = MODELS["tiny" if options.tiny else "real"]
    limits: dict[str, Any] = {"profile": object_id(model.profile()), "chunk_tokens": chunk_tokens}
    async with opened(model.open(), **limits) as bench:
        tokens = options.history + (options.turns + 1) * (TURN_TOKENS + ANSWER_TOKENS)
        ids = tuple(bench.backend.tokenizer.encode(WORDS * (tokens // 10 + 1))[:tokens])
        tail: list[int] = []
        cold = await _first_token(bench, _request(cut(ids[: options.history]), "cold"))
        turns, fed = list[float](), list[int]()
        for number in range(options.turns):
            tail.append(TURN_TOKENS)
            ask = _request(_segments(cut, ids, options.history, tail), f"turn{number}")
            turns.append(await _first_token(bench, ask))
            fed.append((await bench.receipt(ask.response)).prefilled_tokens)
            tail.append(ANSWER_TOKENS)
            await bench.settle(_segments(cut, ids, options.history, tail))
        return {
            "schedule": what,
            "cold tokens/cpu s": options.history / cold,
            "turn fed tokens": statistics.mean(fed),
            "turn cpu s, mean": statistics.mean(turns),
            "turn cpu s, longest": max(turns),
        }


def _segments(cut: Cut, ids: TokenIds, history: int, tail: Sequence[int]) -> list[Segment]:
    if cut is _one_block:
        return _one_block(ids[: history + sum(tail)])
    found, start = cut(ids[:history]), history
    for length in tail:
        found.append(segment("user", (), ids[start : start + length], name=start))
        start += length
    return found


def _request(segments: list[Segment], response: str) -> Generate:
    return asked(segments, opener=b"", response=response, stop_ids=[], tokens_max=1)


async def _first_token(bench: Bench, ask: Generate) -> float:
    """CPU seconds until the first delta; the answer is read to its end."""
    begun = time.process_time()
    found: float | None = None
    async for item in bench.room.on_generate(call_from("alice"), ask):
        if item.kind == "delta" and found is None:
            found = time.process_time() - begun
    assert found is not None
    return found


if __name__ == "__main__":
    main()
