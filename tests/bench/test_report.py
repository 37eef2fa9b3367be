from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.report import facts, fitted_exponent, header, table, write_json


def test_header_names_the_machine() -> None:
    lines = header().splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"- {name}" for name in facts()]
    assert {"date", "python", "cpu", "cores"} <= facts().keys()
    assert all(facts().values())


def test_table_is_markdown_with_numbers_to_the_right() -> None:
    rows = [{"what": "a", "n": 12345, "us": 1.23456}, {"what": "longer", "n": 7}]
    assert table(rows, ["what", "n", "us"]).splitlines() == [
        "| what   |     n |    us |",
        "| ------ | ----: | ----: |",
        "| a      | 12345 | 1.235 |",
        "| longer |     7 |     – |",
    ]
    assert table([], ["a"]).splitlines() == ["|   a |", "| --: |"]


def test_exponent_is_the_slope_of_the_logarithms() -> None:
    sizes = [10, 100, 1000, 10_000]
    for power in (0, 0.5, 1, 2):
        fitted = fitted_exponent(sizes, [3e-6 * size**power for size in sizes])
        assert fitted == pytest.approx(power, abs=1e-9)
    for wrong in ([10], [10, 10]):
        with pytest.raises(ValueError, match="two different sizes"):
            fitted_exponent(wrong, [1.0] * len(wrong))
    with pytest.raises(ValueError, match="math domain"):
        fitted_exponent([1, 2], [0.0, 1.0])


def test_json_holds_rows_and_machine(tmp_path: Path) -> None:
    write_json(tmp_path / "out.json", "rope", [{"n": 1, "us": 2.5}], seed=1)
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert document["name"] == "rope"
    assert document["rows"] == [{"n": 1, "us": 2.5}]
    assert document["seed"] == 1
    assert document["machine"].keys() == facts().keys()
