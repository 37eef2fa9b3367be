"""The chart: well-formed, a bar for each row, as long as its time."""

from __future__ import annotations

from xml.etree import ElementTree

from actors.experiment.chart import chart
from tests.experiment_rows import row, rows

SVG = "{http://www.w3.org/2000/svg}"


def bars(svg: str) -> list[float]:
    """The widths of the bars, the background left out."""
    root = ElementTree.fromstring(svg)
    return [float(rect.attrib["width"]) for rect in root.iter(f"{SVG}rect")][1:]


def test_bars_are_as_long_as_the_times() -> None:
    made = [row("cold", ttft_ms=1000.0), row("warm", ttft_ms=250.0), row("none", ttft_ms=0.0)]
    widths = bars(chart(made, "title", "subtitle"))
    assert widths[0] == 4 * widths[1]
    assert 0 < widths[2] < 5


def test_it_says_what_each_bar_is_and_escapes_it() -> None:
    svg = chart([*rows(), row("<&>")], "A & B", "sub <1>")
    root = ElementTree.fromstring(svg)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[:2] == ["A & B", "sub <1>"]
    assert "<&>" in texts
    assert "12 ms, reused 1,990 of 2,000" in texts
    assert len(bars(svg)) == len(rows()) + 1
