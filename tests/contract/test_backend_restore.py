"""The conformance suite of Backend.restore: a restored stream is a fed one, byte for byte.

A token of the default model costs milliseconds: with it, each rule is looked at where it begins to
hold. The small models, whose layers are of the same kinds, go further and through every length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.worker.backend import Backend
from protocol.errors import WorkerFault
from tests.backends import OPEN, ids_for
from tests.fed_histories import PROBE, History, continuation, costly, history


def test_the_sliding_start_covers_every_row_that_is_looked_at(backend: Backend) -> None:
    starts = [backend.sliding_start(tokens) for tokens in range(backend.context_tokens + 1)]
    assert starts == sorted(starts)
    for tokens, start in enumerate(starts):
        assert 0 <= start <= max(0, tokens - backend.export_tokens_max)


@pytest.mark.req("KV-2", "KV-7")
def test_a_restored_stream_continues_as_a_fed_one(backend: Backend) -> None:
    """Below the window, at it, one beyond, at the kernel's tiles and off them, far beyond."""
    window = backend.export_tokens_max
    cuts = [window - 1, window, window + 1, window + 64]
    if costly(backend):
        cuts += [window + 3 * 64 + 37]
    else:
        cuts += [1, window // 2 + 5, window + 63, 2 * window + 37, 3 * window]
    made, step = History(), min(48, backend.chunk_tokens)
    # In a small model it takes a whole chunk until a shift of cells within a tile shows.
    probe = PROBE if costly(backend) else backend.chunk_tokens
    for number, cut in enumerate(sorted(cuts)):
        while (missing := cut - made.length()) > 0:
            ids = ids_for(backend, min(step, missing), seed=made.length())
            made.feed(backend, 0, "advance", ids)
        expected = continuation(backend, 0, probe)
        starts = {backend.sliding_start(tokens) for tokens in (cut, (cut + window) // 2, 0)}
        for start in starts:
            stream = 1 + number % (backend.streams - 1)
            made.restore(backend, stream, start)
            assert backend.length(stream) == cut
            assert continuation(backend, stream, probe) == expected, (cut, start)
            backend.truncate(stream, 0)


Step = tuple[int, str, int, int]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["advance"] * 4 + ["decode", "truncate", "evict", "evict", "copy"]),
        st.integers(1, 64),
        st.integers(0, 10**6),
    ),
    min_size=4,
    max_size=16,
)


@pytest.mark.req("KV-2", "KV-5", "KV-7")
@settings(max_examples=60)
@given(steps=STEPS)
def test_any_history_with_restores_is_the_history_without(
    small: Backend, steps: list[Step]
) -> None:
    _follow(small, steps)


@pytest.mark.req("KV-2", "KV-5", "KV-7")
@pytest.mark.parametrize("opened", [pytest.param("real", marks=pytest.mark.model)], indirect=True)
def test_so_it_is_with_histories_beyond_a_real_window(backend: Backend) -> None:
    """Fed until anywhere beyond the window, restored elsewhere, fed on, and restored once more."""
    window = backend.export_tokens_max
    seed = 0
    draw = np.random.default_rng(seed)
    counts = [int(count) for count in draw.integers(90, 240, 7)]
    least = next(calls for calls in range(8) if sum(counts[:calls]) > window + 64)
    made = history(backend, 0, counts[: int(draw.integers(least, least + 2))], seed)
    start = backend.sliding_start(int(draw.integers(window + 64, made.length() + 1)))
    assert start > 0
    made.restore(backend, 1, start)
    alone = len(made.calls)
    for number in range(2):
        ids = ids_for(backend, int(draw.integers(1, 240)), seed=100 + number)
        made.feed(backend, 1, "advance", ids)
    made.feed(backend, 1, "decode", ids_for(backend, 1))
    made.restore(backend, 3)
    # The oracle: the stream that all of it was fed to, and nothing else.
    History(made.calls[alone:]).repeat(backend, 0)
    expected = continuation(backend, 0)
    assert continuation(backend, 1) == expected
    assert continuation(backend, 3) == expected


def _follow(backend: Backend, steps: list[Step]) -> None:
    """Streams are fed, cut, branched off, evicted and restored, beside one another. Oracle: what
    is left of a stream's calls, fed to an empty stream, without any cut or restore."""
    for stream in range(backend.streams):
        backend.truncate(stream, 0)
    histories = {stream: History() for stream in range(3)}
    for step in steps:
        _take(backend, histories, step)
    spare = backend.streams - 1
    for stream, left in histories.items():
        assert backend.length(stream) == left.length()
        if not left.calls:
            continue
        backend.truncate(spare, 0)
        left.repeat(backend, spare)
        if left.length() + PROBE + 6 <= backend.context_tokens:
            assert continuation(backend, stream) == continuation(backend, spare)


