"""`huginn experiment`: one profile, cold, warm, edited, evicted, restarted, elsewhere; measured.

It runs services of its own on temporary data directories and leaves nothing but its report.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from actors.cli.asked import Asked, verb

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command()
@verb
@click.option("--profile", help="A name of `huginn models list`, or a TOML file.")
@click.option("--tokens", type=click.IntRange(min=1), default=2000, show_default=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option(
    "--shell",
    type=click.Choice(["embedded", "ray"]),
    default="embedded",
    show_default=True,
    help="What runs the rooms.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Draws the conversations.")
@click.pass_context
def experiment(
    context: click.Context,
    asked: Asked,
    *,
    profile: str | None,
    tokens: int,
    out: Path,
    shell: str,
    seed: int,
) -> None:
    """Measure reuse and check that every way to a state gives the same one; exit 1 if not.

    Conversations of about TOKENS tokens; writes report.json, report.md and report.svg to OUT.
    """
    from actors.cli.fetch import ensure_library, ensure_weights
    from actors.experiment import report
    from actors.experiment.checks import check, fields_of
    from actors.experiment.conditions import STEPS, Experiment
    from profiles import loader

    config = asked.config()
    name = profile or config.profile
    spec = loader.load(name)
    weights_file = ensure_weights(spec, config.home_path, asked).resolve()
    ensure_library(asked)
    machine = report.machine()
    with _ended_by_signals(), _progress(asked, STEPS) as tell:
        run = Experiment(name, shell, weights_file, tokens=tokens, seed=seed, tell=tell)
        rows = run.run()
    runtime = spec.runtime
    fields = fields_of(equality=runtime.equality, reproducible=runtime.reproducible_generation)
    checks = check(rows, fields)
    head = {
        "profile": spec.name,
        "profile_id": rows[0]["profile_id"],
        "machine": machine,
        "seed": seed,
        "tokens": tokens,
        "shell": shell,
        "log": run.log,
    }
    document = report.document(head, rows, checks)
    files = report.write(document, out)
    asked.show(document, lambda: _people(document, files))
    for each in checks:
        if not each.ok:
            asked.note(f"huginn: {each.name} fails in: {', '.join(each.failed)}")
    if not document["ok"]:
        context.exit(1)


def _people(document: dict[str, Any], files: list[Path]) -> RenderableType:
    from rich.console import Group

    from actors.cli.output import table
    from actors.experiment.report import COLUMNS, cells

    held = sum(each["ok"] for each in document["checks"])
    return Group(
        table(COLUMNS, map(cells, document["rows"])),
        "",
        f"{held} of {len(document['checks'])} checks hold; written: {', '.join(map(str, files))}",
    )


@contextmanager
def _progress(asked: Asked, steps: tuple[str, ...]) -> Iterator[Callable[[str], None]]:
    """What is told the condition that begins: a bar on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        told: set[str] = set()

        def line(step: str) -> None:
            if step not in told:
                told.add(step)
                asked.note(f"{len(told)}/{len(steps)} {step}")

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("starting", total=len(steps))

        def tell(step: str) -> None:
            shown.update(task, description=step, completed=steps.index(step))

        yield tell


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP are as Ctrl-C: what was started is stopped and removed."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    former = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
