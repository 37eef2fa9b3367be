"""A publisher: what happens in a git repository and its tests, as events of a Huginn source.

    python git_events.py install REPOSITORY --source NAME    hooks, once
    python git_events.py tests REPOSITORY RESULTS.xml        after each test run (JUnit's XML)
    python git_events.py flush REPOSITORY                    what could not be sent so far

It subscribes where git already tells of its transitions, the hooks `post-commit` and `post-merge`,
and polls nothing. A merge is `MergeSucceeded` about the story that its branch is named for, a test
run `GatesPassed` or `GatesFailed`; a commit is a kind of this publisher's own, registered with its
schema. A hook never holds up git: an event is put down under `.git/huginn-spool` first and sent
from there in order, now or later, and its key makes sending it twice the same as once.

Standard library alone. The service is `HUGINN_URL` (else 127.0.0.1 and `HUGINN_PORT`), the key
`HUGINN_API_KEY`, else the operator's in `HUGINN_HOME`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

SECONDS_MAX = 10.0
SUBJECT_CHARS_MAX = 200
HOOKS = {"post-commit": "commit", "post-merge": "merge"}
MARK = "# events for Huginn"
COMMITTED = {
    "type": "object",
    "properties": {
        "commit": {"type": "string"},
        "branch": {"type": "string"},
        "summary": {"type": "string"},
        "at_s": {"type": "integer"},
    },
    "required": ["commit", "branch", "summary", "at_s"],
    "additionalProperties": False,
}


class Refused(Exception):
    """The service answered, and will not take it: sending it again changes nothing."""


# -- git -----------------------------------------------------------------------------------------


def git(repository: Path, *words: str) -> str:
    """What git answers, without the line end."""
    done = subprocess.run(
        ["git", "-C", str(repository), *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def setting(repository: Path, name: str) -> str:
    return git(repository, "config", "--get", f"huginn.{name}")


def git_path(repository: Path, name: str) -> Path:
    """A file of the repository's git directory, which a hook's environment may have moved."""
    return (repository / git(repository, "rev-parse", "--git-path", name)).resolve()


def story(branch: str) -> str:
    """The story that a branch is named for: its number, else the branch itself."""
    number = re.search(r"(?:^|[/_-])(\d{2,})(?:$|[/_-])", branch)
    return number[1] if number else branch[:SUBJECT_CHARS_MAX]


def branch_of(repository: Path) -> str:
    return git(repository, "rev-parse", "--abbrev-ref", "HEAD")


# -- transitions as events -----------------------------------------------------------------------


def committed(repository: Path) -> dict[str, Any]:
    """The newest commit."""
    commit, at_s, summary = git(repository, "log", "-1", "--format=%H%n%ct%n%s").split("\n", 2)
    branch = branch_of(repository)
    body = {"commit": commit, "branch": branch, "summary": summary, "at_s": int(at_s)}
    return {"kind": setting(repository, "kind"), "subject": story(branch), "body": body}


def merged(repository: Path) -> dict[str, Any]:
    """The merge that ended just now; the reflog says of which branch, also if it went forward
    without a commit of its own."""
    what = git(repository, "reflog", "-1", "--format=%gs")
    named = re.match(r"(?:merge|pull) (\S+?):", what)
    branch = named[1] if named else branch_of(repository)
    commit, at_s = git(repository, "log", "-1", "--format=%H%n%ct").split("\n")
    return {
        "kind": "MergeSucceeded",
        "subject": story(branch),
        "from": "merge",
        "to": "done",
        "body": {"merge_commit": commit, "at_s": int(at_s)},
    }


def tested(repository: Path, results: Path, trunk: str) -> dict[str, Any]:
    """A test run, from the XML that test runners write."""
    cases = list(ElementTree.parse(results).iter("testcase"))
    wrong = [
        f"{case.get('classname', '')}.{case.get('name', '')}".strip(".")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    branch = branch_of(repository)
    event = {"subject": story(branch), "from": "coding", "to": "merge"}
    if wrong:
        few = ", ".join(wrong[:3]) + (" and more" if len(wrong) > 3 else "")
        reason = f"{len(wrong)} of {len(cases)} tests failed: {few}"
        return {"kind": "GatesFailed", "subject": event["subject"], "body": {"reason": reason}}
    ahead = int(git(repository, "rev-list", "--count", f"{trunk}..HEAD"))
    body = {"feature_branch": branch, "commits_ahead": max(1, ahead)}
    return {"kind": "GatesPassed", **event, "body": body}


# -- the service ---------------------------------------------------------------------------------


def service() -> tuple[str, str]:
    """Where it is, and the key to show."""
    url = os.environ.get("HUGINN_URL", f"http://127.0.0.1:{os.environ.get('HUGINN_PORT', '7717')}")
    key = os.environ.get("HUGINN_API_KEY")
    if not key:
        data = os.environ.get("XDG_DATA_HOME", str(Path.home() / ".local" / "share"))
        home = Path(os.environ.get("HUGINN_HOME", f"{data}/huginn"))
        key = (home / "operator.key").read_text("ascii").strip()
    return url.rstrip("/"), key


def post(path: str, body: object, key: str | None = None) -> Any:
    """The service's answer. Raises Refused for one that says no, OSError where there is none."""
    url, api_key = service()
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    if key is not None:
        headers["Idempotency-Key"] = key
    data = json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read().decode("utf-8", "replace")
        # Not now is another thing than not at all.
        if error.code >= 500 or error.code in (408, 429):
            raise OSError(f"status {error.code}: {said[:300]}") from error
        raise Refused(f"status {error.code}: {said[:300]}") from error


