"""Tables and text for people. What comes from outside is text here, never markup or control."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

# A pipe has no width. Wide enough that an id (68 characters) stands on one line beside others.
_PIPE_COLUMNS = 200
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "yes": "green", "no": "yellow"}


def console() -> Console:
    """Standard output, as it is now."""
    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    return Console(file=sys.stdout, width=width, highlight=False, emoji=False)


def printable(text: str) -> str:
    """`text` with control characters other than line end and tab replaced: a stored prompt or an
    answer must not drive the terminal that shows it."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else "\ufffd"
        for character in text
    )


def cell(value: object) -> Text:
    """One value as a table shows it."""
    if isinstance(value, bool):
        value = "yes" if value else "no"
    text = "-" if value is None else printable(str(value))
    return Text(text, style=_STYLES.get(text, ""), overflow="fold")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> Table:
    """A plain table. Columns whose values are all numbers stand to the right."""
    rows = [list(row) for row in rows]
    made = Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    for index, name in enumerate(columns):
        numbers = bool(rows) and all(
            isinstance(row[index], int | float) and not isinstance(row[index], bool) for row in rows
        )
        made.add_column(name, justify="right" if numbers else "left", header_style="bold")
    for row in rows:
        made.add_row(*map(cell, row))
    return made


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one pair a line."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold")
    made.add_column()
    for name, value in pairs:
        made.add_row(Text(name), cell(value))
    return made


def size(count_bytes: int) -> str:
    """Bytes for people, in decimal units."""
    value, unit = float(count_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"
