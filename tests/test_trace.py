"""The requirement table and the tests agree."""

from __future__ import annotations

from tests.trace import marks, problems, rows


def test_every_row_that_is_done_is_named_by_a_test() -> None:
    assert problems() == []


def test_the_table_and_the_marks_are_really_read() -> None:
    assert len(rows()) > 100
    assert "ID-1" in marks()
