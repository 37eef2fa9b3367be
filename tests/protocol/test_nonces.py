"""The nonce window: once each, whatever the clock does, within bounded memory."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import InvocationError, StoreFault, Unavailable
from protocol.limits import INVOCATION_SKEW_NS_MAX
from protocol.nonces import NonceWindow
from tests.chains import NOW, PRINCIPAL, ROOM_A, SECOND, nonce

KEY, OTHER_KEY = PRINCIPAL.public, ROOM_A.public


def refused_at(window: NonceWindow, number: int, ts_ns: int, now_ns: int) -> str:
    with pytest.raises(InvocationError) as caught:
        window.admit(KEY, nonce(number), ts_ns, now_ns)
    return caught.value.step


@pytest.mark.req("AUT-2")
def test_a_nonce_is_admitted_once_for_each_signer() -> None:
    window = NonceWindow(NOW)
    window.admit(KEY, nonce(1), NOW, NOW)
    assert refused_at(window, 1, NOW, NOW) == "nonce"
    # The same nonce stated at another time is still the same nonce.
    assert refused_at(window, 1, NOW + 1, NOW + 1) == "nonce"
    window.admit(KEY, nonce(2), NOW, NOW)
    window.admit(OTHER_KEY, nonce(1), NOW, NOW)
    assert len(window) == 3


@pytest.mark.req("AUT-2")
def test_nothing_from_before_the_start_is_admitted() -> None:
    window = NonceWindow(NOW)
    assert refused_at(window, 1, NOW - 1, NOW) == "start"
    window.admit(KEY, nonce(1), NOW, NOW)


@pytest.mark.req("AUT-2")
def test_a_restart_reopens_no_replay() -> None:
    before = NonceWindow(NOW)
    # The signer's clock is 20 s ahead of ours: the nonce outlives the restart a second later.
    ahead = NOW + 20 * SECOND
    before.admit(KEY, nonce(1), ahead, NOW)
    assert before.high_ns == ahead
    restarted = NOW + SECOND
    after = NonceWindow(max(restarted, before.high_ns + 1))
    assert refused_at(after, 1, ahead, restarted) == "start"
    after.admit(KEY, nonce(2), ahead + 1, restarted + SECOND)


def test_a_nonce_is_kept_as_long_as_it_could_be_replayed_and_no_longer() -> None:
    window = NonceWindow(0)
    latest = NOW + INVOCATION_SKEW_NS_MAX
    window.admit(KEY, nonce(1), latest, NOW)
    last_moment = NOW + 2 * INVOCATION_SKEW_NS_MAX
    assert refused_at(window, 1, latest, last_moment) == "nonce"
    assert refused_at(window, 1, latest, last_moment + 1) == "start"
    assert len(window) == 0


def test_a_full_window_admits_nothing_until_time_has_passed() -> None:
    window = NonceWindow(0, nonces_max=2)
    window.admit(KEY, nonce(1), NOW, NOW)
    window.admit(KEY, nonce(2), NOW, NOW)
    with pytest.raises(Unavailable, match="2 invocations"):
        window.admit(KEY, nonce(3), NOW, NOW)
    assert refused_at(window, 1, NOW, NOW) == "nonce"
    later = NOW + 2 * INVOCATION_SKEW_NS_MAX
    window.admit(KEY, nonce(3), later, later)
    assert len(window) == 1


@pytest.mark.req("AUT-2")
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(-35, 35), st.integers(-70, 70)),
        max_size=40,
    )
)
def test_nothing_is_admitted_twice_whatever_the_clock_does(
    steps: list[tuple[int, int, int, int]],
) -> None:
    """Against a memory that forgets nothing; the clock moves by up to 70 s either way."""
    window = NonceWindow(NOW)
    clock = latest = NOW
    stated: dict[tuple[int, int], int] = {}
    admitted = set()
    for number, signer, skew_s, step_s in steps:
        clock += step_s * SECOND
        latest = max(latest, clock)
        # What was signed once is replayed as it was: a nonce keeps the time it was stated at.
        ts_ns = stated.setdefault((signer, number), clock + skew_s * SECOND)
        fresh = (signer, number) not in admitted
        in_time = ts_ns >= max(NOW, latest - INVOCATION_SKEW_NS_MAX)
        if fresh and in_time:
            window.admit(bytes([signer]), nonce(number), ts_ns, clock)
            admitted.add((signer, number))
        else:
            with pytest.raises(InvocationError) as caught:
                window.admit(bytes([signer]), nonce(number), ts_ns, clock)
            assert caught.value.step == ("nonce" if in_time else "start")


# -- the mark --------------------------------------------------------------------------------


class Mark:
    """A high mark in memory. `slow`: what is asked for is not durable until `settle`; `broken`:
    nothing can be kept."""

    def __init__(self) -> None:
        self.kept_ns = 0
        self.writes = 0
        self.slow = self.broken = False
        self.asked: list[tuple[int, Future[None]]] = []

    def read(self) -> int:
        return self.kept_ns

    def keep_soon(self, ns: int) -> Future[None]:
        self.writes += 1
        future: Future[None] = Future()
        self.asked.append((ns, future))
        if not self.slow:
            self.settle()
        return future

    def settle(self) -> None:
        for ns, future in self.asked:
            if self.broken:
                future.set_exception(StoreFault("the disk is full"))
            else:
                self.kept_ns = ns
                future.set_result(None)
        self.asked.clear()


@pytest.mark.req("AUT-2")
@given(
    st.lists(
        st.tuples(st.sampled_from("mr"), st.integers(0, 5), st.integers(-31, 31), st.integers()),
        max_size=40,
    )
)
def test_nothing_is_admitted_twice_across_restarts(
    steps: list[tuple[str, int, int, int]],
) -> None:
    """Messages and restarts; the clock moves by up to 40 s either way between them."""
    mark = Mark()
    clock = NOW
    window = NonceWindow(clock, mark=mark)
    stated: dict[int, int] = {}
    admitted: set[int] = set()
    for act, number, skew_s, step in steps:
        clock += (step % 80 - 40) * SECOND // 2
        if act == "r":
            window = NonceWindow(clock, mark=mark)
            continue
        ts_ns = stated.setdefault(number, clock + skew_s * SECOND)
        try:
            window.admit(KEY, nonce(number), ts_ns, clock)
        except InvocationError:
            continue
        assert number not in admitted
        admitted.add(number)


def test_the_mark_is_written_once_a_second_and_not_waited_for() -> None:
    mark = Mark()
    mark.slow = True
    window = NonceWindow(NOW, mark=mark)
    for number in range(1000):
        window.admit(KEY, nonce(number), NOW + number * 10**6, NOW + number * 10**6)
    assert mark.writes == 1
    window.admit(KEY, nonce(1000), NOW + SECOND, NOW + SECOND)
    assert mark.writes == 2
    mark.settle()
    assert mark.read() == NOW + 2 * SECOND


def test_one_from_the_future_waits_for_the_mark() -> None:
    mark = Mark()
    window = NonceWindow(NOW, mark=mark)
    window.admit(KEY, nonce(1), NOW + 20 * SECOND, NOW)
    assert mark.read() > NOW + 20 * SECOND
    assert refused_at(NonceWindow(NOW + SECOND, mark=mark), 1, NOW + 20 * SECOND, NOW) == "start"
    mark.broken = True
    with pytest.raises(StoreFault, match="full"):
        window.admit(KEY, nonce(2), NOW + 25 * SECOND, NOW)
    assert len(window) == 1


def test_a_mark_that_cannot_be_kept_stops_nobody_and_is_tried_again() -> None:
    mark = Mark()
    mark.broken = True
    window = NonceWindow(NOW, mark=mark)
    window.admit(KEY, nonce(1), NOW, NOW)
    window.admit(KEY, nonce(2), NOW + 1, NOW + 1)
    assert (mark.writes, mark.read()) == (2, 0)
    mark.broken = False
    window.admit(KEY, nonce(3), NOW + 2, NOW + 2)
    assert mark.read() == NOW + 2 + SECOND
