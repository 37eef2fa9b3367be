"""Drafts: one transaction for log and index, and the same steps for what is read back."""

from __future__ import annotations

from actors.muninn.draft import Draft
from actors.muninn.evidence import EvidenceLog, Examined, kept, reopened
from actors.muninn.index import Header, Index, Suspicion
from actors.muninn.rebuild import Builder
from protocol.ids import InvocationId
from store.memory_tables import MemoryTables
from store.tables import LogHead
from tests.derivations import SEALER, advance, seen

SAID: list[Examined | InvocationId] = [
    seen(advance(1)),
    seen(advance(2)),
    seen(advance(1), run=1),
    seen(advance(2)).key,
    seen(advance(3)),
    seen(advance(1, page=1)),
    seen(advance(2), run=4),
    seen(advance(3, page=1)),
    seen(advance(3, page=2)),
]


def empty(tables: MemoryTables, generation: int = 0) -> Header:
    return Builder(tables, "alice", 100, SEALER.public).begun(generation, number=0, damaged=0)


def written(tables: MemoryTables, header: Header, said: list[Examined | InvocationId]) -> Draft:
    """A draft of all of `said`, not made yet."""
    index = Index(tables, "alice", header.generation)
    draft = Draft(index, EvidenceLog(tables, "alice", 0), header)
    for entry in said:
        step = draft.preview(entry)
        assert step is not None
        draft.append(entry, step)
    return draft


def stored(tables: MemoryTables, generation: int) -> list[dict[bytes, object]]:
    index = Index(tables, "alice", generation)
    keys = [key for key, _ in index.guards.items()]
    return [
        {key: index.guard(InvocationId(key)) for key in keys},
        {key.digest: row for key, row in index.resident()},
        {key.digest: suspicion for key, suspicion in index.suspicions()},
    ]


def test_a_draft_changes_nothing_until_it_is_made() -> None:
    tables = MemoryTables()
    draft = written(tables, empty(tables), SAID)
    assert Index(tables, "alice", 0).guards.count() == 0
    done = tables.apply(draft.changes)
    log = EvidenceLog(tables, "alice", 0)
    assert log.head() == LogHead(draft.header.seq, draft.header.digest)
    assert draft.appended == list(range(1, len(SAID) + 1))
    assert [n for n in done if n in draft.appended]
    assert draft.header.guards == 3
    assert draft.header.suspects == len(draft.suspects) == 2


def test_one_by_one_and_all_at_once_are_the_same() -> None:
    whole, single = MemoryTables(), MemoryTables()
    whole.apply(written(whole, empty(whole), SAID).changes)
    header = empty(single)
    for entry in SAID:
        draft = written(single, header, [entry])
        single.apply(draft.changes)
        header = draft.header
    assert stored(whole, 0) == stored(single, 0)
    assert EvidenceLog(whole, "alice", 0).head() == EvidenceLog(single, "alice", 0).head()


def test_taking_from_the_log_gives_the_same_index() -> None:
    tables = MemoryTables()
    draft = written(tables, empty(tables), SAID)
    tables.apply(draft.changes)
    log = EvidenceLog(tables, "alice", 0)
    again = Draft(Index(tables, "alice", 1), log, empty(tables, 1))
    for head, entry in log.walk():
        said = reopened(entry)
        assert said is not None
        step = again.preview(said)
        assert step is not None
        again.move(head)
        again.take(said, step)
    tables.apply(again.changes)
    assert stored(tables, 1) == stored(tables, 0)
    assert again.suspects == draft.suspects
    assert again.appended == []


def test_a_suspicion_shows_both_sides() -> None:
    tables = MemoryTables()
    first, other = seen(advance(1)), seen(advance(1, page=1))
    tables.apply(written(tables, empty(tables), [first]).changes)
    header = written(MemoryTables(), empty(tables), [first]).header
    draft = written(tables, header, [other])
    tables.apply(draft.changes)
    assert Index(tables, "alice", 0).suspicions() == [
        (first.key, Suspicion(invocation=first.invocation, evidence=[first.signed, other.signed]))
    ]
    assert Index(tables, "alice", 0).row(first.key) is None


def test_nothing_is_known_of_what_was_never_seen() -> None:
    tables = MemoryTables()
    draft = written(tables, empty(tables), [])
    assert draft.preview(seen(advance(1)).key) is None
    assert draft.changes == []


def test_evidence_beyond_what_a_guard_tells_apart_is_not_resident() -> None:
    tables = MemoryTables()
    many = [seen(advance(1), run=run) for run in range(33)]
    tables.apply(written(tables, empty(tables), list(many[:32])).changes)
    draft = Draft(
        Index(tables, "alice", 0),
        EvidenceLog(tables, "alice", 0),
        written(MemoryTables(), empty(tables), list(many[:32])).header,
    )
    step = draft.preview(many[32])
    assert step is not None
    assert not step.kept
    draft.refresh(many[32], step)
    assert draft.changes == []
    draft.refresh(many[3], step)
    tables.apply(draft.changes)
    row = Index(tables, "alice", 0).row(many[3].key)
    assert row is not None
    assert row.evidence == many[3].signed
    assert kept(many[3]).evidence == row.evidence
