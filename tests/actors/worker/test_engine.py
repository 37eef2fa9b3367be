"""The engine stepped by hand: whose turn it is, when pages go out, what is posted when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.worker.drivers import step
from actors.worker.fairness import TOKENS_PER_ROUND
from actors.worker.jobs import DigestKnown, Settled
from protocol.errors import WorkerFault
from protocol.messages.worker import Item
from tests.engine_stands import CHUNK, Stand
from tests.fake_backend import FakeBackend
from tests.worker_rooms import text_ids


@pytest.mark.req("KV-12")
@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=9),
    tokens=st.integers(1, 40),
    gaps=st.lists(st.integers(0, 30), min_size=9, max_size=9),
)
def test_the_fairness_bounds_hold_in_what_is_fed(
    sizes: list[int], tokens: int, gaps: list[int]
) -> None:
    stand = Stand()
    for number, size in enumerate(sizes):
        stand.job(str(number), size, tokens_max=tokens)
        for _ in range(gaps[number]):
            _observed_step(stand)
    while _observed_step(stand):
        pass
    for number in range(len(sizes)):
        end = stand.end(str(number))
        assert isinstance(end, Item)
        assert end.receipt is not None
        assert end.receipt.completion_tokens == tokens
    assert stand.engine.running == stand.engine.waiting == 0


def _observed_step(stand: Stand) -> bool:
    """One step, after which the bounds are checked on the trace of the whole run."""
    engine = stand.engine
    before = len(stand.backend.fed)
    decoding = {job.stream for job in engine._decoding}
    waiting_prefill = bool(engine._prefilling) or bool(engine.waiting)
    more = step(engine)
    fed = [entry for entry in stand.backend.fed[before:] if entry[0] != "truncate"]
    kinds = {kind for kind, _, _ in fed}
    assert len(kinds) <= 1, "one unit at a time"
    trace = stand.__dict__.setdefault("trace", {"chunks": 0, "rounds": 0})
    if kinds == {"advance"}:
        assert len(fed) == 1
        trace["chunks"] = trace["chunks"] + 1 if decoding else 0
        trace["rounds"] = 0
    elif kinds == {"decode"}:
        # A round gives every running answer exactly one token.
        assert sorted(stream for _, stream, _ in fed) == sorted(decoding)
        trace["chunks"] = 0
        trace["rounds"] = trace["rounds"] + 1 if waiting_prefill and engine._prefilling else 0
    assert trace["chunks"] <= 1
    assert trace["rounds"] <= max(1, CHUNK // TOKENS_PER_ROUND)
    return more


def test_prompts_take_turns_so_a_short_one_is_not_held_up() -> None:
    stand = Stand()
    stand.job("long", 400)
    stand.job("short", 10)
    stand.run()
    streams = [stream for kind, stream, _ in stand.backend.fed if kind == "advance"]
    assert streams[:2] == [0, 1]


def test_jobs_get_streams_in_the_order_in_which_they_came() -> None:
    stand = Stand(streams=1)
    jobs = [stand.job(f"{n}", 30, domain="ab"[n % 2]) for n in range(5)]
    stand.run()
    started = [job.started_ns for job in jobs]
    assert started == sorted(started)
    fed = [ids[3] for kind, _, ids in stand.backend.fed if kind == "advance" and len(ids) > 30]  # type: ignore[index]
    assert fed == [text_ids(str(n))[0] for n in range(5)]


def test_pages_wait_while_a_prompt_does() -> None:
    """With a wide window, no page is exported between a job's arrival and its first token, though
    another answer that is decoded owes some."""
    stand = Stand(window_tokens=512)
    exports = 0

    def counted(*args: int) -> Any:
        nonlocal exports
        exports += 1
        return FakeBackend.export(stand.backend, *args)

    stand.backend.export = counted  # type: ignore[method-assign]
    stand.job("a", 200, tokens_max=100)
    while not stand.engine._decoding:
        step(stand.engine)
    stand.job("b", 300)
    while not any(isinstance(e, Item) and e.kind == "delta" for e in stand.posted["b"]):
        step(stand.engine)
        assert exports == 0
    # Then they are, one to a round, before the long answer has ended.
    while len(stand.engine._decoding) == 2:
        step(stand.engine)
    assert 0 < exports <= 9
    stand.run()
    assert exports == 4 + 5
    assert all(isinstance(stand.posted[name][-1], DigestKnown) for name in "ab")


def test_the_window_forces_pages_out_in_time() -> None:
    stand = Stand(window_tokens=64)
    stand.job("a", 300, tokens_max=100)
    stand.run()
    last = stand.posted["a"][-1]
    assert isinstance(last, DigestKnown)
    assert last.digest is not None


def test_what_was_posted_comes_in_order() -> None:
    stand = Stand()
    stand.job("a", 100, tokens_max=20)
    stand.run()
    kinds = [e.kind if isinstance(e, Item) else type(e).__name__ for e in stand.posted["a"]]
    order = ["prefill", "delta", "end", "DigestKnown"]
    assert kinds == sorted(kinds, key=order.index)
    assert kinds.count("end") == kinds.count("DigestKnown") == 1


def test_cancelled_jobs_end_in_every_state() -> None:
    stand = Stand(streams=2)
    jobs = [stand.job(f"{n}", 100 * n, tokens_max=50) for n in range(4)]
    while not stand.engine._decoding:
        step(stand.engine)
    for job in jobs:
        job.cancelled = True
    stand.run()
    assert [stand.end(f"{n}").finish for n in range(4)] == ["cancelled"] * 4  # type: ignore[union-attr]
    assert stand.engine.streams_busy == 0
    for stream in stand.engine.streams:
        assert stand.backend.length(stream.index) == stream.tokens


def test_a_settlement_that_is_resident_already_feeds_nothing() -> None:
    stand = Stand()
    first = stand.settle("s", 100)
    stand.run()
    (settled,) = stand.posted["s"]
    assert isinstance(settled, Settled)
    assert settled.complete
    # One page for each advance, and the advances that were fed for it, for the evidence.
    assert len(settled.pages) == len(first.prompt.advances) == len(stand.backend.fed)
    assert list(first.fed) == list(range(len(first.prompt.advances)))
    fed = len(stand.backend.fed)
    again = stand.settle("s", 100)
    stand.run()
    assert stand.posted["s"][-1] == settled
    assert len(stand.backend.fed) == fed
    assert again.fed == []
    again.cancelled = True


def test_what_was_posted_is_flushed_once_a_unit_and_between_two_groups() -> None:
    stand = Stand(group_max=1)
    flushed: list[tuple[int, dict[str, int]]] = []

    def flush() -> None:
        counts = {name: len(events) for name, events in stand.posted.items()}
        flushed.append((len(stand.backend.fed), counts))

    stand.engine._flush = flush
    for name in ("one", "two"):
        stand.job(name, 10)
    while len(stand.engine._decoding) != 2:
        assert stand.engine.step()
    flushed.clear()
    before = len(stand.backend.fed)
    assert stand.engine.step()
    fed, counts = zip(*flushed, strict=True)
    assert fed == (before, before + 1, before + 2), "before each group, and after the last one"
    # What the first group said was sent before the second one computed.
    assert counts[1]["one"] == counts[0]["one"] + 1
    assert counts[1]["two"] == counts[0]["two"]
    flushed.clear()
    stand.engine.fail_all(WorkerFault("of the test"))
    assert flushed
    assert all(isinstance(stand.end(name), WorkerFault) for name in ("one", "two"))
