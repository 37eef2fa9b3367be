"""The tables of `bench.peers`: what its samples come to."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from bench.peer_sides import Sample
from bench.report import Cell, fitted_exponent

Row = dict[str, Cell]
Samples = Mapping[str, Mapping[str, list[Sample]]]
"""By condition, then by side."""
Rates = Mapping[int, Mapping[str, list[tuple[float, float | None]]]]
"""Tokens a second of wall and of CPU, by streams, then by side."""


def condition_rows(samples: Samples) -> list[Row]:
    """One row for each condition and peer."""
    rows: list[Row] = []
    for condition, by_side in samples.items():
        ours = by_side.get("huginn", [])
        for name, theirs in by_side.items():
            if name == "huginn" or not ours:
                continue
            mine, others = _medians(ours), _medians(theirs)
            rows.append(
                {
                    "condition": condition,
                    "peer": name,
                    "n": f"{len(ours)}/{len(theirs)}",
                    "huginn ms": mine[0],
                    "peer ms": others[0],
                    "peer/huginn": others[0] / mine[0],
                    "huginn cpu ms": mine[1],
                    "peer cpu ms": others[1],
                    "cpu peer/huginn": others[1] / mine[1] if mine[1] else None,
                    "huginn reused": _reuse(ours),
                }
            )
    return rows


def _medians(samples: Sequence[Sample]) -> tuple[float, float]:
    return (
        statistics.median(each.wall_ms for each in samples),
        statistics.median(each.cpu_ms for each in samples),
    )


def _reuse(samples: Sequence[Sample]) -> str:
    """The middle sample's receipt: tokens reused of the prompt's, by tier."""
    middle = sorted(samples, key=lambda each: each.wall_ms)[len(samples) // 2]
    tiers = ", ".join(f"{name} {count}" for name, count in middle.tiers.items())
    return f"{middle.reused_tokens} of {middle.prompt_tokens}" + (f" ({tiers})" if tiers else "")


def rate_rows(rates: Rates) -> list[Row]:
    """One row for each number of streams."""
    rows: list[Row] = []
    for streams, by_side in rates.items():
        row: Row = {"decode, streams": streams}
        for at, of in enumerate(("s", "cpu s")):
            medians = [
                statistics.median(rate[at] or 0.0 for rate in by_side.get(name, [(0.0, None)]))
                for name in ("huginn", "server")
            ]
            row |= {f"huginn tokens/{of}": medians[0], f"server tokens/{of}": medians[1]}
            row[f"huginn/server, {of}"] = medians[0] / medians[1] if medians[1] else None
        rows.append(row)
    return rows


def growth_rows(samples: Samples, smaller: Sequence[int], whole: int) -> list[Row]:
    """Each size's medians, then the fitted exponents over the prompts' real lengths."""
    names = {"cold of": "cold", "append to": "append, at once"}
    sizes = [
        size
        for size in sorted({*smaller, whole})
        if size == whole or len(samples.get(f"append to {size}", ())) == 2
    ]
    if len(sizes) < 2:
        return []
    columns: dict[str, list[float]] = {"tokens": []}
    for size in sizes:
        for kind, named in names.items():
            by_side = samples[named if size == whole else f"{kind} {size}"]
            for side in ("huginn", "server"):
                name = f"{side} {kind.split()[0]}"
                for of, value in zip(("ms", "cpu ms"), _medians(by_side[side]), strict=True):
                    columns.setdefault(f"{name} {of}", []).append(value)
            if kind == "cold of":
                columns["tokens"].append(by_side["huginn"][0].prompt_tokens)
    rows: list[Row] = [
        {name: values[at] for name, values in columns.items()} for at in range(len(sizes))
    ]
    fitted: Row = {
        # Less than a tick of CPU time reads as none, and has no logarithm.
        name: fitted_exponent(columns["tokens"], values) if min(values) > 0 else None
        for name, values in columns.items()
        if name != "tokens"
    }
    return [{"row": "time", **row} for row in rows] + [{"row": "exponent", **fitted}]