def _take(backend: Backend, histories: dict[int, History], step: Step) -> None:
    stream, call, size, seed = step
    held = histories[stream]
    if call in {"advance", "decode"}:
        if held.length() + size <= backend.context_tokens:
            ids = ids_for(backend, size if call == "advance" else 1, seed)
            held.feed(backend, stream, call, ids)
    elif call == "truncate":
        kept = held.cut(seed % (len(held.calls) + 1))
        histories[stream] = kept
        if backend.can_truncate(stream, kept.length()):
            backend.truncate(stream, kept.length())
        else:
            backend.truncate(stream, 0)
            kept.restore(backend, stream)
    else:
        source = held if call == "evict" else histories[(stream + 1) % 3]
        kept = source.cut(1 + seed % len(source.calls) if source.calls else 0)
        histories[stream] = kept
        backend.truncate(stream, 0)
        if kept.calls:
            kept.restore(backend, stream, backend.sliding_start(seed % (kept.length() + 1)))


@pytest.mark.req("KV-5")
def test_a_shared_beginning_is_copied_between_streams_and_branches(backend: Backend) -> None:
    window = backend.export_tokens_max
    shared = history(backend, 0, [50] * (window // 50 + 2))
    for stream in range(1, backend.streams):
        shared.restore(backend, stream)
    for stream in range(backend.streams):
        backend.advance(stream, ids_for(backend, 20, seed=stream), logits=False)
    answers = [continuation(backend, stream) for stream in range(backend.streams)]
    for stream in range(1, backend.streams):
        backend.truncate(0, shared.length())
        backend.advance(0, ids_for(backend, 20, seed=stream), logits=False)
        assert continuation(backend, 0) == answers[stream]
    assert len({answer[0] for answer in answers}) == backend.streams


def test_a_restore_beside_decodes_changes_none_of_them(backend: Backend) -> None:
    """Two streams decode in a group while a third is restored, and then joins them."""
    window = backend.export_tokens_max
    third = backend.streams - 1
    lengths = {0: 40, 1: 70}
    prompts = {s: ids_for(backend, n, seed=s) for s, n in lengths.items()}
    tails = ids_for(backend, 6, seed=9)

    def said(items: Sequence[tuple[int, int]]) -> list[bytes]:
        return [logits.tobytes() for logits in backend.decode(items)]

    def run(made: History | None) -> tuple[History, list[list[bytes]]]:
        backend.truncate(third, 0)
        for stream, prompt in prompts.items():
            backend.truncate(stream, 0)
            backend.advance(stream, prompt, logits=False)
        found = [said([(0, t), (1, t)]) for t in tails[:2]]
        if made is None:
            made = history(backend, third, [45] * (window // 45 + 3))
        else:
            made.restore(backend, third)
        joined = [(0, tails[2]), (1, tails[3]), (third, tails[4])][-backend.group_max :]
        found += [said([(0, t), (1, t)]) for t in tails[2:4]]
        return made, found + [said(joined) for _ in range(2)]

    made, fed = run(None)
    assert run(made)[1] == fed


def test_a_restored_stream_grows_until_it_is_full(small: Backend) -> None:
    backend = small
    for stream in range(backend.streams):
        backend.truncate(stream, 0)
    step = 32
    made = history(backend, 0, [step] * (backend.context_tokens // step))
    for left in (0, 1, 3):
        kept = made.cut(len(made.calls) - left)
        backend.truncate(1, 0)
        kept.restore(backend, 1)
        for index in range(len(kept.calls), len(made.calls)):
            kept.feed(backend, 1, *made.calls[index])
        assert kept.pages == made.pages
        with pytest.raises(WorkerFault, match=str(backend.context_tokens)):
            backend.decode([(1, made.calls[0][1][0])])
        assert backend.length(1) == backend.context_tokens


@pytest.mark.req("KV-2")
@pytest.mark.parametrize("kind", ["fake", "tiny"])
def test_pages_restore_into_another_back_end(kind: str) -> None:
    one, other = OPEN[kind](), OPEN[kind]()
    made = history(one, 0, [40, 1, 64, 7, 50, 33])
    made.restore(other, 2)
    assert continuation(other, 2) == continuation(one, 0)
    one.close()
    other.close()
