"""`huginn fsck`: check everything that is kept, while no service uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actors.cli.asked import Asked, Failure, Json, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

    from store.fsck import FsckReport, Problem

_MENDED = frozenset({"removed", "repaired"})
# What a fetch of weights leaves behind when it is killed.
_FETCHES = "models/.fetch-*"


@click.command()
@verb
@click.option(
    "--repair",
    is_flag=True,
    help="Remove leftovers and torn tails, set suspects aside, close modes.",
)
@click.option(
    "--erased",
    metavar="WHAT",
    help="Prove besides that nothing is left of WHAT, which was erased: a domain, a principal, a "
    "namespace, the id of an erasure, or 'all'. Exit 1 if no erasure is called so.",
)
@click.pass_context
def fsck(context: click.Context, asked: Asked, repair: bool, erased: str | None) -> None:
    """Check every hash, file, reference and chain; exit 1 if a person is needed.

    Runs while the service is down. Without --repair it changes nothing. Prefix states (pages/) are
    derived, and verified whenever one is used: they are counted, and not read.
    """
    from actors.cli.service_file import claimed
    from store.fsck import FsckReport

    home = asked.config().home_path
    if not home.is_dir():
        raise Failure(f"there is no data directory {home}", code="no_home")
    report = FsckReport()
    erasures = 0
    with claimed(home):
        if erased is not None:
            from actors.cli.erased import check_erased

            # First: opening a file would put its log away unseen.
            erasures = check_erased(home, erased, report, repair=repair)
        _check_leftovers(home, report, repair)
        _check_modes(home, report, repair)
        _check_rooms(home, report, repair)
    ok = all(problem.action in _MENDED for problem in report.problems)
    pages = _pages(home)
    document = _document(report, ok, pages)
    if erased is not None:
        document |= {"erased": erased, "erasures": erasures}
    matched = None if erased is None else f"{erasures} erasures of {erased!r} looked for"
    asked.show(document, lambda: _people(report, ok, pages, matched))
    if not ok:
        context.exit(1)


def _check_rooms(home: Path, report: FsckReport, repair: bool) -> None:
    from protocol.errors import HuginnError
    from store.blobs import BlobFiles
    from store.fsck import check_database, check_objects
    from store.sqlite import Database
    from store.sqlite_objects import SqliteObjectStore

    for path in sorted((home / "rooms").glob("*.sqlite")):
        try:
            database = Database(path)
        except HuginnError as error:
            report.add("unreadable", path, error.message)
            continue
        try:
            check_database(database, report, repair=repair)
            # The ropes room alone owns objects, and the files that large ones lie in.
            if path.stem == "ropes":
                blobs = BlobFiles(home / "blobs")
                check_objects(SqliteObjectStore(database, blobs), report, repair=repair)
        finally:
            database.close()


def _check_modes(home: Path, report: FsckReport, repair: bool) -> None:
    """Directories of ours are 0700, and keys 0600: an open key is everybody's key, whichever of the
    files that hold one it lies in."""
    for path, mode in _private(home):
        found = path.stat().st_mode & 0o777
        if found & ~mode:
            action = "reported"
            if repair:
                path.chmod(mode)
                action = "repaired"
            report.add("mode", path, f"has mode {found:o}: chmod {mode:o}", action)


def _private(home: Path) -> Iterator[tuple[Path, int]]:
    from actors.gateway.transports.matrix_account import private_files
    from store.files import UNFINISHED

    yield home, 0o700
    for name in ("keys", "rooms", "blobs", "pages"):
        if (home / name).is_dir():
            yield home / name, 0o700
    keys = [home / "operator.key", *private_files(home)]
    for name in ("keys", "remote-keys"):
        keys += sorted((home / name).glob("*"))
    for path in dict.fromkeys(keys):
        if path.is_file() and path.suffix != UNFINISHED:
            yield path, 0o600


def _check_leftovers(home: Path, report: FsckReport, repair: bool) -> None:
    from store.files import UNFINISHED

    for directory in (home, home / "keys"):
        for path in sorted(directory.glob(f".*{UNFINISHED}")):
            if repair:
                path.unlink()
            action = "removed" if repair else "reported"
            report.add("unfinished", path, "left by a write that never ended", action)
    for path in sorted(home.glob(_FETCHES)):
        if repair:
            import shutil

            shutil.rmtree(path)
        action = "removed" if repair else "reported"
        report.add("unfinished", path, "left by a fetch of weights that never ended", action)


def _pages(home: Path) -> int:
    """How many files of pages there are: derived, whatever is in them."""
    return sum(path.is_file() for path in (home / "pages").glob("*/*"))


def _document(report: FsckReport, ok: bool, pages: int) -> Json:
    return {
        "ok": ok,
        "objects": report.objects,
        "bytes": report.bytes,
        "files": report.files,
        "logs": report.logs,
        "log_entries": report.log_entries,
        "event_logs": report.event_logs,
        "events": report.events,
        "derived_pages": pages,
        "problems": [_problem(problem) for problem in report.problems],
    }


def _problem(problem: Problem) -> Json:
    return {
        "kind": problem.kind,
        "where": problem.where,
        "what": problem.what,
        "action": problem.action,
    }


def _people(report: FsckReport, ok: bool, pages: int, matched: str | None) -> RenderableType:
    from rich.console import Group

    from actors.cli.output import size, table

    summary = (
        f"{report.objects} objects ({size(report.bytes)}), {report.files} files, "
        f"{report.logs} logs with {report.log_entries} entries, "
        f"{report.event_logs} event logs with {report.events} events, "
        f"{pages} derived pages (not read): "
        f"{'clean' if ok else 'damaged'}"
    )
    if matched is not None:
        summary = f"{matched}; {summary}"
    if not report.problems:
        return summary
    rows = [(each.kind, each.where, each.what, each.action) for each in report.problems]
    return Group(table(("kind", "where", "what", "action"), rows), "", summary)
