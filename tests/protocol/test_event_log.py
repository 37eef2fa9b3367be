"""The laws of a source's log: what is known is a set, whatever the order, the copies and the way.

The oracle is the set itself: of the entries offered, the dense part is found by walking up from
number 1, and the forks by counting the entries of each number.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.event_log import (
    EVIDENCE,
    START,
    Entry,
    MissingRange,
    Outcome,
    Position,
    SourceLog,
    Verdict,
)
from protocol.events import EVENT_CONTEXT
from protocol.ids import EventId
from protocol.record import encode_record
from protocol.signing import pack_signed
from tests.event_logs import SIGNER, SIGNERS, chain, entry_after, ids, position

MAIN = chain(9)
# Another history from number 4 on, and one more entry for number 9.
BRANCH = chain(4, after=position(MAIN[2]), name="other")
TWIN = entry_after(position(MAIN[7]), "twin")
# Signed by the source, and impossible after what stands before them.
LOOSE = entry_after(position(MAIN[4]), "loose", prev=EventId.of(b"nothing"))
BACKWARDS = entry_after(position(MAIN[4]), "backwards", hlc=MAIN[4].event.hlc)
ALL = [*MAIN, *BRANCH, TWIN, LOOSE, BACKWARDS]


class Replica:
    """A log with what its keeper keeps: the accepted entries, and the evidence."""

    def __init__(
        self, entries: Iterable[Entry] = (), *, most: int = 1024, most_bytes: int = 2**20
    ) -> None:
        self.log: list[Entry] = []
        self.evidence: dict[EventId, Entry] = {}
        self.parked: dict[EventId, Entry] = {}
        self.source = SourceLog(
            SIGNER.public,
            id_at=lambda seq: self.log[seq - 1].id,
            parked_max=most,
            parked_bytes_max=most_bytes,
        )
        self.offer_all(entries)

    def offer_all(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.offer(entry)

    def offer(self, entry: Entry) -> list[Outcome]:
        before = list(self.log)
        outcomes = self.source.offer(entry.body)
        for verdict, found, _ in outcomes:
            assert found is not None
            if verdict is not Verdict.KNOWN:
                self.parked.pop(found.id, None)
            if verdict is Verdict.ACCEPTED:
                self.log.append(found)
            elif verdict is Verdict.PARKED:
                self.parked[found.id] = found
            elif verdict in EVIDENCE:
                self.evidence[found.id] = found
        self._check(before)
        return outcomes

    def _check(self, before: list[Entry]) -> None:
        """Monotone: nothing that was in the log leaves it or moves. And it is dense and chained."""
        assert self.log[: len(before)] == before
        head = START
        for entry in self.log:
            assert (entry.event.seq, entry.event.prev) == (head.seq + 1, head.id)
            assert entry.event.hlc > head.hlc
            head = position(entry)
        assert self.source.head == head
        assert self.source.parked == len(self.parked)

    @property
    def known(self) -> set[EventId]:
        return {*ids(self.log), *self.parked, *self.evidence}

    @property
    def entries(self) -> list[Entry]:
        return [*self.log, *self.parked.values(), *self.evidence.values()]


def dense(entries: Iterable[Entry]) -> list[EventId]:
    """The oracle, for one history: the entries from number 1 up, as long as there is the next."""
    by_number = {entry.event.seq: entry.id for entry in entries}
    found: list[EventId] = []
    while len(found) + 1 in by_number:
        found.append(by_number[len(found) + 1])
    return found


one_history = st.lists(st.sampled_from(MAIN), max_size=24)
any_entries = st.lists(st.sampled_from(ALL), max_size=24)


@pytest.mark.req("EVT-2")
@given(one_history)
def test_the_log_is_the_dense_part_of_the_set(entries: list[Entry]) -> None:
    replica = Replica(entries)
    assert ids(replica.log) == dense(entries)
    assert replica.known == set(ids(entries))
    assert replica.evidence == {}
    # What is missing is what stands between the log and the first that waits.
    waiting = [entry.event.seq for entry in replica.parked.values()]
    wanted = MissingRange(len(replica.log) + 1, min(waiting) - 1) if waiting else None
    assert replica.source.missing() == wanted


@pytest.mark.req("EVT-2")
@given(any_entries, st.integers(0, 2**32))
def test_order_and_copies_do_not_matter(entries: list[Entry], seed: int) -> None:
    one = Replica(entries)
    shuffled = [*entries, *entries]
    Random(seed).shuffle(shuffled)
    other = Replica(shuffled)
    # Commutative and idempotent, over forks and broken chains too.
    assert one.known == other.known == set(ids(entries))
    before = (one.log, dict(one.parked), dict(one.evidence))
    one.offer_all(entries)
    assert (one.log, one.parked, one.evidence) == before


@pytest.mark.req("EVT-2")
@given(any_entries, any_entries, any_entries)
def test_merging_is_union(left: list[Entry], middle: list[Entry], right: list[Entry]) -> None:
    def merged(*parts: list[Entry]) -> Replica:
        replica = Replica()
        for part in parts:
            # By way of another replica: what it holds is all that it passes on.
            replica.offer_all(Replica(part).entries)
        return replica

    first = merged(merged(left, middle).entries, right)
    second = merged(left, merged(middle, right).entries)
    assert first.known == second.known == set(ids([*left, *middle, *right]))
    assert merged(left, left).known == merged(left).known


@pytest.mark.req("EVT-2")
@given(st.permutations(MAIN), st.permutations(MAIN))
def test_replicas_of_an_honest_source_end_equal(one: list[Entry], other: list[Entry]) -> None:
    assert Replica(one).log == Replica(other).log == MAIN


@pytest.mark.req("EVT-2")
@given(any_entries)
def test_two_entries_for_a_number_of_the_log_are_never_silent(entries: list[Entry]) -> None:
    replica = Replica(entries)
    taken = {entry.event.seq: entry.id for entry in replica.log}
    rivals = {e.id for e in entries if e.event.seq in taken and e.id != taken[e.event.seq]}
    assert rivals <= set(replica.evidence)
    assert replica.source.stands_still or not rivals


@pytest.mark.req("EVT-2")
def test_the_first_stays_the_other_is_evidence_and_the_log_stands_still() -> None:
    replica = Replica(MAIN[:6])
    (outcome,) = replica.offer(BRANCH[0])
    assert outcome.verdict is Verdict.FORKED
    assert str(MAIN[3].id) in outcome.reason
    assert str(BRANCH[0].id) in outcome.reason
    assert replica.log == MAIN[:6]
    assert replica.source.stands_still
    # Both histories go on, and neither is believed.
    assert [each.verdict for each in replica.offer(MAIN[6])] == [Verdict.PARKED]
    assert [each.verdict for each in replica.offer(BRANCH[1])] == [Verdict.FORKED]
    assert [each.verdict for each in replica.offer(MAIN[2])] == [Verdict.KNOWN]
    assert replica.log == MAIN[:6]
    assert replica.source.missing() is None


@pytest.mark.req("EVT-2")
def test_two_that_wait_for_one_number_are_told_apart_when_it_is_reached() -> None:
    replica = Replica([TWIN, MAIN[8]])
    assert len(replica.parked) == 2
    replica.offer_all(MAIN[:7])
    outcomes = replica.offer(MAIN[7])
    assert [(each.verdict, each.entry) for each in outcomes] == [
        (Verdict.ACCEPTED, MAIN[7]),
        (Verdict.ACCEPTED, TWIN),
        (Verdict.FORKED, MAIN[8]),
    ]


def test_a_waiting_entry_of_another_history_does_not_take_the_place() -> None:
    replica = Replica([BRANCH[1], MAIN[4], *MAIN[:3]])
    outcomes = replica.offer(MAIN[3])
    assert [(each.verdict, each.entry) for each in outcomes] == [
        (Verdict.ACCEPTED, MAIN[3]),
        (Verdict.UNLINKED, BRANCH[1]),
        (Verdict.ACCEPTED, MAIN[4]),
    ]
    assert not replica.source.stands_still


@pytest.mark.req("EVT-2")
def test_each_refusal_has_its_own_outcome() -> None:
    replica = Replica(MAIN[:5])
    payload = encode_record(MAIN[5].event)
    refused = {
        Verdict.FORKED: BRANCH[0].body,
        Verdict.UNLINKED: LOOSE.body,
        Verdict.BACKWARDS: BACKWARDS.body,
        Verdict.FOREIGN: chain(1, signer=SIGNERS[1])[0].body,
        Verdict.UNSIGNED: pack_signed(SIGNERS[1], EVENT_CONTEXT, payload),
        Verdict.MALFORMED: MAIN[5].body[:-1],
    }
    for verdict, body in refused.items():
        fresh = Replica(MAIN[:5])
        (outcome,) = fresh.source.offer(body)
        assert outcome.verdict is verdict
        assert outcome.reason
        assert fresh.source.head == replica.source.head
        assert (outcome.entry is not None) == (verdict in EVIDENCE)


def test_what_is_held_is_known_and_waits_once() -> None:
    replica = Replica([*MAIN[:2], MAIN[4]], most_bytes=2 * len(MAIN[4].body) + 10)
    for held in (MAIN[0], MAIN[1], MAIN[4], MAIN[4]):
        assert [each.verdict for each in replica.offer(held)] == [Verdict.KNOWN]
    # Offered three times, it has taken the room of one.
    assert [each.verdict for each in replica.offer(MAIN[5])] == [Verdict.PARKED]
    assert len(replica.parked) == 2


def test_a_long_gap_is_asked_for_from_its_beginning() -> None:
    replica = Replica(MAIN[:2])
    assert replica.source.missing() is None
    replica.offer(MAIN[8])
    replica.offer(MAIN[6])
    assert replica.source.missing() == MissingRange(3, 6)
    replica.offer_all(MAIN[2:6])
    assert ids(replica.log) == ids(MAIN[:7])
    assert replica.source.missing() == MissingRange(8, 8)


@given(st.permutations(MAIN[1:]), st.integers(1, 5))
def test_what_waits_is_bounded_and_the_lowest_numbers_stay(order: list[Entry], most: int) -> None:
    replica = Replica(order, most=most)
    waiting = sorted(entry.event.seq for entry in replica.parked.values())
    assert waiting == list(range(2, 2 + most))
    # What had no room was not lost: asked for again, all is there.
    replica.offer(MAIN[0])
    assert ids(replica.log) == ids(MAIN[: 1 + most])
    replica.offer_all(order)
    replica.offer_all(sorted(order, key=lambda entry: entry.event.seq))
    assert replica.log == MAIN


def test_what_waits_is_bounded_in_bytes() -> None:
    replica = Replica(most_bytes=3 * len(MAIN[1].body) + 10)
    verdicts = [replica.offer(entry)[0].verdict for entry in MAIN[1:6]]
    assert verdicts == [Verdict.PARKED] * 3 + [Verdict.FULL] * 2
    # A lower number is worth more than a higher one.
    outcomes = Replica([MAIN[5]], most=1).offer(MAIN[3])
    assert [(each.verdict, each.entry) for each in outcomes] == [
        (Verdict.PARKED, MAIN[3]),
        (Verdict.FULL, MAIN[5]),
    ]


def test_a_log_goes_on_from_where_it_was_kept() -> None:
    """After a restart and retention: the numbers up to 3 are gone, the head is 5."""
    kept = {entry.event.seq: entry.id for entry in MAIN[3:5]}
    log = SourceLog(SIGNER.public, id_at=kept.get, head=position(MAIN[4]))
    assert [each.verdict for each in log.offer(MAIN[1].body)] == [Verdict.FORGOTTEN]
    assert [each.verdict for each in log.offer(MAIN[3].body)] == [Verdict.KNOWN]
    assert [each.verdict for each in log.offer(MAIN[5].body)] == [Verdict.ACCEPTED]
    assert log.head == Position(6, MAIN[5].id, MAIN[5].event.hlc)
    still = SourceLog(SIGNER.public, id_at=kept.get, head=position(MAIN[4]), stands_still=True)
    assert [each.verdict for each in still.offer(MAIN[5].body)] == [Verdict.PARKED]
    assert still.head.seq == 5
