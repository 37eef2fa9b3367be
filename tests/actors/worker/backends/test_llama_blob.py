"""The writer of sequence states, against another writer and against the parser."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.worker.backend import PageRows
from actors.worker.backends.llama_blob import StateBlob
from actors.worker.backends.llama_state import StateLayout, parse_rows
from protocol.errors import WorkerFault
from tests.llama_states import FULL_LAYERS, ROW, SHAPE, SLIDING_LAYERS, canonical, write

LAYOUT = StateLayout((ROW,) * len(FULL_LAYERS), (ROW,) * len(SLIDING_LAYERS))
FLAT = StateLayout((ROW,) * 4, ())


def pages_of(counts: list[int], sliding_from: int = 0) -> list[PageRows]:
    """Consecutive pages, without the sliding rows that a restore from there does not need."""
    pages, at = [], 0
    for count in counts:
        stop = at + count
        sliding = canonical(SLIDING_LAYERS, at, stop) if stop > sliding_from else b""
        pages.append(PageRows(full=canonical(FULL_LAYERS, at, stop), sliding=sliding))
        at = stop
    return pages


def written(pages: list[PageRows], *, tokens: int, sliding_from: int = 0, stream: int = 1) -> bytes:
    blob = StateBlob(pages, LAYOUT, SHAPE, stream=stream, tokens=tokens, sliding_from=sliding_from)
    target = bytearray(b"\xaa" * (blob.size + 7))
    blob.write(memoryview(target))
    assert target[blob.size :] == b"\xaa" * 7
    return bytes(target[: blob.size])


@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    stream=st.integers(0, 2),
    data=st.data(),
)
def test_pages_are_written_as_the_documented_format_says(
    counts: list[int], stream: int, data: st.DataObject
) -> None:
    tokens = sum(counts)
    sliding_from = data.draw(st.integers(0, tokens - 1))
    pages = pages_of(counts, sliding_from)
    found = written(pages, tokens=tokens, sliding_from=sliding_from, stream=stream)
    assert found == write(stream, tokens, window=tokens - sliding_from)
    # Sliding rows that are not needed, but there, change nothing.
    whole = pages_of(counts)
    assert written(whole, tokens=tokens, sliding_from=sliding_from, stream=stream) == found


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=5), stream=st.integers(0, 2))
def test_what_is_written_parses_to_the_rows_of_the_pages(counts: list[int], stream: int) -> None:
    tokens = sum(counts)
    first = max(0, tokens - SHAPE.window_tokens)
    state = written(pages_of(counts), tokens=tokens, sliding_from=first, stream=stream)
    found = parse_rows(
        memoryview(state), SHAPE, stream=stream, length=tokens, start=first, stop=tokens
    )
    assert found.full == canonical(FULL_LAYERS, first, tokens)
    assert found.sliding == canonical(SLIDING_LAYERS, first, tokens)


def test_a_model_without_a_window_has_one_section() -> None:
    shape = replace(SHAPE, window_tokens=0)
    layers = FULL_LAYERS + SLIDING_LAYERS
    pages = [PageRows(canonical(layers, *run), b"") for run in ((0, 4), (4, 9))]
    blob = StateBlob(pages, FLAT, shape, stream=2, tokens=9, sliding_from=0)
    target = bytearray(blob.size)
    blob.write(memoryview(target))
    assert target == write(2, 9, window=0)
    with pytest.raises(WorkerFault, match="sliding"):
        StateBlob([PageRows(pages[0].full, b"00")], FLAT, shape, stream=2, tokens=4, sliding_from=0)


def test_pages_that_do_not_fit_are_refused_with_their_number() -> None:
    good = pages_of([3, 4, 2])
    full, sliding = good[1].full, good[1].sliding
    wrong = {
        "one byte short": PageRows(full[:-1], sliding),
        "one row short": PageRows(full[: -4 * ROW], sliding),
        "too long": PageRows(full + b"\0\0", sliding),
        "empty": PageRows(b"", b""),
        "no sliding rows": PageRows(full, b""),
        "short sliding rows": PageRows(full, sliding[:-2]),
        "sections of another page": PageRows(full, good[0].sliding),
    }
    for name, page in wrong.items():
        with pytest.raises(WorkerFault, match="page 1"):
            written([good[0], page, good[2]], tokens=9)
        assert name
    for pages, tokens in ((good, 8), (good, 10), (good[:2], 9), ([*good, good[0]], 9), ([], 9)):
        with pytest.raises(WorkerFault, match=f"{tokens} were announced"):
            written(pages, tokens=tokens)
    # Half the needed rows of a page that ends before the bound are as wrong as elsewhere.
    with pytest.raises(WorkerFault, match="page 1"):
        written([good[0], wrong["short sliding rows"], good[2]], tokens=9, sliding_from=7)
    assert written([good[0], wrong["no sliding rows"], good[2]], tokens=9, sliding_from=7)
    with pytest.raises(WorkerFault, match="page 1"):
        written([good[0], wrong["no sliding rows"], good[2]], tokens=9, sliding_from=6)


@pytest.mark.parametrize("value", [0x7C00, 0xFC00, 0x7E00, 0xFFFF, 0x7C01])
def test_rows_that_are_not_finite_are_refused(value: int) -> None:
    page = pages_of([3])[0]
    bad = struct.pack("<H", value)
    for at in (0, 10, len(page.full) - 2):
        full = page.full[:at] + bad + page.full[at + 2 :]
        with pytest.raises(WorkerFault, match="page 0"):
            written([PageRows(full, page.sliding)], tokens=3)
        sliding = page.sliding[:at] + bad + page.sliding[at + 2 :]
        with pytest.raises(WorkerFault, match="page 0"):
            written([PageRows(page.full, sliding)], tokens=3)
    # The largest finite numbers are numbers.
    for number in (0x7BFF, 0xFBFF):
        full = struct.pack("<H", number) + page.full[2:]
        assert written([PageRows(full, page.sliding)], tokens=3)
