"""`huginn config`."""

from __future__ import annotations

from pathlib import Path

from actors.config import SAMPLE, load
from tests.huginn import answered, huginn, refused


def test_show_has_every_key(home: Path) -> None:
    shown = answered("config", "show", home=home)
    assert shown["port"] == 7717
    assert shown["home"] == str(home)


def test_show_says_where_each_value_came_from(home: Path) -> None:
    (home / "huginn.toml").write_text('[huginn]\nhost = "::1"\nport = 7001\n')
    shown = answered("config", "show", "--origin", home=home, HUGINN_PORT="7002")
    assert shown["port"] == {"value": 7002, "origin": "HUGINN_PORT"}
    assert shown["host"] == {"value": "::1", "origin": str(home / "huginn.toml")}
    assert shown["shell"] == {"value": "ray", "origin": "default"}
    assert shown["home"]["origin"] == "HUGINN_HOME"
    people = huginn("config", "show", "--origin", home=home).stdout
    assert "huginn.toml" in people


def test_a_home_flag_brings_its_own_file(home: Path, tmp_path: Path) -> None:
    (home / "huginn.toml").write_text("[huginn]\nport = 7001\n")
    shown = answered("config", "show", "--home", str(home), home=tmp_path)
    assert (shown["home"], shown["port"]) == (str(home), 7001)


def test_init_writes_a_sample_that_changes_nothing(home: Path) -> None:
    before = load({"home": str(home)}, {}).config
    path = Path(answered("config", "init", home=home)["path"])
    assert path.read_text() == SAMPLE
    assert load({"home": str(home)}, {}).config == before


def test_init_replaces_nothing_unasked(home: Path) -> None:
    (home / "huginn.toml").write_text("[huginn]\nport = 7001\n")
    assert "--force" in refused("config", "init", home=home, code="exists")
    assert "7001" in (home / "huginn.toml").read_text()
    answered("config", "init", "--force", home=home)
    assert (home / "huginn.toml").read_text() == SAMPLE
