"""The example publisher, on a real repository and a running service."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.fake_rooms import Service
from tests.huginn import served
from tests.installations import free_port

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "git_events.py"
RESULTS = '<testsuite><testcase classname="a" name="b">{}</testcase>{}</testsuite>'
GOOD = '<testcase classname="a" name="c"/>'


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with served() as one:
        yield one


class Repository:
    """A repository whose hooks publish to the source `git` of a service."""

    def __init__(self, root: Path, service: Service, source: str) -> None:
        self.root = root
        self.service = service
        self.source = source
        identity = {"NAME": "Huginn", "EMAIL": "huginn@example.org"}
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root.parent),
            "GIT_CONFIG_NOSYSTEM": "1",
            "HUGINN_URL": service.base_url,
            "HUGINN_API_KEY": service.operator_key,
            **{f"GIT_{who}_{k}": v for who in ("AUTHOR", "COMMITTER") for k, v in identity.items()},
        }
        root.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.publisher("install", "--source", source)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.root,
            env=self.environment,
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )

    def git(self, *words: str) -> str:
        done = self.run("git", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def publisher(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        done = self.run(sys.executable, str(SCRIPT), verb, ".", *words)
        assert done.returncode == 0, done.stderr
        return done

    def commit(self, summary: str) -> str:
        (self.root / "file").write_text(summary)
        self.git("add", "file")
        self.git("commit", "--quiet", "-m", summary)
        return self.git("rev-parse", "HEAD")

    def events(self) -> list[dict[str, Any]]:
        answer = httpx.get(
            f"{self.service.base_url}/huginn/v1/sources/{self.source}/events",
            headers={"Authorization": f"Bearer {self.service.operator_key}"},
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["data"]
        return found

    def told(self) -> list[tuple[str, str]]:
        return [(each["kind"].rpartition(".")[2], each["subject"]) for each in self.events()]


@pytest.fixture
def repository(service: Service, tmp_path: Path) -> Repository:
    return Repository(tmp_path / "work", service, f"git-{tmp_path.name}"[:60].lower())


@pytest.mark.req("EVT-15")
def test_commits_and_merges_are_told_as_they_happen(repository: Repository) -> None:
    repository.commit("begin")
    repository.git("checkout", "--quiet", "-b", "feature/1122-ravens")
    commit = repository.commit("a raven's wing")
    repository.git("checkout", "--quiet", "main")
    repository.git("merge", "--quiet", "--no-ff", "--no-edit", "feature/1122-ravens")
    merge = repository.git("rev-parse", "HEAD")
    repository.git("checkout", "--quiet", "-b", "fast-77")
    repository.commit("forward")
    repository.git("checkout", "--quiet", "main")
    repository.git("merge", "--quiet", "fast-77")
    assert repository.told() == [
        ("Committed", "main"),
        ("Committed", "1122"),
        ("MergeSucceeded", "1122"),
        ("Committed", "77"),
        ("MergeSucceeded", "77"),
    ]
    events = repository.events()
    assert events[1]["body"]["commit"] == commit
    assert events[1]["body"]["summary"] == "a raven's wing"
    assert events[2]["body"]["merge_commit"] == merge
    assert (events[2]["from"], events[2]["to"]) == ("merge", "done")


@pytest.mark.req("EVT-15")
def test_a_test_run_opens_or_closes_the_gate(repository: Repository) -> None:
    repository.commit("begin")
    repository.git("checkout", "--quiet", "-b", "1123-x")
    repository.commit("work")
    results = repository.root / "results.xml"
    results.write_text(RESULTS.format("<failure/>", GOOD))
    repository.publisher("tests", "results.xml")
    results.write_text(RESULTS.format("", GOOD))
    repository.publisher("tests", "results.xml")
    # The same run told again is the same event.
    repository.publisher("tests", "results.xml")
    events = repository.events()[2:]
    assert [each["kind"] for each in events] == ["GatesFailed", "GatesPassed"]
    assert events[0]["body"] == {"reason": "1 of 2 tests failed: a.b"}
    assert events[1]["body"] == {"feature_branch": "1123-x", "commits_ahead": 1}
    assert {each["subject"] for each in events} == {"1123"}


@pytest.mark.req("EVT-15")
def test_without_a_service_git_goes_on_and_nothing_is_lost(repository: Repository) -> None:
    url = repository.environment["HUGINN_URL"]
    repository.environment["HUGINN_URL"] = f"http://127.0.0.1:{free_port()}"
    for number in range(3):
        repository.commit(f"away {number}")
    assert repository.told() == []
    repository.environment["HUGINN_URL"] = url
    repository.commit("back")
    assert [each["body"]["summary"] for each in repository.events()] == [
        *(f"away {number}" for number in range(3)),
        "back",
    ]
    assert list((repository.root / ".git" / "huginn-spool").iterdir()) == []


def test_a_hook_of_somebody_elses_is_left_alone(repository: Repository) -> None:
    hook = repository.root / ".git" / "hooks" / "post-commit"
    hook.write_text("#!/bin/sh\necho mine\n")
    done = repository.run(sys.executable, str(SCRIPT), "install", ".", "--source", "other")
    assert done.returncode == 1
    assert "add this line" in done.stderr
    assert hook.read_text() == "#!/bin/sh\necho mine\n"
