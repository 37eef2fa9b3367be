"""No transport knows the event path (EVT-7): which modules may say what to the events room.

A dialect and a chat network carry turns by the courier, and a new one needs nothing else. Whoever
asks the events room needs a record to ask with and a way to the room: both are looked for by the
names that a module imports, and exactly the modules below have them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import actors
from protocol.messages import Empty
from protocol.messages.events import OPERATIONS

GATEWAY = Path(actors.__file__).parent / "gateway"
ROOM = "actors.events"
MESSAGES = "protocol.messages.events"
ASKS = {operation.ask.__name__ for operation in OPERATIONS.values()} - {Empty.__name__}
# What each asks. All of a turn is the courier's.
MAY_ASK = {
    "courier.py": {"BeginTurn", "RenewTurn", "FinishTurn", "AbandonTurn"},
    "sessions.py": {"OpenSession"},
    "event_feed.py": {"Follow", "ListSources"},
    # The resources of the installation's own API, which are about events and nothing else.
    "http/kept_responses.py": {"AskResponse"},
    "http/native_events.py": {"AppendEvents", "ReadEvents"},
    "http/native_sessions.py": {"AskSession", "ListSessions", "Preview"},
    "http/native_sources.py": {"AddSource", "ListSources", "RegisterKind", "RemoveSource"},
}
# Asks how the room is, with nothing.
ALSO_REACH = {"http/health.py"}


def imports(tree: ast.AST) -> Iterator[str]:
    """The full names of everything that a module imports, however it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A dot is a package that is not known here: no module of the gateway writes one.
            module = "." * node.level + (node.module or "")
            yield from (f"{module}.{each.name}" for each in node.names)


def texts(tree: ast.AST) -> set[str]:
    """Every text that a module has, its docstrings too."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def reaches(tree: ast.AST) -> bool:
    """Whether a module has the room's name, as a text to call it by or by way of another module."""
    called = [name.rpartition(".")[2] for name in imports(tree)]
    named = [
        node.args[0] if isinstance(node, ast.Call) and node.args else getattr(node, "value", None)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.Assign | ast.AnnAssign)
    ]
    room = [each for each in named if isinstance(each, ast.Constant) and each.value == "events"]
    return bool(room) or not {"ask_events", "EVENTS"}.isdisjoint(called)


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.AST]:
    return {
        str(path.relative_to(GATEWAY)): ast.parse(path.read_text("utf-8"))
        for path in sorted(GATEWAY.rglob("*.py"))
    }


def is_of(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


@pytest.mark.req("EVT-7")
def test_the_gateway_imports_nothing_of_the_room(trees: dict[str, ast.AST]) -> None:
    for path, tree in trees.items():
        names = list(imports(tree))
        assert not [name for name in names if is_of(name, ROOM) or name.startswith(".")], path
        assert not [text for text in texts(tree) if is_of(text, ROOM)], path


@pytest.mark.req("EVT-7")
def test_exactly_these_may_ask_it(trees: dict[str, ast.AST]) -> None:
    asking: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for name in imports(tree):
            # The whole of the messages is every message.
            assert name not in (MESSAGES, f"{MESSAGES}.*"), path
            if is_of(name, MESSAGES) and name.rpartition(".")[2] in ASKS:
                asking[path].add(name.rpartition(".")[2])
    assert asking == MAY_ASK
    assert {path for path, tree in trees.items() if reaches(tree)} == MAY_ASK.keys() | ALSO_REACH


@pytest.mark.parametrize(
    "line",
    [
        "import actors.events",
        "import actors.events.book as b",
        "from actors import events",
        "from actors import gateway, events as e",
        "from actors.events import book",
        "from actors.events.book import Book",
        "def f():\n    from actors.events.book import Book",
    ],
)
def test_an_import_is_seen_however_it_is_written(line: str) -> None:
    assert [name for name in imports(ast.parse(line)) if is_of(name, ROOM)]


@pytest.mark.parametrize(
    "line",
    [
        "await caller.ask('events', 'append', ask, Appended)",
        "mailbox.call('events', message)",
        "ROOM = 'events'",
        "ROOM: Final = 'events'",
        "from actors.gateway.sessions import ask_events as ask",
        "from actors.gateway.event_feed import EVENTS",
    ],
)
def test_a_way_to_the_room_is_seen(line: str) -> None:
    assert reaches(ast.parse(line))
    assert not reaches(ast.parse("shown = {'events': 1}\n'events'\nfrom a import b"))
