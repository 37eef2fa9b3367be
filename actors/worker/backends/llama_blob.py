"""Pages as one state of the library: the writer beside the parser in llama_state.py.

A restored prefix is a state that the library never wrote: the frame of its documented format with
the rows of many pages between. The full section holds positions 0 … tokens-1, the sliding section
only `sliding_from` … tokens-1, whatever earlier sliding rows the first of its pages also brings.

The library takes any bytes for rows, so the caller has verified every page's digest. What can be
seen here is refused: pages that are not a whole number of positions, that do not add up to
`tokens`, or that lack rows; and rows that are not finite numbers. Those could not only give a wrong
answer: the attention kernel multiplies what is left in freed cells by zero, and zero times NaN
would poison a stream long after it was cleared.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from actors.worker.backend import PageRows
from actors.worker.backends.llama_state import CELL_BYTES, STATE_MAGIC, StateLayout, StateShape
from protocol.errors import WorkerFault

_HEADER: Final = struct.Struct("<Ii")  # magic, sequence
_COUNT: Final = struct.Struct("<I")
_FRAME: Final = struct.Struct("<II")  # values_transposed, layers
_RUN: Final = struct.Struct("<IQ")  # type, row bytes
_F16_EXPONENT: Final = 0x7C00  # all ones: infinity or NaN


@dataclass(frozen=True, slots=True)
class _Slice:
    """One page's part of a section: rows skip … count-1 of its `count`."""

    rows: memoryview
    count: int
    skip: int


class StateBlob:
    """The state that `pages` add up to, ready to be written once into a buffer of `size` bytes.

    `pages` are consecutive from position 0; a page that ends at or before `sliding_from` may have
    an empty sliding section. Raises WorkerFault for pages that are not exactly this.
    """

    def __init__(
        self,
        pages: Sequence[PageRows],
        layout: StateLayout,
        shape: StateShape,
        *,
        stream: int,
        tokens: int,
        sliding_from: int,
    ) -> None:
        self._shape = shape
        self._stream = stream
        self._full, self._sliding = _slices(pages, layout, tokens, sliding_from)
        self._sections = [(self._full, layout.full, 0)]
        if layout.sliding:
            self._sections.append((self._sliding, layout.sliding, sliding_from))
        self._tokens = tokens
        self.size = _HEADER.size + sum(
            _COUNT.size * (1 + shape.streams)
            + _FRAME.size
            + (tokens - first) * (CELL_BYTES + 2 * sum(row_bytes))
            + 2 * len(row_bytes) * _RUN.size
            for _, row_bytes, first in self._sections
        )

    def write(self, target: memoryview) -> None:
        """Write the state into the first `size` bytes of `target`."""
        writer = _Writer(target[: self.size])
        writer.pack(_HEADER, STATE_MAGIC, self._stream)
        for slices, row_bytes, first in self._sections:
            self._write_section(writer, slices, row_bytes, first)
        assert writer.left == 0, f"{writer.left} bytes of a state were not written"

    def _write_section(
        self, writer: _Writer, slices: list[_Slice], row_bytes: tuple[int, ...], first: int
    ) -> None:
        writer.pack(_COUNT, self._shape.streams)
        for _ in range(self._stream):
            writer.pack(_COUNT, 0)
        writer.pack(_COUNT, self._tokens - first)
        cells = np.empty((self._tokens - first, 3), dtype="<i4")
        cells[:, 0] = np.arange(first, self._tokens)
        cells[:, 1] = 1
        cells[:, 2] = self._stream
        writer.put(cells.data.cast("B"))
        writer.pack(_FRAME, 0, len(row_bytes))
        for side in (0, 1):  # K, then V: a page has them layer by layer
            before = 0
            for size in row_bytes:
                writer.pack(_RUN, self._shape.kv_type, size)
                for part in slices:
                    start = part.count * (2 * before + side * size)
                    end = start + part.count * size
                    writer.put(part.rows[start + part.skip * size : end])
                before += size
        for _ in range(self._stream + 1, self._shape.streams):
            writer.pack(_COUNT, 0)


def _slices(
    pages: Sequence[PageRows], layout: StateLayout, tokens: int, sliding_from: int
) -> tuple[list[_Slice], list[_Slice]]:
    """What each page gives to either section."""
    full_bytes, sliding_bytes = 2 * sum(layout.full), 2 * sum(layout.sliding)
    full: list[_Slice] = []
    sliding: list[_Slice] = []
    at = 0
    for index, page in enumerate(pages):
        count, rest = divmod(len(page.full), full_bytes)
        if rest or not count:
            raise WorkerFault(
                f"page {index} has {len(page.full)} bytes of full-attention rows: a position has "
                f"{full_bytes}, and a page has at least one"
            )
        needed = count * sliding_bytes
        optional = at + count <= sliding_from
        if len(page.sliding) != needed and not (optional and not page.sliding):
            raise WorkerFault(
                f"page {index} (positions {at}…{at + count - 1}) has {len(page.sliding)} bytes of "
                f"sliding rows where {needed} belong; the sliding layers start at {sliding_from}"
            )
        full.append(_Slice(_finite(page.full, index), count, 0))
        if not optional:
            rows = _finite(page.sliding, index)
            sliding.append(_Slice(rows, count, max(0, sliding_from - at)))
        at += count
    if at != tokens:
        raise WorkerFault(f"{len(pages)} pages of {at} positions in all: {tokens} were announced")
    return full, sliding


def _finite(rows: bytes, index: int) -> memoryview:
    """The rows, all of them finite half-precision numbers. Raises WorkerFault."""
    values = np.frombuffer(rows, dtype="<u2")
    if (values & _F16_EXPONENT == _F16_EXPONENT).any():
        raise WorkerFault(f"page {index} holds a row that is not finite: it is corrupt")
    return memoryview(rows)


class _Writer:
    """Numbers and runs of bytes, one after the other."""

    def __init__(self, target: memoryview) -> None:
        self._target = target.cast("B")
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._target) - self._at

    def pack(self, form: struct.Struct, *numbers: int) -> None:
        form.pack_into(self._target, self._at, *numbers)
        self._at += form.size

    def put(self, data: memoryview) -> None:
        end = self._at + len(data)
        self._target[self._at : end] = data
        self._at = end
