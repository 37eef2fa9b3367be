"""Exports: every boundary is digested while its rows can be had, watches hear of it once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.worker.exports import Exports
from actors.worker.pages import page_digest, state_digest
from actors.worker.streams import Choice, Streams
from actors.worker.tiers import Tiers
from protocol.ids import ChainId, StateId
from store.pages.memory import MemoryPageTier
from store.pages.tier import Page
from tests.fake_backend import FakeBackend
from tests.page_samples import TestClock
from tests.worker_rooms import PROFILE

WINDOW = 24
steps = st.lists(
    st.one_of(
        st.tuples(st.just("feed"), st.integers(1, WINDOW)),
        st.tuples(st.just("decode"), st.integers(1, 30)),
        st.tuples(st.just("cut"), st.integers(0, 9)),
        st.tuples(st.just("idle"), st.integers(1, 3)),
        st.tuples(st.just("watch"), st.integers(0, 9)),
    ),
    max_size=25,
)


def naive(sizes: list[int]) -> StateId:
    """The digest of a prefix made of advances of these sizes."""
    backend = FakeBackend(window_tokens=WINDOW, context_tokens=2048)
    pages = []
    for size in sizes:
        start = backend.length(0)
        backend.advance(0, (9,) * size, logits=False)
        pages.append(page_digest(backend.export(0, start, start + size)))
    return state_digest(pages)


@settings(max_examples=60)
@given(plan=steps)
def test_digests_are_those_of_a_straight_run(plan: list[tuple[str, int]]) -> None:
    backend = FakeBackend(window_tokens=WINDOW, context_tokens=2048)
    streams = Streams(backend.streams)
    exports = Exports(backend, streams, PROFILE)
    sizes: list[int] = []
    heard: list[tuple[list[int], list[StateId | None]]] = []
    for kind, number in plan:
        tokens = sum(sizes)
        if kind == "feed":
            exports.before_feed(0, number)
            backend.advance(0, (9,) * number, logits=False)
            sizes.append(number)
            streams.extend(0, ChainId.of(repr(sizes).encode()), sum(sizes))
        elif kind == "decode":
            for _ in range(number):
                exports.before_feed(0, 1)
                backend.decode([(0, 9)])
            backend.truncate(0, tokens)
        elif kind == "cut":
            keep = min(number, len(sizes))
            exports.before_cut(0, keep)
            del sizes[keep:]
            backend.truncate(0, sum(sizes))
            del streams[0].boundaries[keep:]
        elif kind == "idle":
            for _ in range(number):
                exports.step()
        elif sizes:
            count = 1 + number % len(sizes)
            answers: list[StateId | None] = []
            heard.append((sizes[:count], answers))
            exports.watch(0, count, answers.append)
    while exports.step():
        pass
    for watched, answers in heard:
        assert answers == [naive(watched)]
    assert all(boundary.page is not None for boundary in streams[0].boundaries)


def test_a_dropped_stream_tells_its_watches_that_there_will_be_none() -> None:
    backend = FakeBackend(window_tokens=WINDOW)
    streams = Streams(backend.streams)
    exports = Exports(backend, streams, PROFILE)
    backend.advance(0, (9,) * 5, logits=False)
    streams.extend(0, ChainId.of(b"a"), 5)
    answers: list[StateId | None] = []
    exports.watch(0, 1, answers.append)
    exports.drop(0)
    streams.clear(0)
    assert answers == [None]
    assert not exports.step()


def test_an_advance_wider_than_the_window_ends_the_digests_until_it_is_cut_off() -> None:
    backend = FakeBackend(window_tokens=WINDOW)
    streams = Streams(backend.streams)
    exports = Exports(backend, streams, PROFILE)
    answers: list[StateId | None] = []
    for size in (5, WINDOW + 1, 3):
        exports.before_feed(0, size)
        backend.advance(0, (9,) * size, logits=False)
        streams.extend(0, ChainId.of(bytes((size,))), backend.length(0))
        exports.watch(0, len(streams[0].boundaries), answers.append)
    while exports.step():
        pass
    assert answers == [naive([5]), None, None]
    exports.before_cut(0, 1)
    backend.truncate(0, 5)
    del streams[0].boundaries[1:]
    exports.before_feed(0, 4)
    backend.advance(0, (9,) * 4, logits=False)
    streams.extend(0, ChainId.of(b"4"), 9)
    exports.watch(0, 2, answers.append)
    while exports.step():
        pass
    assert answers[-1] == naive([5, 4])


@pytest.mark.req("KV-3", "KV-4")
def test_the_tiers_get_every_page_under_its_chain_before_it_is_cut_off() -> None:
    backend = FakeBackend(window_tokens=WINDOW)
    streams, host = Streams(backend.streams), MemoryPageTier(TestClock(), 2**20)
    exports = Exports(backend, streams, PROFILE, Tiers(host))
    streams.occupy(Choice(0, 0, 0), "alice")
    chains = [ChainId.of(bytes((number,))) for number in range(4)]
    for chain, size in zip(chains, (5, 9, 3, 4), strict=True):
        exports.before_feed(0, size)
        backend.advance(0, (9,) * size, logits=False)
        streams.extend(0, chain, backend.length(0))
    exports.before_cut(0, 1)
    pages = [info.page for info in host.longest("alice", chains)]
    assert pages == [
        Page("alice", chain, parent, PROFILE, start, size)
        for chain, parent, start, size in zip(
            chains, [None, *chains], (0, 5, 14, 17), (5, 9, 3, 4), strict=False
        )
    ]
    assert [info.digest for info in host.longest("alice", chains)] == [
        boundary.page for boundary in streams[0].boundaries
    ]
