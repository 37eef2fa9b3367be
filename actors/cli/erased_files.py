"""`huginn fsck --erased`, among files: pages, keys, large bodies, and what no row of a file owns.

A file that nothing names is a trace, whoever's it was: that is what an erasure leaves that died
half way. `--repair` removes it, as the erasure would have, and writes files anew that have in them
what they do not say.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from protocol.errors import HuginnError

if TYPE_CHECKING:
    from store.fsck import FsckReport
    from store.sqlite_objects import SqliteObjectStore

TRACE: Final = "erased"


def check_dead_space(home: Path, report: FsckReport, *, repair: bool) -> None:
    """That no database file has bytes that nothing owns."""
    from store.dead_space import remains
    from store.sqlite import Database

    found = [*(home / "rooms").glob("*.sqlite"), *(home / "pages").glob("*.db")]
    for path in sorted(found):
        with noting(report, path):
            left = sum(each.bytes for each in remains(path))
            if left and repair:
                from store.pages.index import MIGRATIONS as PAGES
                from store.schema import MIGRATIONS

                own = PAGES if path.parent.name == "pages" else MIGRATIONS
                with Database(path, migrations=own) as database:
                    database.scrub()
                done = sum(each.bytes for each in remains(path))
                action = "repaired" if not done else "reported"
                report.add(
                    "dead space", path, f"{left} bytes that no row owned, or in its log", action
                )
            elif left:
                what = f"{left} bytes that no row owns, or in its log: --repair writes it anew"
                report.add("dead space", path, what)


def check_bodies(store: SqliteObjectStore, report: FsckReport, *, repair: bool) -> None:
    """That every large body is one that a row names. What an earlier `fsck --repair` put aside is
    nobody's that could be said, and so perhaps of whom was erased."""
    left = store.unnamed()
    if left and repair:
        store.remove_unnamed()
    for path in left:
        action = "removed" if repair and not path.exists() else "reported"
        report.add(TRACE, path, "no row names it: --repair removes it", action)
    for path in sorted((store.blobs.root / "quarantine").glob("*")):
        report.add(TRACE, path, "was put aside, and nobody can say whose it was: remove it")


def check_pages(home: Path, domains: Collection[str], report: FsckReport) -> None:
    """That `domains`, which nobody has now, have no pages and no key of them."""
    for domain in domains:
        for path in _of_pages(home, domain):
            if path.exists():
                report.add(TRACE, path, f"of {domain} is there still")


def check_old_pages(
    home: Path, domains: Collection[str], asked_ns: int, report: FsckReport
) -> None:
    """That `domains`, which somebody has, have no page and no key of them from before `asked_ns`
    (Unix time)."""
    for domain in domains:
        folder, key = _of_pages(home, domain)
        for path in (key, *sorted(folder.glob("*"))):
            if path.exists() and path.stat().st_mtime_ns < asked_ns:
                report.add(TRACE, path, f"of {domain} is older than its erasure")


def check_source_keys(
    home: Path, kept: Collection[str | None], report: FsckReport, *, repair: bool
) -> None:
    """That every key of a source is one of those that are `kept`."""
    from store.keys import KeyStore

    for path in sorted((home / "keys").glob("source-*")):
        if path.stem in kept:
            continue
        if repair:
            KeyStore(home / "keys", entropy=os.urandom).destroy(path.name)
        action = "removed" if repair else "reported"
        report.add(TRACE, path, "is the key of no source: --repair destroys it", action)


def _of_pages(home: Path, domain: str) -> tuple[Path, Path]:
    """Where the pages of `domain` lie, and their key."""
    from store.pages.header import domain_digest

    name = domain_digest(domain).hex()
    return home / "pages" / name, home / "keys" / f"pages-{name}.secret"


@contextmanager
def noting(report: FsckReport, path: Path) -> Iterator[None]:
    """Turns what is raised at `path` into a finding."""
    try:
        yield
    except (HuginnError, OSError) as error:
        report.add("unreadable", path, str(error))
