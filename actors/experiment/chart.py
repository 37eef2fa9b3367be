"""A bar for each condition: time to first token. SVG by hand, readable as a file of its own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from actors.experiment.measure import Row

_WIDTH: Final = 900
_LABELS: Final = 200
_VALUES: Final = 240
_TOP: Final = 70
_BAR: Final = 20
_STEP: Final = 30
_COLD, _REUSED = "#b5651d", "#2f6f8f"


def chart(rows: Sequence[Row], title: str, subtitle: str) -> str:
    """The chart of `rows`, in their order, on a linear scale from zero."""
    height = _TOP + _STEP * len(rows) + 20
    longest = max([*(row["ttft_ms"] for row in rows), 1e-9])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="17" font-weight="bold">{escape(title)}</text>',
        f'<text x="16" y="48" fill="#555555">{escape(subtitle)}</text>',
    ]
    for index, row in enumerate(rows):
        top = _TOP + index * _STEP
        width = (_WIDTH - _LABELS - _VALUES) * row["ttft_ms"] / longest
        said = (
            f"{row['ttft_ms']:,.0f} ms, reused {row['reused_tokens']:,} of {row['prompt_tokens']:,}"
        )
        colour = _REUSED if row["reused_tokens"] else _COLD
        base = top + _BAR - 5
        lines += [
            f'<text x="{_LABELS - 10}" y="{base}" text-anchor="end">'
            f"{escape(row['condition'])}</text>",
            f'<rect x="{_LABELS}" y="{top}" width="{max(width, 1.5):.1f}" height="{_BAR}" '
            f'fill="{colour}"/>',
            f'<text x="{_LABELS + max(width, 1.5) + 8:.1f}" y="{base}" fill="#333333">'
            f"{escape(said)}</text>",
        ]
    return "\n".join([*lines, "</svg>", ""])
