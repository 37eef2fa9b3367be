"""The parser of sequence states, against a writer of the documented format."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.worker.backends.llama_state import StateLayout, parse_rows, read_layout
from protocol.errors import WorkerFault
from tests.llama_states import FULL_LAYERS, ROW, SHAPE, SLIDING_LAYERS, canonical, row, write


@given(data=st.data(), stream=st.integers(0, 2), length=st.integers(1, 9))
def test_rows_come_out_by_layer_keys_before_values(
    data: st.DataObject, stream: int, length: int
) -> None:
    start = data.draw(st.integers(max(0, length - 5), length - 1))
    stop = data.draw(st.integers(start + 1, length))
    found = parse_rows(
        memoryview(write(stream, length)),
        SHAPE,
        stream=stream,
        length=length,
        start=start,
        stop=stop,
    )
    assert found.full == canonical(FULL_LAYERS, start, stop)
    assert found.sliding == canonical(SLIDING_LAYERS, start, stop)


def test_a_model_without_a_window_has_one_section() -> None:
    shape = replace(SHAPE, window_tokens=0)
    state = memoryview(write(1, 9, window=0))
    found = parse_rows(state, shape, stream=1, length=9, start=0, stop=9)
    assert found.full == canonical(FULL_LAYERS + SLIDING_LAYERS, 0, 9)
    assert found.sliding == b""


@pytest.mark.parametrize(("start", "stop"), [(0, 9), (3, 9), (9, 9), (8, 10), (-1, 3), (6, 5)])
def test_positions_that_are_not_there_are_refused(start: int, stop: int) -> None:
    with pytest.raises(WorkerFault, match=str(start)):
        parse_rows(memoryview(write(0, 9)), SHAPE, stream=0, length=9, start=start, stop=stop)


@pytest.mark.parametrize("length", [1, 5, 9])
def test_the_layout_is_the_rows_of_both_sections(length: int) -> None:
    state = memoryview(write(2, length))
    assert read_layout(state, SHAPE, stream=2, length=length) == StateLayout(
        (ROW,) * len(FULL_LAYERS), (ROW,) * len(SLIDING_LAYERS)
    )
    state = memoryview(write(2, length, window=0))
    shape = replace(SHAPE, window_tokens=0)
    assert read_layout(state, shape, stream=2, length=length) == StateLayout((ROW,) * 4, ())
    with pytest.raises(WorkerFault):
        read_layout(state, SHAPE, stream=2, length=length)


def frame_offsets(clean: bytes) -> list[int]:
    """The bytes that are not part of a row: a row is data, and any value of it is right."""
    inside: set[int] = set()
    for layers, positions in ((FULL_LAYERS, range(7)), (SLIDING_LAYERS, range(2, 7))):
        for layer in layers:
            for side in "KV":
                run = b"".join(row(layer, side, position) for position in positions)
                inside |= set(range(clean.index(run), clean.index(run) + len(run)))
    return [offset for offset in range(len(clean)) if offset not in inside]


def parse(state: bytes) -> None:
    parse_rows(memoryview(state), SHAPE, stream=1, length=7, start=2, stop=7)


@given(data=st.data())
def test_any_other_number_in_the_frame_is_refused(data: st.DataObject) -> None:
    clean = write(1, 7)
    parse(clean)
    offset = data.draw(st.sampled_from(frame_offsets(clean)))
    flipped = bytearray(clean)
    flipped[offset] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WorkerFault):
        parse(bytes(flipped))


def test_a_state_cut_short_or_too_long_is_refused() -> None:
    clean = write(1, 7)
    for size in range(len(clean)):
        with pytest.raises(WorkerFault):
            parse(clean[:size])
    with pytest.raises(WorkerFault, match="left over"):
        parse(clean + b"\0")


def test_a_state_of_another_sequence_or_length_is_refused() -> None:
    with pytest.raises(WorkerFault, match="sequence"):
        parse(write(0, 7))
    for length in (6, 8):
        with pytest.raises(WorkerFault, match="cells"):
            parse(write(1, length))
    with pytest.raises(WorkerFault, match="layers"):
        parse_rows(
            memoryview(write(1, 7)),
            replace(SHAPE, layers=5),
            stream=1,
            length=7,
            start=2,
            stop=7,
        )
