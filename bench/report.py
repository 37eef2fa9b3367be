"""What every bench prints: the machine, a table, a fitted growth exponent; and the same as JSON."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

Cell = str | int | float | None


def facts() -> dict[str, str]:
    """The machine and the moment: Python, processor, cores that this process may use, memory."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _memory(),
    }


def header() -> str:
    """`facts` as Markdown list items, one a line."""
    return "\n".join(f"- {name}: {value}" for name, value in facts().items())


def table(rows: Sequence[Mapping[str, Cell]], columns: Sequence[str]) -> str:
    """`rows` as a Markdown table of `columns`, in order; a cell that a row lacks is a dash.

    Numbers stand to the right. A float is shown with four significant digits.
    """
    shown = [[_cell(row.get(column)) for column in columns] for row in rows]
    numeric = [
        all(isinstance(row.get(column), int | float | None) for row in rows) for column in columns
    ]
    widths = [
        max(3, len(column), *(len(line[at]) for line in shown)) if shown else max(3, len(column))
        for at, column in enumerate(columns)
    ]
    rule = [
        "-" * (width - 1) + ":" if right else "-" * width
        for width, right in zip(widths, numeric, strict=True)
    ]
    lines = [list(columns), rule, *shown]
    return "\n".join(_line(line, widths, numeric) for line in lines)


def fitted_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The `p` of the best fit `seconds ≈ c · sizes^p`: the slope through the logarithms.

    0 is constant, 1 linear; a logarithm shows as a small number that falls as sizes grow.
    Raises ValueError for fewer than two different sizes, or a number that is not above 0.
    """
    xs, ys = [math.log(size) for size in sizes], [math.log(second) for second in seconds]
    if len(set(xs)) < 2:
        raise ValueError(f"a growth exponent needs two different sizes, not {list(sizes)}")
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    rise = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return rise / sum((x - x_mean) ** 2 for x in xs)


def write_json(
    path: str | Path, name: str, rows: Sequence[Mapping[str, Cell]], **more: Cell
) -> None:
    """Writes {name, machine, rows, …more} to `path`, for programs that compare runs."""
    document = {"name": name, "machine": facts(), "rows": [dict(row) for row in rows], **more}
    Path(path).write_text(
        json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def _cell(value: Cell) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    except (ValueError, OSError):
        return "unknown"
