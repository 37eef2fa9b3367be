"""The group: exit statuses, error lines, and what it has to load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from actors import VERSION
from actors.cli.main import main
from tests.huginn import answered, huginn, refused

_HEAVY = ("ray", "aiohttp", "msgspec", "rich", "nacl", "apsw", "cbor2", "llama_cpp", "numpy")


def verbs() -> list[list[str]]:
    found = []
    for name, command in main.commands.items():
        inner = getattr(command, "commands", None)
        found += [[name]] if inner is None else [[name, each] for each in inner]
    return found


@pytest.mark.req("SRV-3")
def test_the_verbs_that_people_know_are_there() -> None:
    expected = "chat config ctx doctor down experiment fsck key models ps run status up"
    assert set(main.commands) >= {*expected.split(), "verify", "version"}


@pytest.mark.parametrize("words", verbs(), ids=" ".join)
def test_every_verb_takes_json_and_home_and_explains_itself(words: list[str], home: Path) -> None:
    result = huginn(*words, "--help", home=home)
    assert result.exit_code == 0
    assert "--json" in result.output
    assert "--home" in result.output


def test_version(home: Path) -> None:
    assert answered("version", home=home) == {"version": VERSION}
    assert huginn("version", home=home).stdout == f"huginn {VERSION}\n"


@pytest.mark.parametrize("words", [["bogus"], ["key", "new"], ["up", "--port", "x"], ["models"]])
def test_wrong_use_exits_2(words: list[str], home: Path) -> None:
    if words == ["models"]:
        assert huginn(*words, home=home).exit_code == 2
        return
    refused(*words, home=home, code="usage", exit_code=2)


def test_a_failure_exits_1_and_stdout_stays_empty(home: Path) -> None:
    result = huginn("ps", home=home, HUGINN_API_KEY="hg-x", HUGINN_PORT="1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("huginn: no service answers at http://127.0.0.1:1")


def test_json_after_a_double_dash_is_an_argument(home: Path) -> None:
    result = huginn("bogus", "--", "--json", home=home)
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_wrong_configuration_is_named(home: Path) -> None:
    (home / "huginn.toml").write_text("[huginn]\nprot = 1\n")
    assert "prot" in refused("config", "show", home=home, code="content")


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "actors.cli", "version", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"version": VERSION}


def test_version_needs_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from actors.cli.main import main\n"
        "main(['version'], standalone_mode=False)\n"
        f"print([name for name in {_HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
