"""The report in its three forms: all of it in each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.experiment.checks import Check, check, fields_of
from actors.experiment.report import COLUMNS, cells, document, machine, markdown, reuse_age_s, write
from tests.experiment_rows import row, rows


def made(checks: list[Check] | None = None) -> dict[str, Any]:
    fields = fields_of(equality="bitwise", reproducible=True)
    head = {"profile": "some-profile", "machine": machine(), "seed": 7}
    return document(head, rows(), check(rows(), fields) if checks is None else checks)


@pytest.mark.req("KV-11")
def test_three_files_with_the_machine_and_the_seed(tmp_path: Path) -> None:
    report = made()
    files = write(report, tmp_path / "out" / "deep")
    assert [path.name for path in files] == ["report.json", "report.md", "report.svg"]
    assert json.loads(files[0].read_text()) == report
    for path in files:
        text = path.read_text()
        assert "some-profile" in text
        assert machine()["cpu"] in text
        assert all(row["condition"] in text for row in rows())
    assert "seed: 7" in files[1].read_text()
    assert "seed 7" in files[2].read_text()


def test_a_table_row_has_every_column() -> None:
    table = [line for line in markdown(made()).splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(rows())
    assert {line.count("|") for line in table} == {len(COLUMNS) + 1}
    warm = dict(zip(COLUMNS, cells(rows()[1]), strict=True))
    assert (warm["reused"], warm["tiers"], warm["TTFT ms"]) == ("1990", "device 1990", "12")
    assert (warm["hit"], warm["tok/s"]) == ("all", "–")
    assert [warm[name] for name in ("resident KV MB", "largest KV MB", "device MB", "RSS MB")] == [
        "7.2",
        "3.6",
        "16",
        "95",
    ]
    assert made()["hits"] == {"none": 6, "all": 4, "part": 2}


@pytest.mark.req("KV-11")
def test_how_long_a_state_was_there_to_be_reused_is_told_by_tier() -> None:
    made_up = [
        row("cold"),
        row("warm", age_s=2.0, tiers={"device": 9, "host": 0, "disk": 0}),
        row("evicted", age_s=30.5, tiers={"device": 0, "host": 9, "disk": 0}),
        row("again", age_s=4.0, tiers={"device": 1, "host": 8, "disk": 0}),
        # Of other messages: how old what was reused of them is, nobody wrote down.
        row("append", "append", tiers={"device": 9, "host": 0, "disk": 0}),
    ]
    assert reuse_age_s(made_up) == {"device": 4.0, "host": 30.5}
    assert dict(zip(COLUMNS, cells(made_up[2]), strict=True))["age s"] == "30.5"
    report = document({"profile": "p", "machine": machine(), "seed": 7}, made_up, [])
    assert "- reuse_age_s: {'device': 4.0, 'host': 30.5}" in markdown(report)


@pytest.mark.req("KV-11")
def test_every_check_is_in_the_report_and_one_that_is_violated_makes_it_fail() -> None:
    said = made()
    lines = [line for line in markdown(said).splitlines() if line.endswith(": holds")]
    assert said["ok"]
    assert len(said["checks"]) == len(lines) == 20
    cold = rows()
    cold[7]["tiers"] = cold[0]["tiers"]
    fields = fields_of(equality="bitwise", reproducible=True)
    report = document({"profile": "p", "machine": machine()}, cold, check(cold, fields))
    assert not report["ok"]
    told = "- reuses as much as warm, from disk (1 runs): FAILS in restarted"
    assert told in markdown(report).splitlines()


def test_a_check_that_fails_is_told_by_name() -> None:
    report = made([Check("state of base", ["cold", "warm"], ["warm"])])
    assert not report["ok"]
    assert "state of base (2 runs): FAILS in warm" in markdown(report)


def test_the_machine_is_known() -> None:
    facts = machine()
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] > 2**20
    assert facts["cpu"]
