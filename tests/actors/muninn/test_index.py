"""The index: nothing that it gives back was not put there, under that very key."""

from __future__ import annotations

import pytest

from actors.muninn.guard import witness
from actors.muninn.index import (
    MEMO,
    Header,
    Index,
    Row,
    Suspicion,
    domains,
    put_header,
    read_header,
    sealed,
    unsealed,
)
from protocol.errors import CorruptObject
from store.memory_tables import MemoryTables
from store.tables import Put
from tests.derivations import advance, seen

ONE, TWO = seen(advance(1)), seen(advance(2))
ROW = Row(invocation=ONE.invocation, evidence=ONE.signed)
GUARD = witness(None, ONE, 1).guard
HEADER = Header(generation=1, log=2, seq=3, digest=bytes(32), guards=4, suspects=5, damaged=6)


def test_what_is_put_is_what_is_read() -> None:
    tables = MemoryTables()
    index = Index(tables, "alice", 0)
    assert index.guard(ONE.key) is None
    assert index.row(ONE.key) is None
    suspicion = Suspicion(invocation=ONE.invocation, evidence=[ONE.signed, TWO.signed])
    tables.apply(
        [
            index.put_guard(ONE.key, GUARD),
            *index.renew_row(ONE.key, ROW),
            index.put_suspicion(ONE.key, suspicion),
        ]
    )
    assert index.guard(ONE.key) == GUARD
    assert index.row(ONE.key) == ROW
    assert index.resident() == [(ONE.key, ROW)]
    assert index.suspicions() == [(ONE.key, suspicion)]
    for other in (Index(tables, "bob", 0), Index(tables, "alice", 1)):
        assert other.guard(ONE.key) is None
        assert other.resident() == []
    tables.apply(index.clear())
    assert (index.guards.count(), index.rows.count(), index.suspects.count()) == (0, 0, 0)


@pytest.mark.req("DRV-5")
def test_a_value_that_rotted_or_moved_is_no_answer() -> None:
    value = sealed("guard", b"key", GUARD)
    assert unsealed(type(GUARD), "guard", b"key", value) == GUARD
    for at in range(len(value)):
        with pytest.raises(CorruptObject):
            unsealed(
                type(GUARD), "guard", b"key", value[:at] + bytes((value[at] ^ 4,)) + value[at + 1 :]
            )
    for table, key in (("guard", b"yek"), ("row", b"key"), ("guar", b"dkey")):
        with pytest.raises(CorruptObject):
            unsealed(type(GUARD), table, key, value)
    for nothing in (b"", value[:-1], value + b"\0", sealed("guard", b"key", ROW)):
        with pytest.raises(CorruptObject):
            unsealed(type(GUARD), "guard", b"key", nothing)


@pytest.mark.req("DRV-5")
def test_values_that_changed_places_are_noticed() -> None:
    tables = MemoryTables()
    index = Index(tables, "alice", 0)
    tables.apply([index.put_guard(ONE.key, GUARD)])
    value = index.guards.get(ONE.key.digest)
    assert value is not None
    tables.apply([Put(index.guards.name, TWO.key.digest, value)])
    with pytest.raises(CorruptObject):
        index.guard(TWO.key)


def test_rows_go_by_their_last_use() -> None:
    tables = MemoryTables()
    index = Index(tables, "alice", 0)
    all_of_them = [seen(advance(number)) for number in range(4)]
    for each in (*all_of_them, all_of_them[0]):
        row = Row(invocation=each.invocation, evidence=each.signed)
        tables.apply(index.renew_row(each.key, row))
    tables.apply([index.trim_rows(2)])
    assert [key for key, _ in index.resident()] == [all_of_them[3].key, all_of_them[0].key]
    tables.apply(index.drop_row(all_of_them[3].key))
    assert index.row(all_of_them[3].key) is None


def test_a_header_is_of_its_domain() -> None:
    tables = MemoryTables()
    assert read_header(tables, "alice") is None
    assert domains(tables) == []
    tables.apply([put_header("alice", HEADER), put_header("team/bob", HEADER)])
    assert read_header(tables, "alice") == HEADER
    assert domains(tables) == ["alice", "team/bob"]
    value = tables.keyed(MEMO).get(b"alice")
    assert value is not None
    tables.apply([Put(MEMO, b"team/bob", value)])
    with pytest.raises(CorruptObject):
        read_header(tables, "team/bob")
