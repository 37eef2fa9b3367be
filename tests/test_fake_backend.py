"""The fake back end shows every mistake of a schedule."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from actors.worker.backend import PageRows
from protocol.errors import WorkerFault
from protocol.tokens import TokenIds
from tests.fake_backend import FakeBackend

IDS = FakeBackend().tokenizer.encode("a sequence of content")


def final(chunks: list[TokenIds], decoded: TokenIds = ()) -> bytes:
    backend = FakeBackend()
    for chunk in chunks:
        backend.advance(0, chunk, logits=False)
    for token in decoded:
        backend.decode([(0, token)])
    logits = backend.advance(0, (99,), logits=True)
    assert logits is not None
    return logits.tobytes()


def test_every_other_schedule_of_the_same_ids_is_another_state() -> None:
    right = final([IDS[:8], IDS[8:]])
    assert final([IDS[:8], IDS[8:]]) == right
    wrong = [
        final([IDS]),
        final([IDS[:9], IDS[9:]]),
        final([IDS[:8], IDS[8:12], IDS[12:]]),
        final([IDS[:8]], IDS[8:]),
        final([IDS[:8], IDS[8:], IDS[-1:]]),
        final([IDS[:7], IDS[8:]]),
    ]
    assert len({right, *wrong}) == 1 + len(wrong)


def test_the_log_and_the_faults() -> None:
    backend = FakeBackend()
    backend.advance(0, IDS, logits=False)
    backend.fault = "keep"
    with pytest.raises(WorkerFault):
        backend.advance(0, IDS, logits=False)
    assert backend.length(0) == len(IDS)
    backend.fault = "clear"
    with pytest.raises(WorkerFault):
        backend.decode([(0, 9)])
    assert backend.length(0) == 0
    backend.truncate(0, 0)
    assert backend.fed == [("advance", 0, IDS), ("truncate", 0, 0)]


def test_every_byte_of_a_restored_page_that_is_looked_at_shows() -> None:
    """Also of a page that is not the last one; and no byte shows that nothing looks at."""
    backend = FakeBackend()
    pages = []
    for start in range(0, 200, 50):
        backend.advance(0, (IDS * 3)[:50], logits=False)
        pages.append(backend.export(0, start, start + 50))

    def state(given: list[PageRows]) -> bytes:
        backend.truncate(1, 0)
        backend.restore(1, given, tokens=200, sliding_from=128)
        logits = backend.advance(1, (99,), logits=True)
        assert logits is not None
        return logits.tobytes()

    right = state(pages)
    logits = backend.advance(0, (99,), logits=True)
    assert logits is not None
    assert logits.tobytes() == right
    for index, page in enumerate(pages):
        for at in (0, 777, len(page.full) - 1):
            full = PageRows(flipped(page.full, at), page.sliding)
            assert state([*pages[:index], full, *pages[index + 1 :]]) != right
            sliding = PageRows(page.full, flipped(page.sliding, at))
            position = 50 * index + at // 32 % 50
            same = state([*pages[:index], sliding, *pages[index + 1 :]]) == right
            assert same == (position < 200 - 64)
    backend.fault = "keep"
    backend.truncate(1, 0)
    with pytest.raises(WorkerFault):
        state(pages)
    assert backend.length(1) == 0
    assert state(pages) == right


def flipped(section: bytes, at: int) -> bytes:
    return section[:at] + bytes((section[at] ^ 1,)) + section[at + 1 :]


def test_two_threads_at_once_are_a_mistake() -> None:
    backend = FakeBackend()
    with ThreadPoolExecutor(1) as pool, backend._alone():
        call = pool.submit(backend.length, 0)
        with pytest.raises(AssertionError, match="two threads"):
            call.result()
