"""The contract of `store.events`, held by the logs on disk and those in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import Conflict, ContentError, CorruptObject, HuginnError, StoreFault
from protocol.ids import EventId
from protocol.limits import EQUIVOCATIONS_MAX
from store.commit import settled
from store.events import EventLogs, LogRange, StoredEvent
from store.tables import Append, Change, Put, Tables
from tests.event_logs import (
    SIGNERS,
    SOURCE,
    chain,
    entry_after,
    event_logs,
    position,
    source_of,
    stored,
    stored_chain,
)
from tests.stores import FAST, KINDS

CHAIN = stored_chain(12)
OTHER_SOURCE = source_of(SIGNERS[1])
OTHER = stored_chain(5, signer=SIGNERS[1])
# Another entry for number 6.
TWIN = stored(entry_after(position(chain(5)[-1]), "twin"))


class Kept(NamedTuple):
    logs: EventLogs
    tables: Tables

    def append(self, entries: list[StoredEvent], changes: list[Change] | None = None) -> None:
        self.logs.append_soon(entries, changes or []).result()


@pytest.fixture(params=KINDS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    found = Kept(*event_logs(request.param, tmp_path))
    yield found
    found.logs.close()


@pytest.mark.req("EVT-2")
def test_a_log_has_what_was_appended(kept: Kept) -> None:
    assert kept.logs.range(SOURCE) == LogRange(1, 0, None)
    assert kept.logs.read(SOURCE, 0, 10) == []
    kept.append(CHAIN[:3])
    kept.append(CHAIN[3:10])
    assert kept.logs.range(SOURCE) == LogRange(1, 10, CHAIN[9].id)
    assert kept.logs.read(SOURCE, 0, 100) == CHAIN[:10]
    assert kept.logs.read(SOURCE, 3, 4) == CHAIN[3:7]
    assert kept.logs.read(SOURCE, 9, 1) == CHAIN[9:10]
    assert kept.logs.read(SOURCE, 10, 1) == []
    assert kept.logs.read(SOURCE, 2**63, 2**70) == []
    assert kept.logs.check() == []


def test_sizes_are_of_what_would_be_read(kept: Kept) -> None:
    kept.append([*CHAIN[:10], *OTHER])
    kept.logs.trim(SOURCE, 3)
    for after, limit in ((0, 100), (0, 2), (3, 4), (6, 1), (9, 1), (10, 1), (2**63, 2**70)):
        read = kept.logs.read(SOURCE, after, limit)
        sizes = [(entry.seq, entry.hlc, len(entry.body)) for entry in read]
        assert kept.logs.sizes(SOURCE, after, limit) == sizes
    with pytest.raises(ContentError):
        kept.logs.sizes(SOURCE, -1, 1)


@pytest.mark.req("EVT-2")
def test_each_source_counts_for_itself(kept: Kept) -> None:
    kept.append([CHAIN[0], OTHER[0], CHAIN[1], OTHER[1], CHAIN[2]])
    kept.append([])
    assert kept.logs.ranges() == {
        SOURCE: LogRange(1, 3, CHAIN[2].id),
        OTHER_SOURCE: LogRange(1, 2, OTHER[1].id),
    }
    assert kept.logs.read(OTHER_SOURCE, 0, 9) == OTHER[:2]


@pytest.mark.req("EVT-2")
@pytest.mark.parametrize(
    ("batch", "expected", "found"),
    [
        ([CHAIN[6]], 6, 7),
        ([CHAIN[0]], 6, 1),
        ([TWIN, TWIN], 7, 6),
        ([CHAIN[5], CHAIN[7]], 7, 8),
        ([OTHER[0], CHAIN[5], CHAIN[4]], 7, 5),
    ],
)
def test_a_number_that_is_not_the_next_refuses_the_whole_batch(
    kept: Kept, batch: list[StoredEvent], expected: int, found: int
) -> None:
    kept.append(CHAIN[:5])
    with pytest.raises(Conflict) as refused:
        kept.append(batch, [Put("t", b"k", b"v")])
    assert refused.value.details == {"source": str(SOURCE), "expected": expected, "found": found}
    assert kept.logs.ranges() == {SOURCE: LogRange(1, 5, CHAIN[4].id)}
    assert kept.tables.keyed("t").get(b"k") is None
    kept.append([TWIN])
    assert kept.logs.range(SOURCE).id == TWIN.id


def test_bytes_that_are_not_of_their_id_are_not_taken(kept: Kept) -> None:
    for wrong in (
        CHAIN[0]._replace(body=CHAIN[1].body),
        CHAIN[0]._replace(id=EventId.of(b"")),
        CHAIN[0]._replace(body=b"no entry"),
    ):
        with pytest.raises(CorruptObject, match="entry 1"):
            kept.append([wrong])
        with pytest.raises(CorruptObject, match="entry 1"):
            kept.logs.keep_evidence(wrong)
    assert kept.logs.ranges() == {}


@pytest.mark.req("EVT-5")
def test_entries_and_changes_are_one_transaction(kept: Kept) -> None:
    kept.append(CHAIN[:1], [Put("marks", b"session", b"1"), Append("audit", b"told")])
    assert kept.tables.keyed("marks").get(b"session") == b"1"
    assert kept.tables.log("audit").head().seq == 1
    with pytest.raises(HuginnError):
        kept.append(CHAIN[1:2], [Put("marks", b"", b"2")])
    assert kept.logs.range(SOURCE).head == 1
    # Either way round: changes alone go the same way.
    kept.append([], [Put("marks", b"session", b"2")])
    assert kept.tables.keyed("marks").get(b"session") == b"2"


def test_a_page_ends_where_its_bytes_do(kept: Kept) -> None:
    kept.append(CHAIN)
    size = len(CHAIN[4].body)
    assert kept.logs.read(SOURCE, 0, 9, bytes_max=0) == CHAIN[:1]
    assert kept.logs.read(SOURCE, 4, 9, bytes_max=3 * size + 10) == CHAIN[4:7]
    assert kept.logs.read(SOURCE, 0, 2, bytes_max=2**30) == CHAIN[:2]
    for after, limit in ((-1, 1), (0, 0)):
        with pytest.raises(ContentError, match="at least 1 entry"):
            kept.logs.read(SOURCE, after, limit)


@pytest.mark.req("EVT-2")
def test_evidence_is_kept_beside_and_once(kept: Kept) -> None:
    kept.append(CHAIN)
    assert kept.logs.evidence(SOURCE) == []
    twins = [
        stored(entry_after(position(chain(number)[-1]), f"twin {number}")) for number in (7, 3, 3)
    ]
    assert [kept.logs.keep_evidence(twin) for twin in [*twins, TWIN]] == [True, True, False, True]
    assert kept.logs.evidence(SOURCE) == [twins[1], TWIN, twins[0]]
    assert kept.logs.evidence(OTHER_SOURCE) == []
    # The first stays, whatever is kept beside it.
    assert kept.logs.read(SOURCE, 0, 99) == CHAIN
    with pytest.raises(ContentError, match="no evidence"):
        kept.logs.keep_evidence(CHAIN[5])
    # Of a source that has no log, too; and for a number that is not reached.
    assert kept.logs.keep_evidence(OTHER[2])
    assert kept.logs.check() == []


def test_evidence_is_bounded(kept: Kept) -> None:
    head = position(chain(5)[-1])
    for number in range(EQUIVOCATIONS_MAX):
        assert kept.logs.keep_evidence(stored(entry_after(head, f"twin {number}")))
    assert not kept.logs.keep_evidence(TWIN)
    assert len(kept.logs.evidence(SOURCE)) == EQUIVOCATIONS_MAX


@pytest.mark.req("EVT-9")
def test_trimming_takes_the_oldest_and_the_log_goes_on(kept: Kept) -> None:
    kept.append(CHAIN[:10])
    assert kept.logs.trim(SOURCE, 4) == 4
    assert kept.logs.trim(SOURCE, 2) == 0
    assert kept.logs.range(SOURCE) == LogRange(5, 10, CHAIN[9].id)
    assert kept.logs.read(SOURCE, 0, 99) == CHAIN[4:10]
    assert kept.logs.read(SOURCE, 6, 2) == CHAIN[6:8]
    assert kept.logs.check() == []
    assert kept.logs.check(newest=2) == []
    assert kept.logs.trim(SOURCE, 99) == 6
    assert kept.logs.range(SOURCE) == LogRange(11, 10, CHAIN[9].id)
    assert kept.logs.ranges() == {SOURCE: LogRange(11, 10, CHAIN[9].id)}
    assert kept.logs.read(SOURCE, 0, 99) == []
    kept.append(CHAIN[10:])
    assert kept.logs.range(SOURCE) == LogRange(11, 12, CHAIN[11].id)
    assert kept.logs.check() == []
    assert kept.logs.trim(OTHER_SOURCE, 1) == 0


def test_dropping_forgets_the_source(kept: Kept) -> None:
    kept.append([*CHAIN[:7], *OTHER])
    kept.logs.keep_evidence(TWIN)
    kept.logs.trim(SOURCE, 2)
    assert kept.logs.drop(SOURCE) == 5
    assert kept.logs.drop(SOURCE) == 0
    assert kept.logs.ranges() == {OTHER_SOURCE: LogRange(1, 5, OTHER[4].id)}
    assert kept.logs.evidence(SOURCE) == []
    kept.append(CHAIN[:2])
    assert kept.logs.read(SOURCE, 0, 9) == CHAIN[:2]


async def test_a_coroutine_waits_for_durability(kept: Kept) -> None:
    first = kept.logs.append_soon(CHAIN[:1])
    await settled(kept.logs.append_soon(CHAIN[1:2]))
    assert first.done()
    assert kept.logs.range(SOURCE).head == 2


def test_nothing_works_after_close(kept: Kept) -> None:
    kept.logs.close()
    kept.logs.close()
    calls: list[Callable[[], object]] = [
        lambda: kept.append(CHAIN[:1]),
        lambda: kept.logs.range(SOURCE),
        kept.logs.ranges,
        lambda: kept.logs.read(SOURCE, 0, 1),
        lambda: kept.logs.sizes(SOURCE, 0, 1),
        lambda: kept.logs.keep_evidence(TWIN),
        lambda: kept.logs.evidence(SOURCE),
        lambda: kept.logs.trim(SOURCE, 1),
        lambda: kept.logs.skip(SOURCE, 99, CHAIN[0].id),
        lambda: kept.logs.drop(SOURCE),
        kept.logs.check,
        kept.tables.logs,
    ]
    for call in calls:
        with pytest.raises(StoreFault, match="closed"):
            call()


sources = st.sampled_from([(SOURCE, CHAIN), (OTHER_SOURCE, OTHER)])
runs = st.builds(
    lambda source, start, count: source[1][start : start + count],
    sources,
    st.integers(0, 6),
    st.integers(1, 4),
)
steps = st.one_of(
    runs.map(lambda entries: ("append", entries)),
    st.tuples(st.sampled_from(["trim"]), sources, st.integers(0, 8)),
    st.tuples(st.sampled_from(["drop"]), sources),
    st.tuples(st.sampled_from(["evidence"]), st.sampled_from([*CHAIN[3:8], *OTHER[:3], TWIN])),
)


def outcome(logs: EventLogs, step: tuple[object, ...]) -> object:
    """What a step gives or raises."""
    try:
        match step:
            case ("append", list() as entries):
                return logs.append_soon(entries).result()
            case ("trim", tuple() as source, int() as through):
                return logs.trim(source[0], through)
            case ("drop", tuple() as source):
                return logs.drop(source[0])
            case ("evidence", StoredEvent() as entry):
                return logs.keep_evidence(entry)
    except HuginnError as error:
        return type(error), error.details
    raise AssertionError(step)


@settings(max_examples=max(20, settings().max_examples // 5))
@given(st.lists(steps, max_size=12))
def test_the_logs_on_disk_do_what_the_plain_model_does(taken: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        model, _ = event_logs("memory", Path(folder))
        kept, _ = event_logs("sqlite", Path(folder))
        for step in taken:
            assert outcome(kept, step) == outcome(model, step)
        assert kept.ranges() == model.ranges()
        for source in (SOURCE, OTHER_SOURCE):
            for after in (0, 2, 5):
                assert kept.read(source, after, 3) == model.read(source, after, 3)
            assert kept.evidence(source) == model.evidence(source)
        assert kept.check() == kept.check(newest=2) == []
        kept.close()


@pytest.mark.parametrize("had", [0, 3])
def test_what_is_kept_nowhere_any_more_is_skipped(kept: Kept, had: int) -> None:
    kept.append(CHAIN[:had])
    kept.logs.skip(SOURCE, 8, CHAIN[7].id)
    assert kept.logs.range(SOURCE) == LogRange(9, 8, CHAIN[7].id)
    assert kept.logs.read(SOURCE, 0, 20) == []
    assert kept.logs.ranges()[SOURCE].head == 8
    with pytest.raises(Conflict):
        kept.append(CHAIN[had : had + 1])
    kept.append(CHAIN[8:])
    assert kept.logs.read(SOURCE, 0, 20) == CHAIN[8:]
    assert kept.logs.check() == []
    for back in (5, len(CHAIN)):
        with pytest.raises(Conflict):
            kept.logs.skip(SOURCE, back, CHAIN[back - 1].id)
    assert kept.logs.read(SOURCE, 0, 20) == CHAIN[8:]