def publish(repository: Path, event: dict[str, Any], once: str) -> None:
    """Puts the event down, then sends what is there. `once` names the transition."""
    spool = git_path(repository, "huginn-spool")
    spool.mkdir(exist_ok=True)
    key = f"git {setting(repository, 'id')} {event['kind']} {once}"
    name = f"{time.time_ns():020d}-{os.getpid()}"
    unfinished = spool / f"{name}.part"
    unfinished.write_text(json.dumps({"event": event, "key": key}))
    unfinished.rename(spool / f"{name}.json")
    flush(repository)


def flush(repository: Path) -> None:
    """Sends what was put down, oldest first; what is refused is put aside with its reason."""
    spool = git_path(repository, "huginn-spool")
    path = f"/huginn/v1/sources/{quote(setting(repository, 'source'), safe='')}/events"
    for waiting in sorted(spool.glob("*.json")):
        told = json.loads(waiting.read_text())
        try:
            post(path, told["event"], told["key"])
        except Refused as error:
            print(f"git_events: refused: {error}", file=sys.stderr)
            waiting.rename(waiting.with_suffix(".refused"))
        except OSError as error:
            print(f"git_events: sent later: {error}", file=sys.stderr)
            return
        else:
            waiting.unlink(missing_ok=True)


def install(repository: Path, source: str) -> None:
    """Makes the source and the kind, and hooks that call this file."""
    post("/huginn/v1/sources", {"name": source})
    kind = post("/huginn/v1/kinds", {"kind": "Committed", "schema": COMMITTED})["kind"]
    git(repository, "config", "huginn.source", source)
    git(repository, "config", "huginn.kind", kind)
    git(repository, "config", "huginn.id", os.urandom(8).hex())
    hooks = git_path(repository, "hooks")
    hooks.mkdir(exist_ok=True)
    for name, verb in HOOKS.items():
        hook = hooks / name
        line = (
            f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).resolve()))} {verb} ."
        )
        if hook.exists() and MARK not in hook.read_text():
            raise SystemExit(f"git_events: {hook} is there already: add this line to it:\n{line}")
        # Whatever goes wrong with telling of it, the commit is made.
        hook.write_text(f"#!/bin/sh\n{MARK}\n{line} || true\n")
        hook.chmod(0o755)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("install", "commit", "merge", "tests", "flush"):
        verb = verbs.add_parser(name)
        verb.add_argument("repository", type=Path)
        if name == "install":
            verb.add_argument("--source", required=True)
        if name == "tests":
            verb.add_argument("results", type=Path)
            verb.add_argument("--trunk", default="main")
    asked = parser.parse_args()
    repository: Path = asked.repository.resolve()
    match asked.verb:
        case "install":
            install(repository, asked.source)
        case "commit":
            event = committed(repository)
            publish(repository, event, event["body"]["commit"])
        case "merge":
            event = merged(repository)
            publish(repository, event, f"{event['subject']} {event['body']['merge_commit']}")
        case "tests":
            event = tested(repository, asked.results, asked.trunk)
            run = asked.results.stat().st_mtime_ns
            publish(repository, event, f"{git(repository, 'rev-parse', 'HEAD')} {run}")
        case _:
            flush(repository)


if __name__ == "__main__":
    main()
