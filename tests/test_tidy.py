"""House rules, as an ordinary test: sizes, names, mirrored tests, nothing left unfinished."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("protocol", "store", "profiles", "actors")
MODULE_LINES_MAX = 400
MODULE_LINES_MEDIAN_MAX = 150
FUNCTION_LINES_MAX = 60
TEST_FUNCTION_LINES_MAX = 80
# A name that fits everything says nothing.
BANNED_STEMS = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
# What a finished line does not say.
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError")
# Modules whose tests are elsewhere, each with the place.
TESTED_ELSEWHERE = {
    "protocol/messages/__init__.py": "tests/protocol/test_messages.py",
    "protocol/messages/assembler.py": "tests/protocol/test_messages.py",
    "protocol/messages/authority.py": "tests/protocol/test_messages.py",
    "protocol/messages/ropes.py": "tests/protocol/test_messages.py",
    "protocol/messages/worker.py": "tests/protocol/test_messages.py",
}


def tracked(*patterns: str) -> list[Path]:
    """Files that git tracks, or would: new ones count, ignored ones do not."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [ROOT / line for line in sorted(set(listed)) if (ROOT / line).exists()]


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in tracked(f"{package}/*.py")]


def lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_modules_are_short() -> None:
    sizes = {str(path.relative_to(ROOT)): lines(path) for path in sources()}
    too_long = {name: size for name, size in sizes.items() if size > MODULE_LINES_MAX}
    assert not too_long, f"over {MODULE_LINES_MAX} lines: split by idea"
    assert statistics.median(sizes.values()) <= MODULE_LINES_MEDIAN_MAX


def test_functions_are_short() -> None:
    limits = dict.fromkeys(tracked("tests/*.py", "bench/*.py"), TEST_FUNCTION_LINES_MAX)
    limits.update(dict.fromkeys(sources(), FUNCTION_LINES_MAX))
    too_long = [
        f"{path.relative_to(ROOT)}: {name} has {size} lines"
        for path, lines_max in limits.items()
        for name, size in functions(path)
        if size > lines_max
    ]
    assert not too_long, "\n".join(too_long)


def test_no_module_is_named_for_everything() -> None:
    assert not [path for path in tracked("*.py") if path.stem in BANNED_STEMS]


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in [*sources(), *tracked("bench/*.py")]
        if path.read_text("utf-8").strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_nothing_is_left_unfinished() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked("*.py", "Makefile", "*.toml", "*.yaml")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert not found


def only_declares(path: Path) -> bool:
    """Whether a module has nothing that runs: constants, data classes, interfaces."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [each for each in node.body if not isinstance(each, ast.Expr)]
            if body:
                return False
    return True


@pytest.mark.parametrize("package", PACKAGES)
def test_tests_mirror_the_source(package: str) -> None:
    """Every module with code has a test file of its own name in the same place, or is listed."""
    missing = []
    for path in tracked(f"{package}/*.py"):
        name = str(path.relative_to(ROOT))
        if only_declares(path) and name not in TESTED_ELSEWHERE:
            continue
        stem = path.parent.name if path.stem == "__init__" else path.stem
        expected = ROOT / "tests" / path.relative_to(ROOT).parent / f"test_{stem}.py"
        if name in TESTED_ELSEWHERE:
            expected = ROOT / TESTED_ELSEWHERE[name]
        if not expected.exists():
            missing.append(f"{name}: no {expected.relative_to(ROOT)}")
    assert not missing, "\n".join(missing)


def test_the_lists_above_are_true() -> None:
    for source, test in TESTED_ELSEWHERE.items():
        assert (ROOT / source).exists(), f"{source} is gone: take it off the list"
        assert (ROOT / test).exists(), f"{test} is gone"
