"""Profile files are refused with the key that is wrong, and the file it is in."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from profiles import loader
from protocol.errors import ProfileFault

SHIPPED = loader._DIRECTORY / "tiny-gemma.toml"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tiny-gemma.toml"
    path.write_text(text, encoding="utf-8")
    return path


def keys() -> list[str]:
    """Every `key = value` line of the shipped file."""
    lines = SHIPPED.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if re.match(r"^\w+ = ", line)]


@pytest.mark.req("KV-1")
@pytest.mark.parametrize("line", keys())
def test_no_key_may_be_missing_or_misspelt(tmp_path: Path, line: str) -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    key = line.partition(" ")[0]
    missing = write(tmp_path, text.replace(f"\n{line}\n", "\n"))
    with pytest.raises(ProfileFault) as caught:
        loader.load(missing)
    assert f"`{key}`" in str(caught.value)
    assert str(missing) in str(caught.value)
    with pytest.raises(ProfileFault, match=f"{key}"):
        loader.load(write(tmp_path, text.replace(f"\n{line}\n", f"\n{key}_s{line[len(key) :]}\n")))


@pytest.mark.parametrize("line", keys())
def test_no_value_may_be_of_another_type(tmp_path: Path, line: str) -> None:
    key, _, value = line.partition(" = ")
    parsed = tomllib.loads(line)[key]
    wrong = "7" if isinstance(parsed, str) else '"7"'
    path = write(
        tmp_path,
        SHIPPED.read_text(encoding="utf-8").replace(f"{key} = {value}", f"{key} = {wrong}"),
    )
    with pytest.raises(ProfileFault) as caught:
        loader.load(path)
    assert f".{key}`" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('kv_type = "f16"', 'kv_type = "q4_0"', "kv_type"),
        ("swa_full = true", "swa_full = false", "swa_full"),
        ("kv_unified = false", "kv_unified = true", "kv_unified"),
        ('equality = "bitwise"', 'equality = "close"', "equality"),
        ("streams = 4", "streams = 0", "streams"),
        ('file = "tiny-gemma.gguf"', 'file = "../tiny.gguf"', "file"),
        ("[model]", "[modle]", "modle"),
        ('sha256 = "', 'sha256 = "A', "sha256"),
        ('grammar = "gemma3-it"', 'grammar = "Gemma 3"', "grammar"),
    ],
)
def test_values_outside_their_range_are_refused(
    tmp_path: Path, old: str, new: str, named: str
) -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    assert old in text
    with pytest.raises(ProfileFault, match=named):
        loader.load(write(tmp_path, text.replace(old, new, 1)))
