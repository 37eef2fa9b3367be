"""Stores for tests: one of each kind, and objects to put into them."""

from __future__ import annotations

import os
from pathlib import Path

from protocol.ids import BlockId, ObjectId, TextId
from store.blobs import BlobFiles
from store.memory_objects import MemoryObjectStore
from store.memory_tables import MemoryTables
from store.objects import ObjectStore
from store.sqlite import Database
from store.sqlite_objects import INLINE_BYTES_MAX, SqliteObjectStore
from store.sqlite_tables import SqliteTables
from store.tables import Tables

# A folder in memory where there is one: for tests that sync often and prove nothing by it.
FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
KINDS = ("memory", "sqlite")


def sqlite_store(root: Path) -> SqliteObjectStore:
    """The object store on disk under `root`."""
    return SqliteObjectStore(Database(root / "objects.db"), BlobFiles(root / "blobs"))


def object_store(kind: str, root: Path) -> ObjectStore:
    """A store of that kind; the one in memory ignores `root`."""
    return MemoryObjectStore() if kind == "memory" else sqlite_store(root)


def tables(kind: str, root: Path) -> Tables:
    """Tables of that kind; those in memory ignore `root`."""
    return MemoryTables() if kind == "memory" else SqliteTables(Database(root / "tables.db"))


def text(content: str) -> tuple[ObjectId, bytes]:
    """A small object."""
    body = content.encode()
    return TextId.of(body), body


def large(content: str) -> tuple[ObjectId, bytes]:
    """An object that lies in a file of its own."""
    body = content.encode() * (INLINE_BYTES_MAX // len(content) + 1)
    return BlockId.of(body), body
