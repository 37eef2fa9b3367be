"""The conformance suite of Backend.restore: a restored stream is a fed one, byte for byte.

A token of the default model costs milliseconds: with it, each rule is looked at where it begins to
hold. The small models, whose layers are of the same kinds, go further and through every length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.worker.backend import Backend, PageRows
from protocol.errors import WorkerFault
from protocol.tokens import TokenIds
from tests.backends import OPEN, ids_for

# Tokens of the advance by which two streams are compared: enough to fill the kernels' tiles.
PROBE = 64
# Calls of a history that is fed again in an instant.
FEW = 3


@dataclass
class History:
    """What was fed to one stream, call by call, and the page of each call."""

    calls: list[tuple[str, TokenIds]] = field(default_factory=list)
    pages: list[PageRows] = field(default_factory=list)

    def length(self, calls: int | None = None) -> int:
        """How many tokens the first `calls` fed."""
        return sum(len(ids) for _, ids in self.calls[:calls])

    def feed(self, backend: Backend, stream: int, call: str, ids: TokenIds) -> None:
        """Feed `ids`, and keep them and their page."""
        start = backend.length(stream)
        apply(backend, stream, call, ids)
        self.calls.append((call, ids))
        self.pages.append(backend.export(stream, start, start + len(ids)))

    def repeat(self, backend: Backend, stream: int) -> None:
        """Feed it all to an empty stream: the oracle."""
        for call, ids in self.calls:
            apply(backend, stream, call, ids)

    def cut(self, calls: int) -> History:
        """The first `calls` calls."""
        return History(self.calls[:calls], self.pages[:calls])

    def restore(self, backend: Backend, stream: int, sliding_from: int | None = None) -> None:
        """Restore it all into an empty stream, from no more bytes than that takes."""
        tokens = self.length()
        if sliding_from is None:
            sliding_from = backend.sliding_start(tokens)
        pages, at = [], 0
        for page, (_, ids) in zip(self.pages, self.calls, strict=True):
            at += len(ids)
            pages.append(page if at > sliding_from else PageRows(page.full, b""))
        backend.restore(stream, pages, tokens=tokens, sliding_from=sliding_from)


def apply(backend: Backend, stream: int, call: str, ids: TokenIds) -> None:
    if call == "advance":
        backend.advance(stream, ids, logits=False)
    else:
        backend.decode([(stream, ids[0])])


def history(backend: Backend, stream: int, counts: Sequence[int], seed: int = 0) -> History:
    """Advances of `counts` tokens, fed to an empty stream."""
    made = History()
    for number, count in enumerate(counts):
        made.feed(backend, stream, "advance", ids_for(backend, count, seed=seed + number))
    return made


def costly(backend: Backend) -> bool:
    """Whether this is the default model: its window is longer than what is fed at once."""
    return backend.export_tokens_max > backend.chunk_tokens


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


def continuation(backend: Backend, stream: int, probe: int = PROBE) -> list[bytes]:
    """What the stream says next, then cut off again: the logits and the page of an advance, six
    greedy tokens with their logits, and their rows. The window's rows before all that come first.
    """
    length = backend.length(stream)
    behind = max(0, length - backend.export_tokens_max)
    pages = [backend.export(stream, behind, length)]
    logits = backend.advance(stream, ids_for(backend, probe, seed=77), logits=True)
    assert logits is not None
    said = [logits.tobytes()]
    stop = length + probe
    pages.append(backend.export(stream, max(length, stop - backend.export_tokens_max), stop))
    for _ in range(6):
        token = int(logits.argmax())
        logits = backend.decode([(stream, token)])[0]
        said += [token.to_bytes(4, "little"), logits.tobytes()]
    pages.append(backend.export(stream, stop, stop + 6))
    backend.truncate(stream, length)
    return said + [section for page in pages for section in (page.full, page.sliding)]


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
