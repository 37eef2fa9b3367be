"""How checks are run: one that breaks is a finding, and the next still runs."""

from __future__ import annotations

from actors.cli.asked import Failure
from actors.cli.checks import Finding, examine, healthy
from protocol.errors import WorkerFault


def breaking(error: Exception) -> Finding:
    raise error


def test_a_check_that_breaks_is_a_finding() -> None:
    errors = (WorkerFault("no library"), Failure("no key"), OSError("no disk"), ImportError("no x"))
    checks = [(str(error), lambda error=error: breaking(error)) for error in errors]
    found = examine([*checks, ("last", lambda: Finding("last", "ok", "fine"))])
    assert [each.state for each in found] == ["fail"] * 4 + ["ok"]
    assert [each.detail for each in found] == ["no library", "no key", "no disk", "no x", "fine"]
    assert not healthy(found)


def test_a_warning_is_no_failure() -> None:
    assert healthy([Finding("a", "ok", ""), Finding("b", "warn", "", "cure")])
    assert not healthy([Finding("a", "fail", "")])
