"""llama.cpp's own promises, beyond the conformance suite: bits, threads, processes, invariants."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from msgspec import structs

from actors.worker.backend import PageRows
from actors.worker.backends.llama import LlamaBackend
from protocol.errors import WorkerFault
from tests.model_fixtures import open_real, open_tiny, tiny

# One token up to a whole chunk, around the sizes at which kernels change.
CHUNKS = (1, 2, 3, 4, 5, 8, 15, 16, 31, 63, 64, 65, 128, 255, 256)


@pytest.fixture
def backend() -> Iterator[LlamaBackend]:
    opened = open_tiny()
    yield opened
    opened.close()


def trace(backend: LlamaBackend, chunks: tuple[int, ...], stream: int = 0) -> str:
    """A digest of every logit and row of a run by `chunks`, with two decodes after each."""
    digest = hashlib.sha256()
    tokens = backend.tokenizer.contract.vocabulary_tokens
    number = 7
    for count in chunks:
        ids: list[int] = []
        while len(ids) < count:
            number = (number * 1103515245 + 12345) % 2**31
            if number % tokens not in backend.tokenizer.deny:
                ids.append(number % tokens)
        start = backend.length(stream)
        logits = backend.advance(stream, tuple(ids), logits=True)
        assert logits is not None
        digest.update(logits.tobytes())
        length = start + count
        page = backend.export(stream, max(start, length - backend.export_tokens_max), length)
        digest.update(page.full + page.sliding)
        for _ in range(2):
            logits = backend.decode([(stream, int(logits.argmax()))])[0]
            digest.update(logits.tobytes())
        backend.truncate(stream, length)
    return digest.hexdigest()


def test_prefill_threads_change_no_bit(backend: LlamaBackend) -> None:
    # Few chunks: on a busy machine the library's threads wait for one another at every step.
    chunks = (2, 5, 66)
    other = open_tiny(threads_batch=2)
    assert trace(other, chunks) == trace(backend, chunks)
    other.close()


def test_another_process_gives_the_same_bytes(backend: LlamaBackend) -> None:
    module = "tests.actors.worker.backends.test_llama"
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location({module!r}, {__file__!r})\n"
        "found = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(found)\n"
        "print(found.trace(found.open_tiny(), found.CHUNKS, 2))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == trace(backend, CHUNKS)


def test_a_schedule_cut_elsewhere_is_another_state(backend: LlamaBackend) -> None:
    """The negative control of every equality here: the bits do depend on the chunks."""
    ids = backend.tokenizer.encode("the end of the thing and another ") * 5
    for stream, chunks in ((0, (70,)), (1, (35, 35)), (2, (35, 35))):
        backend.truncate(stream, 0)
        for count in chunks:
            at = backend.length(stream)
            backend.advance(stream, ids[at : at + count], logits=False)
    whole, cut, again = (backend.export(stream, 6, 70) for stream in range(3))
    assert cut == again
    assert whole != cut


def test_a_page_has_two_sections_of_the_right_size(backend: LlamaBackend) -> None:
    ids = backend.tokenizer.encode("the end")
    backend.advance(0, ids, logits=False)
    page = backend.export(0, 0, len(ids))
    row_bytes = 64 * 2
    assert len(page.full) == len(ids) * row_bytes * 2 * 1
    assert len(page.sliding) == len(ids) * row_bytes * 2 * 6


def test_a_stream_whose_positions_are_wrong_is_cleared(backend: LlamaBackend) -> None:
    """Remove positions behind the back end's back: the next call notices, and starts afresh."""
    ids = backend.tokenizer.encode("the end of another thing")
    backend.advance(0, ids, logits=False)
    backend.advance(1, ids, logits=False)
    expected = backend.export(1, 0, len(ids))
    backend._library.llama_memory_seq_rm(backend._memory, 0, 0, 3)
    with pytest.raises(WorkerFault, match="stream 0"):
        backend.advance(0, ids[:2], logits=False)
    assert [backend.length(stream) for stream in (0, 1)] == [0, len(ids)]
    backend.advance(0, ids, logits=False)
    assert backend.export(0, 0, len(ids)) == expected

    backend._library.llama_memory_seq_rm(backend._memory, 0, 0, 3)
    with pytest.raises(WorkerFault, match="stream 0"):
        backend.export(0, 3, len(ids))
    with pytest.raises(WorkerFault, match="stream 0"):
        backend.truncate(0, 5)
    assert backend.length(0) == 0


