"""`huginn models`, on data directories with and without weights."""

from __future__ import annotations

from pathlib import Path

from actors.cli.service_file import announced, claimed, here
from profiles import loader
from tests.huginn import answered, huginn, refused


def state(home: Path, profile: str = "tiny-gemma") -> dict[str, object]:
    rows = answered("models", "list", home=home)
    row: dict[str, object] = next(row for row in rows if row["profile"] == profile)
    return row


def test_list_on_an_empty_home(home: Path) -> None:
    rows = answered("models", "list", home=home)
    assert [row["profile"] for row in rows] == loader.names()
    assert not any(row["present"] for row in rows)
    assert {row["profile"]: (row["streams"], row["reproducible"]) for row in rows} == {
        "gemma3-270m-exact": (4, True),
        "gemma3-270m-throughput": (8, False),
        "tiny-gemma": (4, True),
    }
    assert "absent" in huginn("models", "list", home=home).stdout


def test_list_tells_the_right_file_from_another(tiny_home: Path) -> None:
    assert (state(tiny_home)["state"], state(tiny_home)["verified"]) == ("present", True)
    (tiny_home / "models" / "tiny-gemma.gguf").write_bytes(b"something else")
    assert (state(tiny_home)["state"], state(tiny_home)["verified"]) == ("other", False)


def test_show_takes_a_profile_or_a_model(tiny_home: Path) -> None:
    by_profile = answered("models", "show", "gemma3-270m-exact", home=tiny_home)
    by_model = answered("models", "show", "gemma-3-270m", home=tiny_home)
    assert by_profile == by_model
    assert by_model["runtime"]["equality"] == "bitwise"
    assert "equality" in huginn("models", "show", "tiny-gemma", home=tiny_home).stdout
    refused("models", "show", "crow", home=tiny_home, code="profile")


def test_pull_of_what_is_here_only_verifies(tiny_home: Path) -> None:
    made = answered("models", "pull", "tiny-gemma", home=tiny_home)
    assert made["path"] == str(tiny_home / "models" / "tiny-gemma.gguf")
    assert made["terms"] is None


def test_pull_of_what_no_package_has(home: Path) -> None:
    result = huginn("models", "pull", "tiny-gemma", home=home)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "put the file there" in result.stderr


def test_verify_reads_every_byte(tiny_home: Path) -> None:
    import os

    path = tiny_home / "models" / "tiny-gemma.gguf"
    assert answered("models", "verify", "tiny-gemma", home=tiny_home)["verified"]
    facts = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    # A change that size and time do not show, which the stamp therefore misses.
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert "pinned" in refused("models", "verify", "tiny-gemma", home=tiny_home, code="profile")


def test_verify_of_nothing(home: Path) -> None:
    refused("models", "verify", "tiny-gemma", home=home, code="absent")


def test_rm_asks_first_and_leaves_nothing(tiny_home: Path) -> None:
    state(tiny_home)
    refused("models", "rm", "tiny-gemma", home=tiny_home, code="usage", exit_code=2)
    assert state(tiny_home)["present"]
    answered("models", "rm", "tiny-gemma", "--yes", home=tiny_home)
    assert list((tiny_home / "models").iterdir()) == []
    refused("models", "rm", "tiny-gemma", "--yes", home=tiny_home, code="absent")


def test_rm_leaves_a_service_its_weights(tiny_home: Path) -> None:
    service = here("127.0.0.1", 7001, "embedded", "tiny-gemma")
    with claimed(tiny_home), announced(tiny_home, service):
        refused("models", "rm", "tiny-gemma", "--yes", home=tiny_home, code="busy")
    assert state(tiny_home)["present"]
