"""The conditions: every one of them run, on the model that they are run on in the seed's order."""

from __future__ import annotations

import pytest

from actors.experiment.checks import check, fields_of
from actors.experiment.conditions import STEPS, Experiment
from protocol.errors import ContentError
from tests import tiny_gemma


@pytest.mark.req("KV-2", "KV-5", "KV-11")
def test_every_condition_has_its_row_and_every_check_holds() -> None:
    told: list[str] = []
    experiment = Experiment(
        "tiny-gemma", "embedded", tiny_gemma.cached(), tokens=300, seed=3, tell=told.append
    )
    rows = experiment.run()
    assert [row["condition"] for row in rows] == list(STEPS)
    assert list(dict.fromkeys(told)) == list(STEPS)
    checks = check(rows, fields_of(equality="bitwise", reproducible=True))
    assert [each for each in checks if not each.ok] == []
    assert len(checks) == 20
    by_name = {row["condition"]: row for row in rows}
    assert abs(by_name["cold"]["prompt_tokens"] - 300) < 60
    for condition in ("warm", "append", "middle-edit", "branch"):
        assert by_name[condition]["reused_tokens"] > 0, condition
    for condition, tier in (("evicted", "host"), ("restarted", "disk")):
        found = by_name[condition]
        assert found["tiers"][tier] == found["reused_tokens"] == by_name["warm"]["reused_tokens"]
    assert by_name["warm"]["hit"] == "all"
    assert by_name["cold"]["age_s"] is None
    assert by_name["restarted"]["age_s"] > by_name["warm"]["age_s"] > 0
    # The one thing that the services had to say: their worker was killed.
    assert [("-9" in line, line[:5]) for line in experiment.log] == [(True, '{"at"')]
    edited = by_name["middle-edit"]
    assert edited["blocks_reused"] <= edited["blocks"] // 2
    assert by_name["restarted"]["restart_s"] > 0
    assert len({row["state_digest"] for row in rows}) == 4


def test_too_few_tokens_end_it_before_anything_is_measured() -> None:
    experiment = Experiment(
        "tiny-gemma", "embedded", tiny_gemma.cached(), tokens=20, seed=0, tell=str
    )
    with pytest.raises(ContentError, match="ask for at least"):
        experiment.run()
    assert experiment.rows == []


def test_too_many_tokens_are_refused_at_once() -> None:
    with pytest.raises(ContentError, match="context of 2048"):
        Experiment("tiny-gemma", "embedded", tiny_gemma.cached(), tokens=2000, seed=0, tell=str)
