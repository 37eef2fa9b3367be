"""Faults that are put into the product on purpose, to see that a test finds them.

A mutation replaces one piece of the source of one function. The function's code is compiled anew
from the changed file and takes the place of the old one while the context is open. A piece that is
not there, or twice, fails: a list of mutations cannot outlive what it mutates.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, NamedTuple


class Mutation(NamedTuple):
    """In the function `function` of `module`, `old` becomes `new`."""

    module: str
    function: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.module} {self.function}: {self.old} -> {self.new}"


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """The product with this fault in it."""
    function = _function(mutation)
    source = inspect.getsource(function)
    assert source.count(mutation.old) == 1, f"{mutation}: found {source.count(mutation.old)} times"
    module = inspect.getsource(importlib.import_module(mutation.module))
    assert module.count(source) == 1, f"{mutation}: the function stands there twice"
    changed = module.replace(source, source.replace(mutation.old, mutation.new))
    file = function.__code__.co_filename
    # The flags of the module itself: `annotations` is all that is imported from the future.
    code = _find(compile(changed, file, "exec"), mutation.function)
    assert code.co_freevars == function.__code__.co_freevars
    before, function.__code__ = function.__code__, code
    try:
        yield
    finally:
        function.__code__ = before


def _function(mutation: Mutation) -> FunctionType:
    found: Any = importlib.import_module(mutation.module)
    for name in mutation.function.split("."):
        found = inspect.getattr_static(found, name)
    if isinstance(found, property):
        found = found.fget
    assert isinstance(found, FunctionType), f"{mutation}: no function"
    return found


def _find(code: CodeType, qualname: str) -> CodeType:
    nested = [const for const in code.co_consts if isinstance(const, CodeType)]
    for each in nested:
        if each.co_qualname == qualname:
            return each
    for each in nested:
        if qualname.startswith(each.co_qualname + "."):
            return _find(each, qualname)
    raise AssertionError(f"no function {qualname}")
