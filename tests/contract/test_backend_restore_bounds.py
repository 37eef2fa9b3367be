"""What a back end does not restore, and where it does not cut what was restored: it says so, and
changes nothing. With it the negative control of the suite: another page is another state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from actors.worker.backend import Backend, PageRows
from protocol.errors import WorkerFault
from tests.backends import ids_for
from tests.fed_histories import FEW, History, continuation, costly, history


@dataclass
class Fed:
    """A history that goes two tiles beyond the window, and after some of its numbers of calls what
    a stream says that was fed this and nothing else."""

    made: History
    calls_to_said: dict[int, list[bytes]]

    @property
    def calls(self) -> int:
        return len(self.made.calls)

    @property
    def middle(self) -> int:
        """Calls that end beyond the window, and before the end by a tile."""
        return self.calls - 3


@pytest.fixture(scope="module")
def fed(opened: Backend) -> Fed:
    """Fed once for all tests that need no more of it than its pages and what is said after it."""
    opened.truncate(0, 0)
    counts = [30] * ((opened.export_tokens_max + 128) // 30 + 1) + [17]
    found = Fed(history(opened, 0, counts[:FEW]), {})
    for calls, count in enumerate(counts[FEW:], FEW):
        if calls in (FEW, len(counts) - 3):
            found.calls_to_said[calls] = continuation(opened, 0)
        found.made.feed(opened, 0, "advance", ids_for(opened, count, seed=calls))
    found.calls_to_said[found.calls] = continuation(opened, 0)
    return found


def feed_again(backend: Backend, stream: int, fed: Fed) -> None:
    """Assert that an emptied stream takes the history as a new one does."""
    backend.truncate(stream, 0)
    calls = FEW if costly(backend) else fed.calls
    fed.made.cut(calls).repeat(backend, stream)
    assert continuation(backend, stream) == fed.calls_to_said[calls]


@pytest.mark.req("KV-7")
def test_a_cut_below_what_was_restored_is_refused_and_changes_nothing(backend: Backend) -> None:
    # As few calls as leave one that can be cut off again.
    starts = [backend.sliding_start(48 * calls) for calls in range(backend.context_tokens // 48)]
    calls = next(n for n, start in enumerate(starts) if start and starts[n - 1] == start)
    kept = 48 * starts.index(starts[calls])
    made = history(backend, 0, [48] * (kept // 48))
    fresh = continuation(backend, 0)
    while len(made.calls) < calls:
        made.feed(backend, 0, "advance", ids_for(backend, 48, seed=len(made.calls)))
    tokens = made.length()
    bound = backend.sliding_start(tokens)
    made.restore(backend, 1)
    assert all(backend.can_truncate(0, length) for length in range(tokens + 1))
    assert not any(backend.can_truncate(s, length) for s in (0, 1) for length in (-1, tokens + 1))
    for length in range(tokens + 1):
        allowed = length == 0 or backend.sliding_start(length) >= bound
        assert backend.can_truncate(1, length) == allowed
        if not allowed:
            with pytest.raises(WorkerFault, match=str(length)):
                backend.truncate(1, length)
    assert not backend.can_truncate(1, bound)
    assert continuation(backend, 1) == continuation(backend, 0)

    # What is allowed is as good as a fed stream that was cut, and as a fresh one.
    for end in (tokens - 1, kept):
        for stream in (0, 1):
            backend.truncate(stream, end)
        assert continuation(backend, 1) == continuation(backend, 0)
    assert continuation(backend, 1) == fresh


def test_a_lower_bound_leaves_room_for_the_cut_that_it_was_chosen_for(
    backend: Backend, fed: Fed
) -> None:
    made, middle = fed.made, fed.made.length(fed.middle)
    assert 0 < backend.sliding_start(middle) < backend.sliding_start(made.length())
    made.restore(backend, 1, backend.sliding_start(middle))
    backend.truncate(1, middle)
    assert continuation(backend, 1) == fed.calls_to_said[fed.middle]
    # A bound belongs to what was restored: the stream's next sequence starts without one.
    backend.truncate(1, 0)
    made.cut(FEW).repeat(backend, 1)
    assert all(backend.can_truncate(1, length) for length in range(made.length(FEW) + 1))


Refused = dict[str, Callable[[], object]]


def _refused(backend: Backend, made: History) -> Refused:
    """Restores that break a rule, into empty streams."""
    pages, tokens = made.pages, made.length()
    start = backend.sliding_start(tokens)
    full, sliding = pages[-1].full, pages[-1].sliding
    row = len(full) // len(made.calls[-1][1])

    def restore(
        found: Sequence[PageRows], count: int = tokens, first: int = start, stream: int = 1
    ) -> Callable[[], None]:
        return lambda: backend.restore(stream, found, tokens=count, sliding_from=first)

    def last(page: PageRows) -> Callable[[], None]:
        return restore([*pages[:-1], page])

    return {
        "no pages": restore([]),
        "no tokens": restore([], 0, 0),
        "a page missing": restore(pages[:-1]),
        "a page too many": restore([*pages, pages[0]]),
        "fewer tokens than rows": restore(pages, tokens - 1),
        "more tokens than rows": restore(pages, tokens + 1),
        "more than a stream takes": restore(pages, backend.context_tokens + 1),
        "a byte short": last(PageRows(full[:-1], sliding)),
        "a position short": last(PageRows(full[:-row], sliding)),
        "a byte long": last(PageRows(full + b"\0", sliding)),
        "a position long": last(PageRows(full + full[:row], sliding)),
        "an empty page": restore([*pages, PageRows(b"", b"")]),
        "sections of two pages": last(PageRows(pages[0].full, sliding)),
        "sliding rows missing": last(PageRows(full, b"")),
        "sliding rows short": last(PageRows(full, sliding[:-2])),
        "sliding rows from too late": restore(pages, tokens, tokens),
        "sliding rows from within a tile": restore(pages, tokens, start - 1 if start else 1),
        "sliding rows from before the beginning": restore(pages, tokens, -64),
        "no such stream": restore(pages, stream=backend.streams),
        "a negative stream": restore(pages, stream=-1),
    }


def test_wrong_pages_are_refused_and_leave_an_empty_usable_stream(
    backend: Backend, fed: Fed
) -> None:
    for name, call in _refused(backend, fed.made).items():
        with pytest.raises(WorkerFault):
            call()
        assert backend.length(1) == 0, name
    fed.made.restore(backend, 1)
    assert continuation(backend, 1) == fed.calls_to_said[fed.calls]
    feed_again(backend, 1, fed)


def test_a_stream_that_holds_something_is_not_restored_into(backend: Backend) -> None:
    made = history(backend, 0, [20, 13])
    backend.advance(1, ids_for(backend, 5), logits=False)
    before = backend.export(1, 0, 5)
    with pytest.raises(WorkerFault, match="5 positions"):
        made.restore(backend, 1)
    with pytest.raises(WorkerFault, match="33 positions"):
        made.restore(backend, 0)
    assert backend.length(1) == 5
    assert backend.export(1, 0, 5) == before


def test_another_page_is_another_state_and_gone_with_it(backend: Backend, fed: Fed) -> None:
    """The negative control of every equality here, and why digests are verified before this."""
    made, pages, expected = fed.made, fed.made.pages, fed.calls_to_said[fed.calls]
    start = backend.sliding_start(made.length())
    unseen = start // 30  # the page across the bound, whose first rows are not taken
    assert 60 <= 30 * unseen < start < 30 * unseen + 30

    def state(changed: dict[int, PageRows]) -> list[bytes]:
        backend.truncate(1, 0)
        given = [changed.get(index, page) for index, page in enumerate(pages)]
        backend.restore(1, given, tokens=made.length(), sliding_from=start)
        return continuation(backend, 1)

    final = len(pages) - 1
    assert state({}) == expected
    assert state({0: PageRows(negative(pages[0].full), pages[0].sliding)}) != expected
    assert state({final: PageRows(negative(pages[final].full), pages[final].sliding)}) != expected
    assert state({final: PageRows(pages[final].full, negative(pages[final].sliding))}) != expected
    assert state({0: pages[1], 1: pages[0]}) != expected
    # Sliding rows before the bound are not looked at, whatever they are.
    early = {index: PageRows(pages[index].full, negative(pages[index].sliding)) for index in (0, 1)}
    assert state(early) == expected
    # And nothing of a wrong state outlives it.
    assert state({}) == expected
    feed_again(backend, 1, fed)


def negative(section: bytes) -> bytes:
    """Rows of half-precision numbers with all signs changed: other rows, and still numbers."""
    return (np.frombuffer(section, dtype="<u2") ^ 0x8000).tobytes()
