"""The checks: what differs is found, and named by its condition."""

from __future__ import annotations

from typing import Any

import pytest

from actors.experiment.checks import check, fields_of
from tests.experiment_rows import rows

FIELDS = fields_of(equality="bitwise", reproducible=True)


def test_equal_rows_pass_every_check() -> None:
    checks = check(rows(), FIELDS)
    assert len(checks) == 2 * len(FIELDS) + 1
    assert all(each.ok for each in checks)
    assert checks[0].compared == ["cold", "warm", "other-domain", "other-process"]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", ["another", None])
def test_one_other_value_names_its_condition(field: str, value: Any) -> None:
    made = rows()
    made[3][field] = value
    wrong = [each for each in check(made, FIELDS) if not each.ok]
    assert [(each.name, each.failed) for each in wrong] == [(f"{field} of base", ["other-domain"])]


def test_values_that_are_all_missing_are_not_equal() -> None:
    made = rows()
    for row in made:
        row["state_digest"] = None
    wrong = [each for each in check(made, FIELDS) if not each.ok]
    assert [each.name for each in wrong] == ["state_digest of base", "state_digest of append"]
    assert wrong[0].failed == wrong[0].compared


@pytest.mark.parametrize("index", [0, 3, 4, 5])
def test_who_shares_nothing_must_reuse_nothing(index: int) -> None:
    made = rows()
    made[index]["reused_tokens"] = 1
    wrong = [each for each in check(made, FIELDS) if not each.ok]
    assert [(each.name, each.failed) for each in wrong] == [
        ("reuses nothing", [made[index]["condition"]])
    ]


def test_a_profile_is_held_to_what_it_promises() -> None:
    assert "state_digest" not in fields_of(equality="token", reproducible=True)
    assert "answer_digest" not in fields_of(equality="bitwise", reproducible=False)
    assert set(fields_of(equality="token", reproducible=False)) == {"context_id", "ids_digest"}
