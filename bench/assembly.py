"""Assembling one more turn: remembered blocks against template and tokenizer over the history.

    python -m bench.assembly [--sizes N …] [--repeats N] [--json PATH] [--model GGUF]

For histories of 10^3, 10^4 and 10^5 tokens: the median time from "the messages, one turn longer"
to the flat list of token ids of the whole prompt. Ours tokenizes the new blocks and folds over the
remembered ones; the peer renders the model's own chat template (jinja2, compiled) and tokenizes
its text with the `tokenizers` library, as servers do on every turn. `cold ms` is ours with nothing
remembered. Both sides' ids are compared at every size, and have to be the same.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TypeVar

from actors.assembler.cache import BlockTokenCache
from actors.worker.backends.llama_tokenizer import LlamaTokenizer
from bench.report import Cell, fitted_exponent, header, table, write_json
from protocol.assembly import BudgetPolicy
from protocol.blocks import BlockType, ContextBlock, Role, text_block
from protocol.budget import within_budget
from protocol.grammar import Grammar
from protocol.grammars import grammar
from protocol.ids import BlockId
from protocol.record import encode_record
from protocol.tokens import TokenIds
from tests.template_oracle import Message, TemplateOracle

SIZES = (1_000, 10_000, 100_000)
WORDS = ("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "on", "are", "by")
WORDS_PER_MESSAGE = 100
MODEL = Path.home() / ".local/share/huginn/models/gemma-3-270m-q4_k_m.gguf"
UNLIMITED = BudgetPolicy(v=1, kind="budget", policy="refuse", tokens_max=10**9, keep_turns=1)

Pair = tuple[ContextBlock, str]
Result = TypeVar("Result")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="one more turn against the whole history")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="tokens of history")
    parser.add_argument("--repeats", type=int, default=15, help="turns for each figure")
    parser.add_argument("--json", metavar="PATH", help="write the figures there as well")
    parser.add_argument("--model", metavar="GGUF", type=Path, default=MODEL, help="its vocabulary")
    options = parser.parse_args(arguments)
    built = grammar("gemma3-it", LlamaTokenizer(options.model))
    oracle = TemplateOracle()
    rows = [_measure(size, options.repeats, built, oracle) for size in options.sizes]
    sizes = [_number(row["tokens"]) for row in rows]
    growth: dict[str, Cell] = {
        name: fitted_exponent(sizes, [_number(row[f"{name} ms"]) for row in rows])
        for name in ("ours", "cold", "peer")
    }
    print(f"# Assembly\n\n{header()}\n- repeats: {options.repeats}, medians; seed 1\n")
    columns = ["tokens", "blocks", "ours ms", "cold ms", "peer ms", "peer / ours", "peer / cold"]
    print(table(rows, columns))
    print("\nGrowth exponents (time ~ tokens^p)\n")
    print(table([growth], ["ours", "cold", "peer"]))
    if options.json:
        write_json(options.json, "assembly", [*rows, growth])


class Conversation:
    """A growing conversation in both forms: messages for the peer, blocks with ids for us."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.messages: list[Message] = []
        self.pairs: list[Pair] = []
        self.blocks: list[ContextBlock] = []
        self.ids: list[BlockId] = []
        self.say()

    def say(self) -> None:
        """One more message. Both forms are made here, outside of what is measured."""
        asks = len(self.messages) % 2 == 0
        text = " ".join(self._random.choices(WORDS, k=WORDS_PER_MESSAGE))
        self.messages.append({"role": "user" if asks else "assistant", "content": text})
        role, kind = (
            (Role.USER, BlockType.USER_TURN) if asks else (Role.MODEL, BlockType.MODEL_TURN)
        )
        block = text_block(role, kind, text)
        self.pairs.append((block, text))
        self.blocks.append(block)
        self.ids.append(BlockId.of(encode_record(block)))

    def turn(self) -> None:
        """An answer and the next question."""
        self.say()
        self.say()


def _measure(size: int, repeats: int, built: Grammar, oracle: TemplateOracle) -> dict[str, Cell]:
    conversation, cache = Conversation(seed=1), BlockTokenCache(items_max=100_000)
    while len(_prompt(built, conversation, cache)) < size:
        conversation.turn()
    times: dict[str, list[float]] = {"ours": [], "cold": [], "peer": []}
    for _ in range(repeats):
        conversation.turn()
        ours, ids = _timed(lambda: _prompt(built, conversation, cache))
        cold, again = _timed(lambda: _prompt(built, conversation, BlockTokenCache(100_000)))
        peer, theirs = _timed(lambda: oracle.ids(conversation.messages))
        if not ids == again == theirs:
            raise RuntimeError(f"other ids than the template's at {len(ids)} tokens")
        for name, seconds in (("ours", ours), ("cold", cold), ("peer", peer)):
            times[name].append(seconds * 1e3)
    medians = {name: median(found) for name, found in times.items()}
    return {
        "tokens": len(ids),
        "blocks": len(conversation.ids),
        **{f"{name} ms": found for name, found in medians.items()},
        "peer / ours": medians["peer"] / medians["ours"],
        "peer / cold": medians["peer"] / medians["cold"],
    }


def _prompt(built: Grammar, conversation: Conversation, cache: BlockTokenCache) -> TokenIds:
    """Every id of the prompt, opener and all, as one tuple: what the peer gives."""
    step = cache.stepper(built, conversation.ids, conversation.pairs.__getitem__)
    budgeted = within_budget(UNLIMITED, built, conversation.blocks, step)
    ids = chain.from_iterable(chain(each.head, each.content) for each in budgeted.stream)
    return (*ids, *budgeted.opener)


def _number(cell: Cell) -> float:
    assert isinstance(cell, int | float)
    return float(cell)


def _timed(run: Callable[[], Result]) -> tuple[float, Result]:
    begun = time.perf_counter()
    result = run()
    return time.perf_counter() - begun, result


if __name__ == "__main__":
    main()
