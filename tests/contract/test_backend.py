"""The conformance suite of Backend: what its docstrings promise, on every implementation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.worker.backend import Backend
from protocol.errors import WorkerFault
from protocol.tokens import TokenIds
from tests.backends import OPEN, SCHEDULE, feed, ids_for, same


def test_sizes_are_usable(backend: Backend) -> None:
    assert backend.streams >= 2
    assert 1 <= backend.group_max <= backend.streams
    assert 1 <= backend.chunk_tokens <= backend.context_tokens
    assert 1 <= backend.export_tokens_max <= backend.context_tokens
    assert [backend.length(stream) for stream in range(backend.streams)] == [0] * backend.streams


@pytest.mark.req("KV-11")
def test_memory_is_told_in_the_bytes_of_its_rows(backend: Backend) -> None:
    memory = backend.memory
    for count in (1, 40):
        backend.truncate(0, 0)
        backend.advance(0, ids_for(backend, count), logits=False)
        rows = backend.export(0, 0, count)
        assert len(rows.full) + len(rows.sliding) == count * memory.kv_token
    assert memory.kv == memory.kv_token * backend.streams * backend.context_tokens
    assert memory.device > memory.kv
    assert backend.memory == memory


def test_logits_may_be_changed_until_more_is_fed(backend: Backend) -> None:
    """What their reader does to them, and to the other streams meanwhile, changes nothing else."""
    ids = ids_for(backend, 4)
    first = backend.advance(0, ids[:2], logits=True)
    assert first is not None
    assert first.shape == (backend.tokenizer.contract.vocabulary_tokens,)
    assert first.dtype == np.float32
    assert np.isfinite(first).all()
    kept = first.copy()
    backend.export(0, 0, 2)
    backend.truncate(1, 0)
    assert same(first, kept)
    first.fill(-np.inf)
    again = backend.advance(1, ids[:2], logits=True)
    assert same(again, kept)
    pair = backend.decode([(1, ids[2]), (0, ids[2])])
    assert same(*pair)
    pair[0].fill(0)
    assert not same(*pair)
    assert np.isfinite(pair[1]).all()


def test_the_same_schedule_gives_the_same_bytes_whatever_neighbours_hold(backend: Backend) -> None:
    ids = ids_for(backend, sum(SCHEDULE))
    alone = feed(backend, 0, ids)
    feed(backend, 1, ids_for(backend, sum(SCHEDULE), seed=1), (90, 17))
    backend.truncate(0, 0)
    for stream in (0, backend.streams - 1):
        logits, pages = feed(backend, stream, ids)
        assert same(logits, alone[0])
        assert pages == alone[1]


def test_asking_for_logits_changes_no_row(backend: Backend) -> None:
    ids = ids_for(backend, 40)
    assert backend.advance(0, ids, logits=False) is None
    backend.advance(1, ids, logits=True)
    assert backend.export(0, 0, 40) == backend.export(1, 0, 40)
    assert same(*(backend.decode([(stream, ids[0])])[0].copy() for stream in (0, 1)))


def test_rows_exported_late_are_those_exported_at_once(backend: Backend) -> None:
    ids = ids_for(backend, 60)
    _, pages = feed(backend, 0, ids, (20, 20, 20))
    for index, page in enumerate(pages):
        assert backend.export(0, 20 * index, 20 * index + 20) == page
    assert backend.export(0, 0, 20) != backend.export(0, 20, 40)


def test_a_cut_and_fed_again_stream_is_a_fresh_one(backend: Backend) -> None:
    ids = ids_for(backend, sum(SCHEDULE))
    other = ids_for(backend, 50, seed=2)
    fresh = feed(backend, 0, ids)
    for kept in range(len(SCHEDULE)):
        base = sum(SCHEDULE[:kept])
        backend.truncate(0, base)
        assert backend.length(0) == base
        # Something else, decoded too, and cut off again: what an answer leaves before settling.
        backend.advance(0, other[:9], logits=False)
        backend.decode([(0, other[9])])
        backend.truncate(0, base)
        logits, pages = feed(backend, 0, ids[base:], SCHEDULE[kept:])
        assert same(logits, fresh[0])
        assert pages == fresh[1][kept:]


def test_truncating_to_the_whole_length_keeps_everything(backend: Backend) -> None:
    ids = ids_for(backend, 31)
    backend.advance(0, ids[:30], logits=False)
    backend.advance(1, ids[:30], logits=False)
    backend.truncate(0, 30)
    assert same(backend.decode([(0, ids[30])])[0].copy(), backend.decode([(1, ids[30])])[0])


def test_a_group_decodes_as_each_would_alone(backend: Backend) -> None:
    """The fixture of `group_max`, with streams of different lengths and every choice of streams."""
    lengths = [5, 70, 90, 40][: backend.streams]
    prompts = [ids_for(backend, length, seed=length) for length in lengths]
    tails = [ids_for(backend, 2, seed=1000 + length) for length in lengths]

    def reset() -> None:
        for stream, prompt in enumerate(prompts):
            backend.truncate(stream, 0)
            backend.advance(stream, prompt, logits=False)

    reset()
    solo = [[backend.decode([(s, t)])[0].copy() for t in tails[s]] for s in range(len(prompts))]
    rows = [backend.export(s, n, n + 2) for s, n in enumerate(lengths)]
    count = len(prompts)
    groups = [
        tuple((first + i) % count for i in range(size))
        for size in range(2, backend.group_max + 1)
        for first in range(count)
    ]
    for group in groups:
        for stream in group:
            backend.truncate(stream, lengths[stream])
        for step in range(2):
            found = backend.decode([(stream, tails[stream][step]) for stream in group])
            for stream, logits in zip(group, found, strict=True):
                assert same(logits, solo[stream][step]), (group, stream, step)
        for stream in group:
            assert backend.export(stream, lengths[stream], lengths[stream] + 2) == rows[stream]


def test_what_breaks_a_rule_is_refused_and_changes_nothing(backend: Backend) -> None:
    ids = ids_for(backend, backend.chunk_tokens + 1)
    vocabulary = backend.tokenizer.contract.vocabulary_tokens
    backend.advance(0, ids[:10], logits=False)
    before = backend.export(0, 0, 10)
    refused: list[Callable[[], object]] = [
        lambda: backend.advance(0, (), logits=False),
        lambda: backend.advance(0, ids, logits=False),
        lambda: backend.advance(0, (ids[0], vocabulary), logits=False),
        lambda: backend.advance(0, (ids[0], -1), logits=False),
        lambda: backend.advance(backend.streams, ids[:1], logits=False),
        lambda: backend.advance(-1, ids[:1], logits=False),
        lambda: backend.decode([]),
        lambda: backend.decode([(0, ids[0]), (0, ids[1])]),
        lambda: backend.decode([(s, ids[0]) for s in range(backend.group_max + 1)]),
        lambda: backend.decode([(1, ids[0]), (0, vocabulary)]),
        lambda: backend.truncate(0, 11),
        lambda: backend.truncate(0, -1),
        lambda: backend.export(0, 0, 11),
        lambda: backend.export(0, 5, 5),
        lambda: backend.export(0, -1, 5),
        lambda: backend.export(1, 0, 1),
        lambda: backend.length(backend.streams),
    ]
    for call in refused:
        with pytest.raises(WorkerFault):
            call()
        assert [backend.length(stream) for stream in (0, 1)] == [10, 0]
    assert backend.export(0, 0, 10) == before


def test_rows_older_than_the_export_limit_are_refused_with_numbers(backend: Backend) -> None:
    limit = backend.export_tokens_max
    if limit == backend.context_tokens:
        pytest.skip("this back end gives every row back")
    ids = ids_for(backend, limit + 6)
    schedule = [
        min(backend.chunk_tokens, len(ids) - at) for at in range(0, len(ids), backend.chunk_tokens)
    ]
    for count in schedule:
        at = backend.length(0)
        backend.advance(0, ids[at : at + count], logits=False)
    backend.export(0, 6, limit + 6)
    with pytest.raises(WorkerFault, match=str(limit)):
        backend.export(0, 5, limit + 6)


@pytest.mark.parametrize("kind", ["fake", "tiny"])
def test_a_full_stream_refuses_and_keeps_what_it_has(kind: str) -> None:
    backend = OPEN[kind]()
    chunk = ids_for(backend, backend.chunk_tokens)
    while backend.length(0) < backend.context_tokens:
        backend.advance(0, chunk, logits=False)
    last = backend.export(0, backend.context_tokens - 9, backend.context_tokens)
    for call in (
        lambda: backend.advance(0, chunk[:1], logits=False),
        lambda: backend.decode([(0, chunk[0])]),
        lambda: backend.decode([(1, chunk[0]), (0, chunk[0])]),
    ):
        with pytest.raises(WorkerFault, match=str(backend.context_tokens)):
            call()
    assert backend.length(0) == backend.context_tokens
    assert backend.export(0, backend.context_tokens - 9, backend.context_tokens) == last
    backend.close()


@pytest.mark.parametrize("kind", ["fake", "tiny"])
def test_a_closed_back_end_refuses_every_call(kind: str) -> None:
    backend = OPEN[kind]()
    token = ids_for(backend, 1)[0]
    backend.advance(0, (token,), logits=False)
    page = backend.export(0, 0, 1)
    backend.close()
    backend.close()
    for call in (
        lambda: backend.length(0),
        lambda: backend.advance(0, (token,), logits=False),
        lambda: backend.decode([(0, token)]),
        lambda: backend.can_truncate(0, 0),
        lambda: backend.truncate(0, 0),
        lambda: backend.export(0, 0, 1),
        lambda: backend.restore(1, [page], tokens=1, sliding_from=0),
    ):
        with pytest.raises(WorkerFault):
            call()


Steps = list[tuple[int, str, int, int]]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["advance", "advance", "decode", "truncate"]),
        st.integers(1, 80),
        st.integers(0, 10**6),
    ),
    min_size=1,
    max_size=9,
)


@given(steps=STEPS)
def test_any_history_leaves_the_state_of_its_survivors(small: Backend, steps: Steps) -> None:
    """Oracle: what is left of a stream's calls, repeated on an empty stream, gives its state."""
    backend = small
    for stream in range(backend.streams):
        backend.truncate(stream, 0)
    histories: dict[int, list[tuple[str, TokenIds]]] = {0: [], 1: [], 2: []}
    for stream, call, size, seed in steps:
        history = histories[stream]
        if call == "truncate":
            del history[seed % (len(history) + 1) :]
            backend.truncate(stream, sum(len(ids) for _, ids in history))
            continue
        if backend.length(stream) + 80 > backend.context_tokens:
            continue
        ids = ids_for(backend, size if call == "advance" else 1, seed)
        history.append((call, ids))
        _apply(backend, stream, call, ids)
    spare = backend.streams - 1
    for stream, history in histories.items():
        length = sum(len(ids) for _, ids in history)
        assert backend.length(stream) == length
        backend.truncate(spare, 0)
        for call, ids in history:
            _apply(backend, spare, call, ids)
        if length:
            first = max(0, length - backend.export_tokens_max)
            assert backend.export(stream, first, length) == backend.export(spare, first, length)
        probe = ids_for(backend, 9, seed=9)
        found = backend.advance(stream, probe, logits=True)
        kept = None if found is None else found.copy()
        assert same(kept, backend.advance(spare, probe, logits=True))


def _apply(backend: Backend, stream: int, kind: str, ids: TokenIds) -> None:
    if kind == "advance":
        backend.advance(stream, ids, logits=False)
    else:
        backend.decode([(stream, ids[0])])