def fed(backend: LlamaBackend, stream: int, counts: tuple[int, ...]) -> list[PageRows]:
    """Feed advances of `counts` tokens to an empty stream; their pages."""
    ids = backend.tokenizer.encode("the end of the thing and another ") * 40
    pages, at = [], 0
    for count in counts:
        backend.advance(stream, ids[at : at + count], logits=False)
        pages.append(backend.export(stream, at, at + count))
        at += count
    return pages


def next_logits(backend: LlamaBackend, stream: int) -> list[bytes]:
    """Of some decodes, and of an advance that fills the kernel's tiles."""
    ids = backend.tokenizer.encode("the end of the thing and another ") * 3
    found = [backend.decode([(stream, token)])[0].tobytes() for token in ids[:5]]
    last = backend.advance(stream, ids[:70], logits=True)
    assert last is not None
    return [*found, last.tobytes()]


def test_with_more_decode_threads_every_sliding_row_is_restored() -> None:
    """Their cut of the cells would move with the rows. At 290 tokens, of 512 cells, it lies within
    the window."""
    path, profile = tiny()
    backend = LlamaBackend(path, structs.replace(profile, threads_decode=2))
    assert [backend.sliding_start(tokens) for tokens in (0, 64, 640, 2048)] == [0] * 4
    pages = fed(backend, 0, (58,) * 5)
    backend.restore(1, pages, tokens=290, sliding_from=0)
    with pytest.raises(WorkerFault, match="up to 0"):
        backend.restore(2, pages, tokens=290, sliding_from=64)
    assert next_logits(backend, 1) == next_logits(backend, 0)
    backend.close()


def test_the_sliding_rows_of_a_restore_start_at_a_tile_of_the_kernel(
    backend: LlamaBackend,
) -> None:
    assert [backend.sliding_start(n) for n in (0, 1, 64, 127, 128, 129, 191, 192, 500)] == [
        *(0, 0, 0, 0, 64, 64, 64, 128, 384)
    ]


def test_rows_that_are_not_numbers_do_not_poison_a_stream(backend: LlamaBackend) -> None:
    """What is left in freed cells is multiplied by zero, and zero times NaN is NaN."""
    counts = (60, 60, 60, 60)
    pages = fed(backend, 0, counts)
    bad = [PageRows(b"\xff" * len(page.full), b"\xff" * len(page.sliding)) for page in pages]
    with pytest.raises(WorkerFault, match="not finite"):
        backend.restore(1, bad, tokens=240, sliding_from=0)
    for stream in (0, 1):
        backend.truncate(stream, 0)
    assert next_logits(backend, 1) == next_logits(backend, 0)


def test_a_state_that_the_library_refuses_leaves_no_residue(backend: LlamaBackend) -> None:
    pages = fed(backend, 0, (60, 60, 60))
    right = backend._shape
    # Refused at once, and after its first section was taken.
    for wrong in (replace(right, kv_type=0), replace(right, streams=3)):
        backend._shape = wrong
        with pytest.raises(WorkerFault, match="cleared"):
            backend.restore(1, pages, tokens=180, sliding_from=64)
        assert backend.length(1) == 0
    backend._shape = right
    layout = backend._layout
    backend._layout = replace(layout, sliding=layout.sliding[:-1])
    short = len(pages[0].sliding) // len(layout.sliding) * (len(layout.sliding) - 1)
    with pytest.raises(WorkerFault, match="cleared"):
        backend.restore(
            1,
            [PageRows(page.full, page.sliding[:short]) for page in pages],
            tokens=180,
            sliding_from=0,
        )
    backend._layout = layout
    assert backend._library.llama_memory_seq_pos_max(backend._memory, 1) == -1
    backend.restore(1, pages, tokens=180, sliding_from=64)
    assert next_logits(backend, 1) == next_logits(backend, 0)


@pytest.mark.model
def test_the_default_model_gives_the_same_bytes_on_more_prefill_threads() -> None:
    chunks = (3, 66, 130)
    found = set()
    for threads in (1, 2):
        backend = open_real(threads_batch=threads)
        found.add(trace(backend, chunks, threads))
        backend.close()
    assert len(found) == 1
