"""What a doctor's check finds, and how checks are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from actors.cli.asked import Failure
from protocol.errors import HuginnError

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: what was looked at, how it is, and the cure where it is not well."""

    name: str
    state: State
    detail: str
    cure: str | None = None


Check = tuple[str, Callable[[], Finding]]


def examine(checks: Iterable[Check]) -> list[Finding]:
    """Run `checks`; one that fails by itself is a finding too, and the others go on."""
    found = []
    for name, check in checks:
        try:
            found.append(check())
        except (HuginnError, Failure) as error:
            found.append(Finding(name, "fail", error.message))
        except (OSError, ImportError) as error:
            found.append(Finding(name, "fail", str(error) or type(error).__name__))
    return found


def healthy(findings: Iterable[Finding]) -> bool:
    """Whether none of them fails; a warning is no failure."""
    return all(finding.state != "fail" for finding in findings)
