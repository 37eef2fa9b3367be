"""How a verb answers and fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actors.cli.asked import Asked, Failure, emit, report


def test_home_decides_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "huginn.toml").write_text("[huginn]\nport = 7001\n")
    origins = Asked(json=False, home=tmp_path).origins({"host": None})
    assert (origins.config.home, origins.config.port) == (str(tmp_path), 7001)
    assert origins.key_to_origin["home"] == "flag"


def test_show_answers_programs_or_people(capsys: pytest.CaptureFixture[str]) -> None:
    Asked(json=True).show({"a": 1}, lambda: pytest.fail("nobody looks"))
    assert json.loads(capsys.readouterr().out) == {"a": 1}
    Asked(json=False).show({"a": 1}, lambda: "x" * 500)
    assert capsys.readouterr().out == "x" * 500 + "\n"


def test_pieces_are_written_only_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    Asked(json=True).pieces()("a")
    Asked(json=False).pieces()("b")
    assert capsys.readouterr().out == "b"


def test_a_failure_is_one_line_and_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    report(Failure("two\nlines", code="odd", number=3), as_json=True)
    said = capsys.readouterr()
    assert said.err == "huginn: two lines\n"
    assert json.loads(said.out) == {"error": {"message": "two\nlines", "code": "odd", "number": 3}}


def test_emitted_json_is_one_line_of_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"raven": "鴉\n\ud800"})
    said = capsys.readouterr().out
    assert said.isascii()
    assert said.count("\n") == 1
    assert json.loads(said) == {"raven": "鴉\n\ud800"}
