"""The process that `test_pages_kill` kills: keeps pages and says which are kept.

    pages_child.py FOLDER WHEN COUNT [early] [unsafe]

WHEN is where it kills itself, at the COUNT-th time: `file` before a page's sync, `named` after a
page got its name, `commit` before a commit of the index, `removed` after a file was removed, which
eviction does when WHEN is that, `dropped` likewise, while a domain is erased; or `never`, and then
the parent does it. Two mistakes to be caught: `early` says so before it is kept, `unsafe` writes a
page in place and dies half way.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from protocol.page import PageRows
from store.pages.disk import PageStore
from store.pages.files import PageFiles
from store.pages.header import PageHeader, encode_head
from tests.crash.store_child import Trap
from tests.page_samples import Pages, TestClock, key_for, talk

PAGES_MAX = 400
# Room for about 20 pages.
SMALL_BYTES = 12_000
LARGE_BYTES = 2**30


def conversation() -> Pages:
    """What the child keeps, in this order."""
    return talk("ann", *range(PAGES_MAX))


def singles() -> Pages:
    """What it keeps where it evicts: pages that do not stand on each other."""
    return [talk("ann", number)[0] for number in range(PAGES_MAX)]


class TrappedFiles(PageFiles):
    """Steps on the trap after each file that it removed."""

    trap: Trap
    unsafe = False

    def remove(self, path: Path) -> int:
        size = super().remove(path)
        self.trap.step()
        return size

    def write(self, header: PageHeader, rows: PageRows, domain_key: bytes | None) -> int:
        if self.unsafe:
            path = self.path((header.domain, header.chain.digest))
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(encode_head(header) + rows.full)
            self.trap.step()
            path.unlink()
        return super().write(header, rows, domain_key)


def main(folder: Path, when: str, count: int, flags: list[str]) -> None:
    trap = Trap(count)
    idle = Trap(0)

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        page = folder in (path.parent, path.parent.parent)
        if page and when == ("named" if path.is_dir() else "file"):
            trap.step()
        os.fsync(descriptor)

    budget = SMALL_BYTES if when == "removed" else LARGE_BYTES
    store = PageStore(folder, TestClock(), key_for, budget, fsync=fsync)
    files = TrappedFiles(folder, fsync=fsync)
    files.trap = trap if when in ("removed", "dropped") or "unsafe" in flags else idle
    files.unsafe = "unsafe" in flags
    store._files = files
    database = store._index._database
    if when == "commit" and database is not None:
        database.write(lambda connection: connection.set_commit_hook(trap.step))
    if when == "dropped":
        store.put_many(talk("bob", *range(20)))
    for number, (page, rows) in enumerate(singles() if when == "removed" else conversation()):
        if "early" in flags:
            os.write(1, b"%d\n" % number)
        if store.put(page, rows) and "early" not in flags:
            os.write(1, b"%d\n" % number)
        if when == "dropped" and number == 5:
            store.drop_domain("bob")
        if when == "commit":
            store._index.flush()
    os.write(1, b"done\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:])
