"""A second writer of the library's sequence states, from the documented format alone.

Four layers of two kinds, three streams, rows of three numbers that say whose they are.
"""

from __future__ import annotations

import struct

from actors.worker.backends.llama_state import StateShape

SHAPE = StateShape(streams=3, layers=4, window_tokens=5, kv_type=1, kv_bytes=2)
FULL_LAYERS, ROW = (1, 3), 6
SLIDING_LAYERS = (0, 2)


def row(layer: int, side: str, position: int) -> bytes:
    return struct.pack("<HHH", layer, ord(side), position)


def section(stream: int, layers: tuple[int, ...], positions: range) -> bytes:
    out = struct.pack("<I", SHAPE.streams)
    for index in range(SHAPE.streams):
        if index != stream:
            out += struct.pack("<I", 0)
            continue
        out += struct.pack("<I", len(positions))
        out += b"".join(struct.pack("<iIi", position, 1, stream) for position in positions)
        out += struct.pack("<II", 0, len(layers))
        for side in "KV":
            for layer in layers:
                out += struct.pack("<iQ", 1, ROW)
                out += b"".join(row(layer, side, position) for position in positions)
    return out


def write(stream: int, length: int, window: int = SHAPE.window_tokens) -> bytes:
    out = struct.pack("<Ii", 0xAF143CD8, stream)
    if not window:
        return out + section(stream, FULL_LAYERS + SLIDING_LAYERS, range(length))
    out += section(stream, FULL_LAYERS, range(length))
    return out + section(stream, SLIDING_LAYERS, range(max(0, length - window), length))


def canonical(layers: tuple[int, ...], start: int, stop: int) -> bytes:
    return b"".join(
        row(layer, side, position)
        for layer in layers
        for side in "KV"
        for position in range(start, stop)
    )
