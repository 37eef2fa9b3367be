"""What a SQLite file holds beside what it says: free pages, gaps, and the write-ahead log.

Deleted rows may outlive their deletion there, so an erasure is proved by finding nothing: every
byte that no live cell, header or pointer owns is zero, and the log beside the file is empty. The
file is read as it lies on disk, never through SQLite, while nobody has it open. Format: "Database
File Format", sqlite.org/fileformat2.html.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from protocol.errors import CorruptObject

_MAGIC: Final = b"SQLite format 3\0"
_FILE_HEADER_BYTES: Final = 100
_LEAF_TABLE, _INNER_TABLE, _LEAF_INDEX, _INNER_INDEX = 13, 5, 10, 2
_SCHEMA_ROOT: Final = 1
# Columns of `sqlite_schema`: type, name, tbl_name, rootpage, sql.
_ROOT_COLUMN: Final = 3


class Remains(NamedTuple):
    """Bytes of `file` that nothing owns and that are not zero: `bytes` of them on page `page` (from
    1; 0: the write-ahead log), the first at `offset` in the file."""

    file: Path
    page: int
    offset: int
    bytes: int


def remains(path: Path) -> Iterator[Remains]:
    """What is left in the database file `path` and in the log beside it, page by page.

    Raises CorruptObject for a file that is not laid out as SQLite lays out its own, OSError.
    """
    log = path.with_name(path.name + "-wal")
    if log.exists() and (size := log.stat().st_size):
        yield Remains(log, 0, 0, size)
    data = path.read_bytes()
    if data:
        yield from _File(path, data).remains()


class _File:
    """One file whole in memory, and which of its bytes are owned: 1 in `_owned` where one is."""

    def __init__(self, path: Path, data: bytes) -> None:
        if data[:16] != _MAGIC or len(data) < _FILE_HEADER_BYTES:
            raise CorruptObject(f"{path} is no SQLite database")
        size = int.from_bytes(data[16:18], "big")
        self._path, self._data = path, data
        self._page_bytes = 65536 if size == 1 else size
        self._usable = self._page_bytes - data[20]
        self._owned = bytearray(len(data))
        self._seen: set[int] = set()

    def remains(self) -> Iterator[Remains]:
        self._own(0, _FILE_HEADER_BYTES)
        roots = self._tree(_SCHEMA_ROOT, roots=True)
        for root in roots:
            self._tree(root)
        self._free_list(self._u32(32))
        for page in range(1, len(self._data) // self._page_bytes + 1):
            start = (page - 1) * self._page_bytes
            body = self._data[start : start + self._page_bytes]
            owned = self._owned[start : start + self._page_bytes]
            if b"\0" not in owned:
                continue
            loose = [at for at, byte in enumerate(body) if byte and not owned[at]]
            if loose:
                yield Remains(self._path, page, start + loose[0], len(loose))

    # -- trees -------------------------------------------------------------------------------

    def _tree(self, root: int, *, roots: bool = False) -> list[int]:
        """Marks what the b-tree under `root` owns; with `roots`, the root pages that its rows
        name."""
        found: list[int] = []
        waiting = [root]
        while waiting:
            page = waiting.pop()
            start = self._enter(page)
            head = start + (_FILE_HEADER_BYTES if page == 1 else 0)
            kind = self._data[head]
            if kind not in (_LEAF_TABLE, _INNER_TABLE, _LEAF_INDEX, _INNER_INDEX):
                raise CorruptObject(f"{self._path}: page {page} is of no b-tree")
            inner = kind in (_INNER_TABLE, _INNER_INDEX)
            cells, header = self._u16(head + 3), 12 if inner else 8
            self._own(head, header + 2 * cells)
            self._stale_pointers(start, head + header + 2 * cells, self._u16(head + 5))
            self._free_blocks(start, self._u16(head + 1))
            if inner:
                waiting.append(self._u32(head + 8))
            for index in range(cells):
                at = start + self._u16(head + header + 2 * index)
                waiting += self._cell(at, kind)
                if roots and kind == _LEAF_TABLE:
                    found.append(self._root_of(at))
        return [page for page in found if page]

    def _cell(self, at: int, kind: int) -> list[int]:
        """Marks one cell and its overflow; the pages below it."""
        begin, below = at, list[int]()
        if kind in (_INNER_TABLE, _INNER_INDEX):
            below.append(self._u32(at))
            at += 4
        if kind == _INNER_TABLE:
            at = self._varint(at)[1]
        else:
            payload, at = self._varint(at)
            if kind == _LEAF_TABLE:
                at = self._varint(at)[1]
            local = self._local(payload, table=kind == _LEAF_TABLE)
            at += local
            if local < payload:
                self._overflow(self._u32(at), payload - local)
                at += 4
        # A cell takes four bytes at least, whatever it needs.
        self._own(begin, max(4, at - begin))
        return below

    def _local(self, payload: int, *, table: bool) -> int:
        """How many bytes of a payload lie in its cell."""
        usable = self._usable
        least = (usable - 12) * 32 // 255 - 23
        most = usable - 35 if table else (usable - 12) * 64 // 255 - 23
        if payload <= most:
            return payload
        kept = least + (payload - least) % (usable - 4)
        return kept if kept <= most else least

    def _overflow(self, page: int, left: int) -> None:
        while left > 0:
            start = self._enter(page)
            taken = min(left, self._usable - 4)
            self._own(start, 4 + taken)
            left -= taken
            page = self._u32(start)

    def _stale_pointers(self, start: int, at: int, content: int) -> None:
        """Marks what is left of a page's longer array of cells, behind the array: places on the
        page, no content. Filling a page anew overwrites its cells and not always these."""
        content = content or 65536
        while at + 2 <= start + content and content <= self._u16(at) < self._usable:
            self._own(at, 2)
            at += 2

    def _free_blocks(self, start: int, offset: int) -> None:
        """Marks the links of a page's free blocks: four bytes each, the rest is nobody's."""
        while offset:
            self._own(start + offset, 4)
            offset = self._u16(start + offset)

    def _free_list(self, trunk: int) -> None:
        while trunk:
            start = self._enter(trunk)
            leaves = self._u32(start + 4)
            self._own(start, 8 + 4 * leaves)
            trunk = self._u32(start)

    def _root_of(self, at: int) -> int:
        """The root page in a row of the schema."""
        at = self._varint(at)[1]
        at = self._varint(at)[1]
        size, place = self._varint(at)
        kinds: list[int] = []
        end = at + size
        while place < end:
            kind, place = self._varint(place)
            kinds.append(kind)
        place += sum(map(_bytes_of, kinds[:_ROOT_COLUMN]))
        return int.from_bytes(self._data[place : place + _bytes_of(kinds[_ROOT_COLUMN])], "big")

    # -- bytes -------------------------------------------------------------------------------

    def _enter(self, page: int) -> int:
        """Where `page` starts; CorruptObject for one that is not there or has an owner already."""
        if not 1 <= page <= len(self._data) // self._page_bytes or page in self._seen:
            raise CorruptObject(f"{self._path}: page {page} has two owners, or is not there")
        self._seen.add(page)
        return (page - 1) * self._page_bytes

    def _own(self, start: int, count: int) -> None:
        self._owned[start : start + count] = b"\1" * count

    def _u16(self, at: int) -> int:
        return int.from_bytes(self._data[at : at + 2], "big")

    def _u32(self, at: int) -> int:
        return int.from_bytes(self._data[at : at + 4], "big")

    def _varint(self, at: int) -> tuple[int, int]:
        """A variable-length integer (unsigned here: sizes and kinds), and what follows it."""
        value = 0
        for index in range(8):
            byte = self._data[at + index]
            value = value << 7 | byte & 0x7F
            if byte < 0x80:
                return value, at + index + 1
        return value << 8 | self._data[at + 8], at + 9


def _bytes_of(kind: int) -> int:
    """How many bytes a value of this serial type takes."""
    if kind < 12:
        return (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)[kind]
    return (kind - 12 - kind % 2) // 2
