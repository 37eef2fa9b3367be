"""One line at the end of a run of crash tests: all that they did, and what was lost by it."""

from __future__ import annotations

from typing import Final

import pytest

from tests.crash import totals

_OURS: Final = ("tests/crash/", "tests/e2e/test_matrix")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    failures = [_message(report) for report in reports if report.nodeid.startswith(_OURS)]
    if totals.TOTALS or failures:
        terminalreporter.write_line(totals.line(failures))


def _message(report: pytest.TestReport) -> str:
    """What a test said that failed, without its source."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return report.longreprtext if crash is None else str(crash.message)
