from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.ids import PREFIX_TO_KIND
from protocol.record import encode_record
from tests.golden.generate import (
    BODIES,
    EXAMPLES,
    PATH,
    Frozen,
    completed,
    load,
    main,
    moved,
    save,
    wanted,
)

ROOT = Path(__file__).parents[2]
HOW = "run `python -m tests.golden.generate`, look at the lines that it adds, and commit them"
FROZEN = load()


@pytest.mark.req("ID-4")
def test_no_id_has_moved() -> None:
    problems = moved(FROZEN)
    assert not problems, (
        "\n".join(problems) + "\nAn id that moves is a new format: give it a new version (`v`, or "
        "the tag of its kind) beside the old one. A format under which nothing was ever stored may "
        "change: delete its lines from tests/golden/ids.json, then " + HOW
    )


@pytest.mark.req("ID-4")
def test_every_kind_of_id_and_every_record_with_an_id_is_frozen() -> None:
    kinds = {(entry["kind"], entry["body"]) for entry in FROZEN["kinds"]}
    missing_kinds = {
        kind.__name__
        for kind in PREFIX_TO_KIND.values()
        for body in BODIES
        if (kind.__name__, body.hex()) not in kinds
    }
    assert not missing_kinds, f"kinds without a golden id: {sorted(missing_kinds)}; {HOW}"
    records = {(entry["record"], entry["instance"]) for entry in FROZEN["records"]}
    missing = sorted(set(wanted()) - records)
    assert not missing, f"records without a golden id: {missing}; {HOW}"


@pytest.mark.req("ID-4")
@pytest.mark.parametrize("instance", EXAMPLES)
def test_an_example_still_has_its_bytes(instance: str) -> None:
    (entry,) = [item for item in FROZEN["records"] if item["instance"] == instance]
    assert encode_record(EXAMPLES[instance]).hex() == entry["bytes"]


@pytest.mark.req("ID-4")
def test_ids_are_equal_across_processes_and_hash_seeds() -> None:
    orders = set()
    for seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.golden.generate", "--print"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        printed = json.loads(done.stdout)
        assert printed["kinds"] == [entry["id"] for entry in FROZEN["kinds"]]
        assert printed["records"] == [entry["id"] for entry in FROZEN["records"]]
        orders.add(tuple(printed["order"]))
    # Otherwise the seeds changed nothing, and the equal ids above prove nothing.
    assert len(orders) > 1


def test_the_generator_adds_and_never_changes() -> None:
    assert completed(FROZEN) == FROZEN, f"something is missing: {HOW}"
    fewer: Frozen = {"kinds": FROZEN["kinds"][3:], "records": FROZEN["records"][:-1]}
    after = completed(fewer)
    assert after["kinds"][: len(fewer["kinds"])] == fewer["kinds"]
    assert after["records"][: len(fewer["records"])] == fewer["records"]
    assert len(after["kinds"]) == len(FROZEN["kinds"])


def swapped(text: str) -> str:
    """Another id: the last character but one stands for bits of the digest alone."""
    return text[:-2] + ("q" if text[-2] != "q" else "a") + text[-1]


def test_a_moved_id_is_noticed() -> None:
    changed = copy.deepcopy(FROZEN)
    kind, one, other, third = changed["kinds"][0], *changed["records"][:3]
    kind["id"] = swapped(kind["id"])
    one["id"] = swapped(one["id"])
    other["bytes"] += "00"
    third["record"] = "NoSuchRecord"
    problems = moved(changed)
    assert len(problems) == 4
    assert kind["kind"] in problems[0]
    assert one["id"] in problems[1]
    assert "trailing" in problems[2]
    assert "no such record" in problems[3]


def test_the_generator_writes_nothing_when_an_id_moved(tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    changed = copy.deepcopy(FROZEN)
    changed["kinds"][0]["id"] = swapped(changed["kinds"][0]["id"])
    del changed["records"][-1]
    save(changed, path)
    before = path.read_bytes()
    assert main([], path) == 1
    assert path.read_bytes() == before


def test_the_generator_writes_the_file_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    save({"kinds": FROZEN["kinds"][:-1], "records": FROZEN["records"][:-1]}, path)
    assert main([], path) == 0
    assert path.read_bytes() == PATH.read_bytes()
