"""What every verb is asked with: `--json` and `--home`, and how it answers and fails."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from actors.config import Config, Origins

Json = dict[str, Any]


class Failure(Exception):
    """What a verb cannot do: one line for people, a short `code` and `details` for programs."""

    def __init__(self, message: str, *, code: str = "failed", **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.details = details


@dataclass(frozen=True)
class Asked:
    """How one verb was called. `home` is None where the environment decides."""

    json: bool
    home: Path | None = None

    def origins(self, flags: Mapping[str, Any] | None = None) -> Origins:
        """The configuration, with each value's origin. Raises ContentError."""
        from actors.config import load

        return load({"home": None if self.home is None else str(self.home), **(flags or {})})

    def config(self) -> Config:
        """The configuration that a service of this home would have."""
        return self.origins().config

    def show(self, document: object, people: Callable[[], RenderableType]) -> None:
        """Answer: `document` for programs, what `people` makes for people."""
        if self.json:
            emit(document)
            return
        from actors.cli.output import console

        shown = people()
        if isinstance(shown, str):
            # As it is: a long line is one line, also for the program behind a pipe.
            print(shown, flush=True)
        else:
            console().print(shown)

    def pieces(self) -> Callable[[str], None]:
        """What writes an answer as it comes: nothing with `--json`; safe text on a terminal."""
        if self.json:
            return _ignore
        if not sys.stdout.isatty():
            return _write
        from actors.cli.output import printable

        return lambda piece: _write(printable(piece))

    def note(self, line: str) -> None:
        """A line for people, on standard error: progress, warnings."""
        print(line, file=sys.stderr, flush=True)


def _ignore(piece: str) -> None: ...


def _write(piece: str) -> None:
    sys.stdout.write(piece)
    sys.stdout.flush()


def emit(document: object) -> None:
    """One JSON value as one line on standard output."""
    print(json.dumps(document), flush=True)


def report(error: Failure, *, as_json: bool) -> None:
    """Tell an error: one line on standard error, and with `--json` an object as the answer."""
    print(f"huginn: {' '.join(error.message.split())}", file=sys.stderr, flush=True)
    if as_json:
        emit({"error": {"message": error.message, "code": error.code, **error.details}})


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--json` and `--home`; the function takes the `Asked` first."""

    @click.option("--json", "as_json", is_flag=True, help="Answer in JSON, and in nothing else.")
    @click.option(
        "--home",
        type=click.Path(file_okay=False, path_type=Path),
        help="Data directory, in place of $HUGINN_HOME.",
    )
    @functools.wraps(function)
    def wrapped(*args: Any, as_json: bool, home: Path | None, **options: Any) -> None:
        place = None if home is None else Path(os.path.abspath(home.expanduser()))
        function(Asked(as_json, place), *args, **options)

    return wrapped
