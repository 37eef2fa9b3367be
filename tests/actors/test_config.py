"""Configuration: file under environment under flags, each value with its origin, errors by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.config import LOG_LEVELS, SAMPLE, Config, default_home, load
from protocol.errors import ContentError

FIELDS = [field for field in Config.__struct_fields__ if field != "home"]
# For each key two values other than its default, as a flag or a file has them.
OTHER: dict[str, tuple[Any, Any, Any]] = {
    "host": ("0.0.0.0", "::1", "localhost"),
    "port": (0, 65535, 8000),
    "profile": ("a", "b", "c"),
    "threads_prefill": (2, 3, 4),
    "shell": ("embedded", "ray", "embedded"),
    "answer_tokens_default": (1, 2, 3),
    "answer_seconds_max": (1, 2, 3),
    "ping_seconds": (1, 2, 3),
    "receipts_max": (1, 2, 3),
    "settle_answers": (False, True, False),
    "host_bytes": (0, 1, 2**40),
    "disk_bytes": (0, 1, 2**40),
    "domain_percent_max": (1, 50, 99),
    "publish_pages": (False, True, False),
    "reminder_tokens": (64, 1000, 100_000),
    "turn_lease_seconds": (1, 2, 3),
    "session_idle_days": (1, 2, 3),
    "events_max": (1, 2, 3),
    "event_days_max": (1, 2, 3),
    "unseen_events_max": (1, 2, 3),
    "requests_open_max": (0, 2, 3),
    "requests_minute_max": (0, 2, 3),
    "log_level": ("debug", "info", "error"),
}


def written(home: Path, values: Mapping[str, Any]) -> Path:
    """A configuration file in `home`."""
    lines = [f"{key} = {_toml(value)}\n" for key, value in values.items()]
    home.mkdir(exist_ok=True)
    path = home / "huginn.toml"
    path.write_text("[huginn]\n" + "".join(lines), "utf-8")
    return path


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


def in_environment(home: Path, values: Mapping[str, Any]) -> dict[str, str]:
    return {
        "HUGINN_HOME": str(home),
        **{f"HUGINN_{key.upper()}": str(value) for key, value in values.items()},
    }


def test_every_key_is_tested_here() -> None:
    assert list(OTHER) == FIELDS


def test_with_nothing_said_everything_is_the_default(tmp_path: Path) -> None:
    found = load(environment={"HUGINN_HOME": str(tmp_path)})
    assert found.config == Config(home=str(tmp_path))
    assert found.config.home_path == tmp_path
    assert found.key_to_origin == {"home": "HUGINN_HOME", **dict.fromkeys(FIELDS, "default")}


@pytest.mark.parametrize("key", FIELDS)
@pytest.mark.parametrize(("in_file", "in_env", "as_flag"), list(product([False, True], repeat=3)))
def test_a_flag_goes_over_the_environment_and_that_over_the_file(
    tmp_path: Path, key: str, in_file: bool, in_env: bool, as_flag: bool
) -> None:
    of_file, of_env, of_flag = OTHER[key]
    expected, origin = msgspec.structs.asdict(Config(home="x"))[key], "default"
    if in_file:
        path = written(tmp_path, {key: of_file})
        expected, origin = of_file, str(path)
    if in_env:
        expected, origin = of_env, f"HUGINN_{key.upper()}"
    if as_flag:
        expected, origin = of_flag, "flag"
    found = load(
        {key: of_flag if as_flag else None},
        in_environment(tmp_path, {key: of_env} if in_env else {}),
    )
    assert getattr(found.config, key) == expected
    assert type(getattr(found.config, key)) is type(expected)
    assert found.key_to_origin[key] == origin
    # And every other key is as it was.
    rest = {name: where for name, where in found.key_to_origin.items() if name not in (key, "home")}
    assert set(rest.values()) == {"default"}


def test_an_empty_variable_is_as_if_not_set(tmp_path: Path) -> None:
    found = load(environment=in_environment(tmp_path, {"port": ""}))
    assert (found.config.port, found.key_to_origin["port"]) == (7717, "default")


def test_where_the_data_directory_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert default_home({}) == Path("/home/ada/.local/share/huginn")
    assert default_home({"XDG_DATA_HOME": "/data"}) == Path("/data/huginn")
    assert default_home({"XDG_DATA_HOME": "/data", "HUGINN_HOME": "~/h"}) == Path("/home/ada/h")
    assert default_home({"HUGINN_HOME": ""}) == Path("/home/ada/.local/share/huginn")
    assert default_home({"HUGINN_HOME": "here"}) == Path.cwd() / "here"


def test_the_file_is_the_one_of_the_data_directory_that_counts(tmp_path: Path) -> None:
    named, other = tmp_path / "named", tmp_path / "other"
    written(named, {"port": 1})
    written(other, {"port": 2})
    environment = {"HUGINN_HOME": str(other)}
    assert load(environment=environment).config.port == 2
    found = load({"home": str(named)}, environment)
    assert (found.config.home, found.config.port) == (str(named), 1)
    assert found.key_to_origin["home"] == "flag"
    assert found.key_to_origin["port"] == str(named / "huginn.toml")


def test_a_file_does_not_say_where_it_is(tmp_path: Path) -> None:
    path = written(tmp_path, {"home": "/elsewhere"})
    with pytest.raises(ContentError, match="home is where this file is") as caught:
        load(environment={"HUGINN_HOME": str(tmp_path)})
    assert str(path) in caught.value.message


def test_an_unknown_key_is_refused_by_name(tmp_path: Path) -> None:
    environment = {"HUGINN_HOME": str(tmp_path)}
    path = written(tmp_path, {"prot": 7717})
    with pytest.raises(ContentError) as caught:
        load(environment=environment)
    assert caught.value.message.startswith(f"{path}: unknown key 'prot'; known keys: home, host,")
    path.unlink()
    with pytest.raises(ContentError, match="flag: unknown key 'gpu'"):
        load({"gpu": 1}, environment)
    # Others' variables are nobody's business here.
    assert load(environment={**environment, "HUGINN_GPU": "1"}).config.port == 7717


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("port", "eighty"),
        ("port", 77.5),
        ("threads_prefill", [1]),
        ("settle_answers", "perhaps"),
        ("host", 7),
        ("profile", {"a": 1}),
    ],
)
def test_a_value_of_another_type_is_named_with_where_it_stands(
    tmp_path: Path, key: str, value: Any
) -> None:
    with pytest.raises(ContentError) as caught:
        load({key: value}, {"HUGINN_HOME": str(tmp_path)})
    assert caught.value.message.startswith(f"flag: {key}: Expected `")


def test_a_variable_of_another_type_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContentError, match="HUGINN_PORT: port: Expected `int`, got `str`"):
        load(environment=in_environment(tmp_path, {"port": "x"}))
    path = written(tmp_path, {"port": "x"})
    with pytest.raises(ContentError) as caught:
        load(environment={"HUGINN_HOME": str(tmp_path)})
    assert caught.value.message.startswith(f"{path}: port: Expected `int`")


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_a_port_is_a_port(tmp_path: Path, port: int) -> None:
    with pytest.raises(ContentError, match=f"HUGINN_PORT: port {port} is not in 0 … 65535"):
        load(environment=in_environment(tmp_path, {"port": port}))


@pytest.mark.parametrize("key", ["threads_prefill", "ping_seconds", "receipts_max"])
def test_what_counts_something_is_at_least_one(tmp_path: Path, key: str) -> None:
    environment = {"HUGINN_HOME": str(tmp_path)}
    assert getattr(load({key: 1}, environment).config, key) == 1
    with pytest.raises(ContentError, match=f"flag: {key} is 0, at least 1"):
        load({key: 0}, environment)


def test_a_shell_and_a_log_level_are_ones_that_exist(tmp_path: Path) -> None:
    environment = {"HUGINN_HOME": str(tmp_path)}
    with pytest.raises(ContentError, match="flag: shell 'bash' is not ray or embedded"):
        load({"shell": "bash"}, environment)
    with pytest.raises(ContentError, match=r"flag: log_level is one of debug, .*critical"):
        load({"log_level": "loud"}, environment)
    for level in LOG_LEVELS:
        assert load({"log_level": level}, environment).config.log_level == level


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[huginn\nport = 1\n", "is not TOML"),
        ("port = 1\n", r"everything belongs under \[huginn\]; found \['port'\]"),
        ("[huginn]\n[raven]\n", r"found \['raven'\]"),
        ("huginn = 3\n", r"everything belongs under \[huginn\]"),
    ],
)
def test_a_file_that_is_not_one_is_said_to_be_none(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "huginn.toml").write_text(text, "utf-8")
    with pytest.raises(ContentError, match=complaint):
        load(environment={"HUGINN_HOME": str(tmp_path)})


def test_a_file_of_no_encoding_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "huginn.toml").write_bytes(b'[huginn]\nhost = "\xff"\n')
    with pytest.raises(ContentError, match="is not TOML"):
        load(environment={"HUGINN_HOME": str(tmp_path)})


def test_the_sample_is_the_defaults_with_and_without_its_comment_signs(tmp_path: Path) -> None:
    environment = {"HUGINN_HOME": str(tmp_path)}
    path = tmp_path / "huginn.toml"
    path.write_text(SAMPLE, "utf-8")
    assert load(environment=environment).config == Config(home=str(tmp_path))
    heading, _, keys = SAMPLE.partition("[huginn]\n")
    assert all(line.startswith("#") for line in heading.splitlines())
    bare = "[huginn]\n" + "".join(line.removeprefix("# ") for line in keys.splitlines(True))
    assert list(tomllib.loads(bare)["huginn"]) == FIELDS
    path.write_text(bare, "utf-8")
    found = load(environment=environment)
    assert found.config == Config(home=str(tmp_path))
    assert {found.key_to_origin[key] for key in FIELDS} == {str(path)}


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_a_domains_share_is_a_part_of_the_whole(tmp_path: Path, percent: int) -> None:
    with pytest.raises(ContentError, match=f"flag: domain_percent_max is {percent}, 1 … 100"):
        load({"home": str(tmp_path), "domain_percent_max": percent}, environment={})
