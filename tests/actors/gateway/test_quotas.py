"""What one principal may ask at a time; an oracle counts in another way."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.quotas import Quotas
from protocol.errors import LimitExceeded
from tests.worker_rooms import SECOND, HandClock


def ask(quotas: Quotas, who: str) -> bool:
    try:
        with quotas.entered(who):
            return True
    except LimitExceeded:
        return False


@pytest.mark.req("AUT-9")
def test_open_requests_are_counted_for_each() -> None:
    quotas = Quotas(HandClock(), open_max=2, minute_max=0)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(quotas.entered("alice"))
        with pytest.raises(LimitExceeded, match="2 requests of this key are open") as error:
            stack.enter_context(quotas.entered("alice"))
        assert error.value.details["retry_s"] == 1
        assert ask(quotas, "bob"), "alice's are not bob's"
    assert ask(quotas, "alice")


@pytest.mark.req("AUT-9")
@given(
    st.integers(1, 600),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["alice", "bob"])), max_size=60),
)
def test_never_more_than_the_rate_and_nobody_pays_for_another(
    minute_max: int, steps: list[tuple[int, str]]
) -> None:
    clock = HandClock()
    quotas = Quotas(clock, open_max=0, minute_max=minute_max)
    alone = {who: Quotas(clock, open_max=0, minute_max=minute_max) for who in ("alice", "bob")}
    let_in: dict[str, list[int]] = {"alice": [], "bob": []}
    burst = max(1, minute_max // 6)
    for seconds, who in steps:
        clock.now_ns += seconds * SECOND
        answered = ask(quotas, who)
        assert answered == ask(alone[who], who)
        if answered:
            let_in[who].append(clock.now_ns)
        for times in let_in.values():
            for index, start in enumerate(times):
                for stop in times[index:]:
                    within = sum(start <= time <= stop for time in times)
                    assert within <= burst + 1 + (stop - start) * minute_max // (60 * SECOND)


def test_who_waits_as_told_is_let_in() -> None:
    clock = HandClock()
    quotas = Quotas(clock, open_max=0, minute_max=60)
    while ask(quotas, "alice"):
        pass
    with pytest.raises(LimitExceeded, match="60 times a minute") as error, quotas.entered("alice"):
        pass
    clock.now_ns += int(error.value.details["retry_s"] or 0) * SECOND
    assert ask(quotas, "alice")
    assert not ask(quotas, "alice")
