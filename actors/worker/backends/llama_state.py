"""The library's sequence state as rows: a parser that believes nothing.

`llama_state_seq_get_data` writes, in native byte order (little-endian on every machine that the
profiles name):

    u32 magic, i32 sequence
    section of the full-attention layers; section of the sliding layers (if the model has any):
      u32 streams, then for each stream:
        u32 cells; nothing more for 0
        cells × (i32 position, u32 owners = 1, i32 sequence)
        u32 values_transposed = 0, u32 layers
        layers × (i32 type, u64 row bytes, cells × row)   K
        layers × (i32 type, u64 row bytes, cells × row)   V

Only the sequence's own stream has cells. A full section holds every position; a sliding section
holds the last `window` positions, however large its cache is, which is why rows are exported
straight after each advance. Every number is compared with what it has to be: the format belongs to
one version of the library, and a page made of misread rows would be a wrong prefix for ever.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from actors.worker.backend import PageRows
from protocol.errors import WorkerFault

STATE_MAGIC: Final = 0xAF143CD8
CELL_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class StateShape:
    """What a state has to look like. `kv_type` is the library's number of the cache's type, and
    `kv_bytes` the bytes of one of its elements; `window_tokens` 0 means no sliding section."""

    streams: int
    layers: int
    window_tokens: int
    kv_type: int
    kv_bytes: int


@dataclass(frozen=True, slots=True)
class StateLayout:
    """The bytes of one row, for each layer of the full and of the sliding section. A layer's K and
    V rows are equally long."""

    full: tuple[int, ...]
    sliding: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Section:
    first: int
    """The position of the first row."""
    runs: tuple[tuple[memoryview, memoryview, int], ...]
    """For each layer its K rows, its V rows and the bytes of one row."""

    @property
    def row_bytes(self) -> tuple[int, ...]:
        return tuple(row_bytes for _, _, row_bytes in self.runs)

    def rows(self, start: int, stop: int) -> bytes:
        low, high = start - self.first, stop - self.first
        return b"".join(
            run[low * row_bytes : high * row_bytes]
            for keys, values, row_bytes in self.runs
            for run in (keys, values)
        )


def parse_rows(
    state: memoryview, shape: StateShape, *, stream: int, length: int, start: int, stop: int
) -> PageRows:
    """The rows of positions start … stop-1 of a stream of `length` positions, as a copy.

    Raises WorkerFault for a state that is not exactly of `shape` and `length`, and for positions
    that it does not hold in all layers.
    """
    if not 0 <= start < stop <= length:
        raise WorkerFault(f"rows {start}…{stop - 1} asked of a stream of {length} positions")
    first = max(0, length - shape.window_tokens) if shape.window_tokens else 0
    if start < first:
        raise WorkerFault(
            f"rows {start}…{stop - 1} begin {length - start} positions before the end: the "
            f"library gives the sliding layers' last {shape.window_tokens} only. Export after "
            "each advance"
        )
    full, sliding = _sections(state, shape, stream, length)
    return PageRows(
        full=full.rows(start, stop), sliding=sliding.rows(start, stop) if sliding else b""
    )


def read_layout(state: memoryview, shape: StateShape, *, stream: int, length: int) -> StateLayout:
    """The rows' sizes, which every state of this model has. Raises WorkerFault as parse_rows."""
    full, sliding = _sections(state, shape, stream, length)
    return StateLayout(full.row_bytes, sliding.row_bytes if sliding else ())


def _sections(
    state: memoryview, shape: StateShape, stream: int, length: int
) -> tuple[_Section, _Section | None]:
    reader = _Reader(state)
    reader.expect("magic", reader.u32(), STATE_MAGIC)
    reader.expect("sequence", reader.u32(), stream)
    full = _section(reader, shape, stream, first=0, length=length)
    layers = len(full.runs)
    sliding = None
    if shape.window_tokens:
        first = max(0, length - shape.window_tokens)
        sliding = _section(reader, shape, stream, first=first, length=length)
        layers += len(sliding.runs)
    reader.expect("layers", layers, shape.layers)
    reader.expect("bytes left over", reader.left, 0)
    return full, sliding


def _section(
    reader: _Reader, shape: StateShape, stream: int, *, first: int, length: int
) -> _Section:
    reader.expect("streams", reader.u32(), shape.streams)
    section = None
    for index in range(shape.streams):
        cells = reader.u32()
        if index != stream:
            reader.expect(f"cells of stream {index}", cells, 0)
            continue
        reader.expect(f"cells of stream {index}", cells, length - first)
        _check_cells(reader.take(cells * CELL_BYTES), stream, first, length)
        reader.expect("values_transposed", reader.u32(), 0)
        layers = reader.u32()
        if not 0 < layers <= shape.layers:
            raise WorkerFault(f"a state section of {layers} layers: the model has {shape.layers}")
        keys = [_rows(reader, shape, cells) for _ in range(layers)]
        values = [_rows(reader, shape, cells) for _ in range(layers)]
        if any(k[1] != v[1] for k, v in zip(keys, values, strict=True)):
            raise WorkerFault("a state's K and V rows differ in size")
        section = _Section(
            first, tuple((k[0], v[0], k[1]) for k, v in zip(keys, values, strict=True))
        )
    if section is None:
        raise WorkerFault(f"stream {stream} is not one of {shape.streams}")
    return section


def _check_cells(cells: memoryview, stream: int, first: int, length: int) -> None:
    table = np.frombuffer(cells, dtype="<i4").reshape(-1, 3)
    if not np.array_equal(table[:, 0], np.arange(first, length)):
        raise WorkerFault(f"a state's positions are not {first}…{length - 1} in order")
    if not ((table[:, 1] == 1).all() and (table[:, 2] == stream).all()):
        raise WorkerFault(f"a state holds cells that are not of stream {stream} alone")


def _rows(reader: _Reader, shape: StateShape, cells: int) -> tuple[memoryview, int]:
    reader.expect("cache type", reader.u32(), shape.kv_type)
    row_bytes = reader.u64()
    if row_bytes == 0 or row_bytes % shape.kv_bytes:
        raise WorkerFault(f"a state's rows have {row_bytes} bytes")
    return reader.take(cells * row_bytes), row_bytes


class _Reader:
    """Little-endian numbers and runs of bytes, from the front, never past the end."""

    def __init__(self, data: memoryview) -> None:
        self._data = data.cast("B")
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> memoryview:
        if size > self.left:
            raise WorkerFault(f"a state ends at byte {len(self._data)}: {size} more were announced")
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def u32(self) -> int:
        return int(struct.unpack("<I", self.take(4))[0])

    def u64(self) -> int:
        return int(struct.unpack("<Q", self.take(8))[0])

    @staticmethod
    def expect(name: str, found: int, expected: int) -> None:
        if found != expected:
            raise WorkerFault(f"a state's {name}: {found} where {expected} has to stand")
