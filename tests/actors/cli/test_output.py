"""Tables for people, and what must not reach a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from actors.cli.output import cell, facts, printable, size, table


def rendered(shown: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_control_characters_do_not_pass() -> None:
    assert printable("a\x1b[2Jb\r\x07\x9b") == "a\ufffd[2Jb\ufffd\ufffd\ufffd"
    assert printable("tab\tline\n鴉 é 🐦") == "tab\tline\n鴉 é 🐦"


def test_content_is_text_and_not_markup() -> None:
    shown = rendered(table(("content",), [("[red]raven[/red] [/nothing]",)]))
    assert "[red]raven[/red] [/nothing]" in shown


def test_cells() -> None:
    assert [cell(value).plain for value in (True, False, None, 3, "x")] == [
        *("yes", "no", "-", "3", "x")
    ]


def test_numbers_stand_to_the_right() -> None:
    lines = rendered(table(("n", "name"), [(1, "a"), (1000, "b")])).splitlines()
    assert [line.split() for line in lines] == [["n", "name"], ["1", "a"], ["1000", "b"]]
    assert lines[1].startswith("   1")


def test_facts_are_pairs() -> None:
    assert rendered(facts([("port", 7717)])).split() == ["port", "7717"]


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (253113024, "253 MB"), (5 * 10**15, "5000 TB")],
)
def test_sizes(count: int, shown: str) -> None:
    assert size(count) == shown
