"""The rope against a flat list whose identity is the hash of all its ids.

    python -m bench.rope [--full | --sizes N …] [--repeats N] [--json PATH]

For 10^3, 10^4 and 10^5 blocks (10^6 with --full): the median time of an append, of a replace and
an insert in the middle, of a prefix id and of an inclusion proof, made and verified; the nodes
that an edit makes; and the flat list's edit + hash in the same run. The last lines give the
growth exponent of each: about 0 for the rope, about 1 for the list. Both count from ids in memory:
the rope's nodes are read, hashed and checked anew in every operation, as from a store's cache.
The worst case, blocks chosen so that no chunk ever closes by itself, is its own table.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import time
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import TypeVar

from bench.report import Cell, fitted_exponent, header, table, write_json
from protocol.ids import BlockId, NodeId
from protocol.limits import BLOCKS_MAX
from protocol.record import encode_record
from protocol.rope import Edit, Entry, Rope, build, prove_inclusion, verify_inclusion

SIZES = (1_000, 10_000, 100_000)
# As long as a sequence may be, less the block that an edit adds.
SIZE_FULL = BLOCKS_MAX - 1
OPERATIONS = ("append", "replace", "insert", "prefix id", "proof")

Result = TypeVar("Result")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="the rope against a flat list + hash of all")
    parser.add_argument("--full", action="store_true", help="10^6 blocks too")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="blocks, two or more")
    parser.add_argument("--repeats", type=int, default=40, help="edits for each figure")
    parser.add_argument("--json", metavar="PATH", help="write the figures there as well")
    options = parser.parse_args(arguments)
    sizes = (*SIZES, SIZE_FULL) if options.full else tuple(options.sizes)
    rows = [row for size in sizes for row in _measure(size, options.repeats)]
    hostile = [_measure_hostile(size) for size in sizes]
    growth = [_growth(rows, operation) for operation in OPERATIONS]
    print(f"# Rope\n\n{header()}\n- repeats: {options.repeats}, medians; seed 1\n")
    print(table(rows, ["blocks", "operation", "rope us", "list us", "list / rope", "new nodes"]))
    print("\nGrowth exponents (time ~ blocks^p)\n")
    print(table(growth, ["operation", "rope", "list"]))
    print("\nBlocks that never close a chunk: new nodes of one edit\n")
    print(table(hostile, ["blocks", "all nodes", "insert at 1", "replace at 1", "insert us"]))
    if options.json:
        write_json(options.json, "rope", [*rows, *hostile, *growth])


class Flat:
    """The peer: a list of ids, whose identity is one hash over all of them."""

    def __init__(self, entries: list[Entry]) -> None:
        self.digests = [block.digest for block, _ in entries]

    def identity(self, stop: int | None = None) -> bytes:
        return hashlib.sha256(b"".join(self.digests[:stop])).digest()


def _measure(size: int, repeats: int) -> list[dict[str, Cell]]:
    draw = random.Random(1)
    entries = [_entry(draw) for _ in range(size)]
    edit = build(entries)
    rope = Rope(edit.root, edit.nodes.__getitem__)
    flat = Flat(entries)
    middles = [draw.randrange(1, size) for _ in range(repeats)]
    rows: list[dict[str, Cell]] = []
    for operation in OPERATIONS:
        rope_seconds, list_seconds, nodes = [], [], []
        for middle in middles:
            new = _entry(draw)
            seconds, answer = _timed(_rope_operation(operation, rope, middle, new))
            rope_seconds.append(seconds)
            if isinstance(answer, Edit):
                nodes.append(len(answer.nodes))
            list_seconds.append(_timed(_list_operation(operation, flat, middle, new))[0])
        rope_us, list_us = median(rope_seconds) * 1e6, median(list_seconds) * 1e6
        rows.append(
            {
                "blocks": size,
                "operation": operation,
                "rope us": rope_us,
                "list us": list_us,
                "list / rope": list_us / rope_us,
                "new nodes": fmean(nodes) if nodes else None,
            }
        )
    return rows


def _rope_operation(operation: str, rope: Rope, at: int, new: Entry) -> Callable[[], object]:
    def proof() -> int:
        made = prove_inclusion(rope, at)
        verify_inclusion(rope.root, made)
        return len(encode_record(made))

    # A rope is opened in each: its root is read, hashed and checked too.
    operations: dict[str, Callable[[], object]] = {
        "append": lambda: Rope(rope.root, rope.source).append([new]),
        "replace": lambda: Rope(rope.root, rope.source).splice(at, at + 1, [new]),
        "insert": lambda: Rope(rope.root, rope.source).splice(at, at, [new]),
        "prefix id": lambda: Rope(rope.root, rope.source).prefix_id(at),
        "proof": proof,
    }
    return operations[operation]


def _list_operation(operation: str, flat: Flat, at: int, new: Entry) -> Callable[[], object]:
    """The same on the list. Its proof is all ids: to verify it is to hash them."""

    def edit(start: int, stop: int) -> Callable[[], bytes]:
        def run() -> bytes:
            kept = flat.digests[start:stop]
            flat.digests[start:stop] = [new.block.digest]
            identity = flat.identity()
            flat.digests[start : start + 1] = kept
            return identity

        return run

    size = len(flat.digests)
    operations: dict[str, Callable[[], object]] = {
        "append": edit(size, size),
        "replace": edit(at, at + 1),
        "insert": edit(at, at),
        "prefix id": lambda: flat.identity(at),
        "proof": flat.identity,
    }
    return operations[operation]


def _measure_hostile(size: int) -> dict[str, Cell]:
    entries = [
        Entry(BlockId(b"\xff" * 4 + number.to_bytes(28, "big")), 700) for number in range(size + 1)
    ]
    new = entries.pop()
    edit = build(entries)
    nodes: dict[NodeId, bytes] = edit.nodes
    rope = Rope(edit.root, nodes.__getitem__)
    seconds, inserted = _timed(lambda: rope.splice(1, 1, [new]))
    return {
        "blocks": size,
        "all nodes": len(nodes),
        "insert at 1": len(inserted.nodes),
        "replace at 1": len(rope.splice(1, 2, [new]).nodes),
        "insert us": seconds * 1e6,
    }


def _growth(rows: list[dict[str, Cell]], operation: str) -> dict[str, Cell]:
    chosen = [row for row in rows if row["operation"] == operation]
    sizes = [_number(row["blocks"]) for row in chosen]
    return {
        "operation": operation,
        "rope": fitted_exponent(sizes, [_number(row["rope us"]) for row in chosen]),
        "list": fitted_exponent(sizes, [_number(row["list us"]) for row in chosen]),
    }


def _number(cell: Cell) -> float:
    assert isinstance(cell, int | float)
    return float(cell)


def _timed(run: Callable[[], Result]) -> tuple[float, Result]:
    begun = time.perf_counter()
    result = run()
    return time.perf_counter() - begun, result


def _entry(draw: random.Random) -> Entry:
    return Entry(BlockId(draw.randbytes(32)), draw.randrange(4000))


if __name__ == "__main__":
    main()
