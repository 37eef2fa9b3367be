"""ARCHITECTURE.md names every room, message, package and invariant that there is."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
ROOMS = ("authority", "ropes", "muninn", "events", "assembler", "worker")


def messages(room: str) -> set[str]:
    operations = importlib.import_module(f"protocol.messages.{room}").OPERATIONS
    records = {record for operation in operations.values() for record in operation[:2]}
    return {record.__name__ for record in records} - {"Empty"}


@pytest.mark.parametrize("room", [*ROOMS, "gateway"])
def test_every_room_is_named(room: str) -> None:
    assert f"**{room}**" in TEXT
    assert (ROOT / "actors" / room).is_dir()


@pytest.mark.parametrize("room", ROOMS)
def test_every_message_is_named(room: str) -> None:
    missing = {name for name in messages(room) if f"`{name}`" not in TEXT}
    assert not missing


@pytest.mark.req("KV-12")
@pytest.mark.parametrize("room", ["authority", "ropes", "muninn", "events", "gateway"])
def test_a_room_that_runs_no_model_loads_nothing_of_one(room: str) -> None:
    """In a process that has all of the room's modules, directly or not. That those which see no
    prompt name no grammar and no tokens is one of the import rules of `make check`."""
    folder = ROOT / "actors" / room
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in folder.rglob("*.py")
    ]
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"llama_cpp", "torch", "numpy", "gguf", "profiles"}
    rooms = {tuple(name.split(".")[:2]) for name in done.stdout.split()}
    assert not rooms & {("actors", "worker"), ("actors", "assembler")}


def test_every_module_that_is_named_exists() -> None:
    for name in re.findall(r"`((?:actors|protocol|store|profiles|tests|bench)/[\w/.]+)`", TEXT):
        assert (ROOT / name).exists(), name


def test_every_folder_with_rooms_is_a_room_or_a_shell() -> None:
    folders = {path.name for path in (ROOT / "actors").iterdir() if (path / "__init__.py").exists()}
    assert folders == {*ROOMS, "gateway", "runtime", "cli", "experiment"}
