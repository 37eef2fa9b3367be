"""The fixtures: they hold for a strict back end, and each finds the flaw that it is there for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from actors.experiment.fixtures import Fixtures, feed
from actors.worker.backend import Logits, PageRows
from protocol.tokens import TokenIds
from tests.fake_backend import FakeBackend


class Grouping(FakeBackend):
    """A decode of several streams has other logits."""

    def decode(self, items: Sequence[tuple[int, int]]) -> list[Logits]:
        return [logits + len(items) - 1 for logits in super().decode(items)]


class Lingering(FakeBackend):
    """What was decoded in a group is cut off but for one position."""

    def __init__(self) -> None:
        super().__init__(streams=8, group_max=8)
        self._grouped: set[int] = set()

    def decode(self, items: Sequence[tuple[int, int]]) -> list[Logits]:
        if len(items) > 1:
            self._grouped |= {stream for stream, _ in items}
        return super().decode(items)

    def truncate(self, stream: int, tokens: int) -> None:
        super().truncate(stream, tokens + (tokens > 0 and stream in self._grouped))
        self._grouped.discard(stream)


class Streamy(FakeBackend):
    """A state depends on the stream that it is in."""

    def advance(self, stream: int, ids: TokenIds, *, logits: bool) -> Logits | None:
        return super().advance(stream, (*ids[:-1], ids[-1] ^ stream), logits=logits)


class Sticky(FakeBackend):
    """Cutting back takes one position too many, wherever it leaves something."""

    def truncate(self, stream: int, tokens: int) -> None:
        super().truncate(stream, max(0, tokens - 1))


class Restoring(FakeBackend):
    """A restore changes a byte."""

    def restore(
        self, stream: int, pages: Sequence[PageRows], *, tokens: int, sliding_from: int
    ) -> None:
        first = PageRows(bytes([pages[0].full[0] ^ 1]) + pages[0].full[1:], pages[0].sliding)
        pages = [first, *pages[1:]]
        super().restore(stream, pages, tokens=tokens, sliding_from=sliding_from)


class Threading(FakeBackend):
    """Prefill depends on the number of threads."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.threads = threads

    def advance(self, stream: int, ids: TokenIds, *, logits: bool) -> Logits | None:
        changed = (*ids[:-1], ids[-1] ^ (self.threads - 1))
        return super().advance(stream, changed, logits=logits)


def failing(kind: type[FakeBackend]) -> set[str]:
    def open_backend(threads: int) -> FakeBackend:
        return kind(threads) if kind is Threading else kind()  # type: ignore[arg-type]

    return {name for name, wrong in Fixtures(open_backend, 2).run() if wrong}


@pytest.mark.req("KV-2")
def test_a_strict_back_end_holds() -> None:
    names = [name for name, _ in Fixtures(lambda threads: FakeBackend(), 2).run()]
    assert len(names) == 6
    assert failing(FakeBackend) == set()


def wrong_where_answers_may_differ(kind: type[FakeBackend]) -> dict[str, str]:
    return dict(Fixtures(lambda threads: kind(), 2, reproducible=False).run())


@pytest.mark.req("KV-2")
def test_where_answers_may_differ_states_are_tried_and_answers_are_not() -> None:
    wrong = wrong_where_answers_may_differ(Grouping)
    assert "cut back after decoding in a group of 3" in wrong
    assert not any(name.startswith("decoded in a group") for name in wrong)
    assert set(wrong.values()) == {""}, "a group that decodes to other bits breaks no promise"
    assert len(wrong) == 5


@pytest.mark.req("KV-2")
def test_what_a_group_leaves_behind_is_found() -> None:
    found = wrong_where_answers_may_differ(Lingering)
    assert found["cut back after decoding in a group of 8"].startswith("stream 0: states differ")


class Rounding(FakeBackend):
    """Other logits in every stream, of which the same one is the largest."""

    def advance(self, stream: int, ids: TokenIds, *, logits: bool) -> Logits | None:
        found = super().advance(stream, ids, logits=logits)
        return None if found is None else found * (1 + stream)


@pytest.mark.req("KV-2")
def test_where_states_may_differ_the_greedy_token_is_tried() -> None:
    def wrong(kind: type[FakeBackend]) -> set[str]:
        tried = Fixtures(lambda threads: kind(), 2, reproducible=False, bitwise=False)
        return {name for name, each in tried.run() if each}

    assert "the same schedule twice" in failing(Rounding)
    assert wrong(Rounding) == set()
    assert "the same schedule twice" in wrong(Streamy)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Grouping, "decoded in a group of 2"),
        (Streamy, "the same schedule twice"),
        (Sticky, "cut back and fed again"),
        (Restoring, "restored from pages"),
        (Threading, "prefilled with 2 threads"),
    ],
)
def test_each_flaw_is_found(kind: type[FakeBackend], name: str) -> None:
    assert name in failing(kind)


def test_pages_are_made_as_it_is_fed() -> None:
    backend = FakeBackend()
    fed = feed(backend, 0, [(10, 11, 12), (13,)])
    assert backend.length(0) == 4
    assert len(fed.pages) == 2
    assert fed.differs(feed(backend, 1, [(10, 11, 12), (13,)])) == ""
    assert "states differ" in fed.differs(feed(backend, 1, [(10, 11), (12, 13)]))
