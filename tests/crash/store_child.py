"""The process that `test_store_kill` kills: puts objects and says which were acknowledged.

    store_child.py FOLDER WHEN COUNT [early]

WHEN is where it kills itself, at the COUNT-th time: `commit` just before a commit, `committed`
just after one, `file` before a file's sync, `named` after a file got its name; or `never`, and then
the parent does it. `early` acknowledges before the put, which is the mistake to be caught.
"""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw

from store.blobs import BlobFiles
from store.sqlite import Database
from store.sqlite_objects import SqliteObjectStore
from tests.stores import large, text

THREADS = 4
PUTS_MAX = 400


class Trap:
    """Kills this process, as kill -9 does, the `count`-th time that it is stepped on."""

    def __init__(self, count: int) -> None:
        self.left = count

    def step(self) -> bool:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return False


def object_of(number: int) -> tuple[object, bytes]:
    """Every fourth object is large."""
    return large(f"{number} ") if number % 4 == 3 else text(f"object {number}")


def main(folder: Path, when: str, count: int, early: bool) -> None:
    trap = Trap(count)

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if when == ("named" if path.is_dir() else "file"):
            trap.step()
        os.fsync(descriptor)

    database = Database(folder / "objects.db")
    store = SqliteObjectStore(database, BlobFiles(folder / "blobs", fsync=fsync))

    def arm(connection: apsw.Connection) -> None:
        if when == "commit":
            connection.set_commit_hook(trap.step)
        if when == "committed":
            connection.set_wal_hook(lambda *_: int(trap.step()))

    database.write(arm)

    def put(number: int) -> None:
        if early:
            os.write(1, b"%d\n" % number)
        store.put_many("n", [object_of(number)])
        if not early:
            os.write(1, b"%d\n" % number)

    if when == "never":
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(put, range(PUTS_MAX * 100)))
    else:
        for number in range(PUTS_MAX):
            put(number)
    os.write(1, b"done\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), "early" in sys.argv[4:])
