"""The checks: what differs is found, and named by its condition."""

from __future__ import annotations

from typing import Any

import pytest

from actors.experiment.checks import check, fields_of
from actors.experiment.conditions import REUSING, STEPS
from tests.experiment_rows import rows

FIELDS = fields_of(equality="bitwise", reproducible=True)


def test_equal_rows_pass_every_check() -> None:
    checks = check(rows(), FIELDS)
    assert len(checks) == 4 * len(FIELDS) + 4 == 20
    assert all(each.ok for each in checks)
    assert checks[0].compared == [
        *("cold", "warm", "other-domain", "evicted", "restarted", "other-process")
    ]
    assert {name for each in checks for name in each.compared} == set(STEPS)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", ["another", None])
def test_one_other_value_names_its_condition(field: str, value: Any) -> None:
    made = rows()
    made[5][field] = value
    wrong = [each for each in check(made, FIELDS) if not each.ok]
    assert [(each.name, each.failed) for each in wrong] == [(f"{field} of base", ["other-domain"])]


def test_values_that_are_all_missing_are_not_equal() -> None:
    made = rows()
    for row in made:
        row["state_digest"] = None
    wrong = [each for each in check(made, FIELDS) if not each.ok]
    assert [each.name for each in wrong] == [
        f"state_digest of {prompt}" for prompt in ("base", "append", "edit", "branch")
    ]
    assert wrong[0].failed == wrong[0].compared


@pytest.mark.parametrize("index", [0, 5, 8, 9, 10, 11])
def test_who_shares_nothing_must_reuse_nothing(index: int) -> None:
    made = rows()
    made[index]["reused_tokens"] = 1
    wrong = [each for each in check(made, FIELDS) if not each.ok]
    assert [(each.name, each.failed) for each in wrong] == [
        ("reuses nothing", [made[index]["condition"]])
    ]


FROM_EITHER, FROM_DISK = (
    f"reuses as much as warm, from {tiers}" for tiers in ("host or disk", "disk")
)


@pytest.mark.req("KV-2", "KV-5", "KV-11")
@pytest.mark.parametrize(
    ("condition", "tiers", "name"),
    [
        *((condition, {}, "reuses something") for condition in REUSING if condition != "warm"),
        ("evicted", {}, FROM_EITHER),
        # Still in a live stream: nothing was evicted.
        ("evicted", {"device": 1990}, FROM_EITHER),
        ("evicted", {"device": 1, "host": 1989}, FROM_EITHER),
        ("evicted", {"host": 1000, "disk": 989}, FROM_EITHER),
        ("restarted", {}, FROM_DISK),
        ("restarted", {"disk": 1989}, FROM_DISK),
        # No process has memory of what another one did.
        ("restarted", {"host": 1990}, FROM_DISK),
    ],
)
def test_who_has_something_to_reuse_must_reuse_it_from_where_it_lies(
    condition: str, tiers: dict[str, int], name: str
) -> None:
    made = rows()
    (changed,) = [each for each in made if each["condition"] == condition]
    changed["tiers"] = {"device": 0, "host": 0, "disk": 0} | tiers
    changed["reused_tokens"] = sum(tiers.values())
    wrong = [each for each in check(made, FIELDS) if not each.ok]
    assert [(each.name, each.failed) for each in wrong] == [(name, [condition])]


@pytest.mark.parametrize("tiers", [{"host": 1990}, {"disk": 1990}, {"host": 1000, "disk": 990}])
def test_what_was_evicted_may_come_from_memory_and_from_disk(tiers: dict[str, int]) -> None:
    made = rows()
    (evicted,) = [each for each in made if each["condition"] == "evicted"]
    evicted["tiers"] = {"device": 0, "host": 0, "disk": 0} | tiers
    assert all(each.ok for each in check(made, FIELDS))


def test_nothing_reused_is_not_as_much_as_nothing() -> None:
    made = rows()
    for each in made:
        each["tiers"], each["reused_tokens"] = {"device": 0, "host": 0, "disk": 0}, 0
    wrong = {each.name: each.failed for each in check(made, FIELDS) if not each.ok}
    assert wrong == {
        "reuses something": list(REUSING),
        FROM_EITHER: ["evicted"],
        FROM_DISK: ["restarted"],
    }


@pytest.mark.parametrize("condition", [*REUSING, "evicted", "restarted"])
def test_a_run_that_is_missing_proves_nothing(condition: str) -> None:
    made = [each for each in rows() if each["condition"] != condition]
    wrong = [each for each in check(made, FIELDS) if not each.ok]
    assert [each.failed for each in wrong] == [[condition]]


def test_a_profile_is_held_to_what_it_promises() -> None:
    assert "state_digest" not in fields_of(equality="token", reproducible=True)
    assert "answer_digest" not in fields_of(equality="bitwise", reproducible=False)
    assert set(fields_of(equality="token", reproducible=False)) == {"context_id", "ids_digest"}
