"""Which tests prove which requirement: `python -m tests.trace`.

Reads `docs/requirements.md` and the `req` marks of every test, prints each row with the tests that
name it, and fails on a row marked *done* that no test names, a mark that names no row, or a
status that is not one of done, partly, open.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
REQUIREMENTS = ROOT / "docs" / "requirements.md"
STATUSES = ("done", "partly", "open")
_ROW = re.compile(
    r"^\| (?P<id>[A-Z]+-\d+) \| (?P<status>\w+) \| (?P<origin>[^|]*) \| (?P<text>.*) \|$"
)


def rows() -> dict[str, tuple[str, str]]:
    """Requirement id → (status, text), in the document's order."""
    found = {}
    for line in REQUIREMENTS.read_text("utf-8").splitlines():
        match = _ROW.match(line)
        if match:
            found[match["id"]] = (match["status"], match["text"])
    return found


def marks() -> dict[str, list[str]]:
    """Requirement id → the tests that name it, as file::test."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        whole = [node for node in tree.body if isinstance(node, ast.Assign)]
        file_ids = [i for node in whole if _is_pytestmark(node) for i in _ids(node.value)]
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                ids = [i for decorator in node.decorator_list for i in _ids(decorator)]
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    ids += file_ids if node.name.startswith("test") else []
                for requirement in dict.fromkeys(ids):
                    test = f"{path.relative_to(ROOT)}::{node.name}"
                    found.setdefault(requirement, []).append(test)
        for node in whole:
            # `TestX = pytest.mark.req("…")(Machine.TestCase)`: a state machine's test.
            if not _is_pytestmark(node) and (ids := _ids(node.value)):
                name = node.targets[0].id if isinstance(node.targets[0], ast.Name) else "?"
                for requirement in ids:
                    found.setdefault(requirement, []).append(f"{path.relative_to(ROOT)}::{name}")
    return found


def _is_pytestmark(node: ast.Assign) -> bool:
    return any(
        isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
    )


def _ids(node: ast.AST) -> list[str]:
    return [
        argument.value
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "req"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def problems() -> list[str]:
    """What does not hold between the table and the tests."""
    table, named = rows(), marks()
    found = [
        f"{i}: status {s!r} is none of {STATUSES}"
        for i, (s, _) in table.items()
        if s not in STATUSES
    ]
    found += [
        f"{i} is done, but no test names it"
        for i, (s, _) in table.items()
        if s == "done" and i not in named
    ]
    found += [
        f"{i} is named by {tests[0]}, but is no row" for i, tests in named.items() if i not in table
    ]
    return found


def main() -> int:
    table, named = rows(), marks()
    for requirement, (status, text) in table.items():
        tests = named.get(requirement, [])
        sys.stdout.write(f"{requirement:8} {status:7} {len(tests):3} tests  {text[:90]}\n")
        for test in tests:
            sys.stdout.write(f"{'':21}{test}\n")
    found = problems()
    counts = {status: sum(1 for s, _ in table.values() if s == status) for status in STATUSES}
    sys.stdout.write(", ".join(f"{count} {status}" for status, count in counts.items()) + "\n")
    for problem in found:
        sys.stderr.write(f"trace: {problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
