"""The contract of `store.tables`, held by the tables on disk and those in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ContentError, CorruptObject, LimitExceeded, StoreFault
from protocol.limits import RECORD_BYTES_MAX
from store.commit import settled
from store.memory_tables import MemoryTables
from store.sqlite import Database
from store.sqlite_tables import SqliteTables
from store.tables import Append, Change, Delete, Drop, LogHead, Put, Tables, Trim, log_start
from tests.stores import FAST, KINDS, tables


@pytest.fixture(params=KINDS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    found = tables(request.param, tmp_path)
    yield found
    found.close()


def test_a_key_has_the_value_that_was_put_last(kept: Tables) -> None:
    table = kept.keyed("receipts")
    assert table.get(b"k") is None
    table.put(b"k", b"1")
    table.put(b"k", b"")
    assert table.get(b"k") == b""
    assert table.count() == 1
    assert kept.keyed("receipts").get(b"k") == b""
    assert kept.keyed("other").get(b"k") is None


def test_keys_keep_the_order_of_their_first_insertion(kept: Tables) -> None:
    table = kept.keyed("t")
    for key in (b"b", b"a\xff", b"a", b"\x00", b"a\x00"):
        table.put(key, b"v" + key)
    table.put(b"b", b"again")
    assert [key for key, _ in table.items()] == [b"b", b"a\xff", b"a", b"\x00", b"a\x00"]
    assert table.items(b"a") == [(b"a\xff", b"va\xff"), (b"a", b"va"), (b"a\x00", b"va\x00")]
    assert table.items(b"\x00") == [(b"\x00", b"v\x00")]
    assert table.items(b"zz") == []


def test_delete_says_whether_the_key_was_there(kept: Tables) -> None:
    table = kept.keyed("t")
    table.put(b"k", b"v")
    assert table.delete(b"k") is True
    assert table.delete(b"k") is False
    assert table.items() == []


def test_trim_takes_the_oldest(kept: Tables) -> None:
    table, other = kept.keyed("t"), kept.keyed("other")
    for number in range(10):
        table.put(bytes((number,)), b"v")
        other.put(bytes((number,)), b"v")
    assert table.trim(20) == 0
    assert table.trim(4) == 6
    assert [key[0] for key, _ in table.items()] == [6, 7, 8, 9]
    table.put(b"new", b"v")
    assert table.trim(2) == 3
    assert [key for key, _ in table.items()] == [b"\x09", b"new"]
    assert table.trim(0) == 2
    assert other.count() == 10


def test_a_log_counts_from_one_and_chains(kept: Tables) -> None:
    log = kept.log("audit")
    assert log.head() == log_start("audit") == log.verify()
    assert [log.append(body) for body in (b"a", b"", b"a")] == [1, 2, 3]
    assert kept.log("other").append(b"a") == 1
    entries = list(log.entries())
    assert [(entry.seq, entry.body) for entry in entries] == [(1, b"a"), (2, b""), (3, b"a")]
    assert entries[1].previous == entries[0].digest
    assert entries[0].previous == log_start("audit").digest
    assert log.verify() == log.head() == LogHead(3, entries[2].digest)
    assert list(log.entries(after=2)) == entries[2:]
    assert list(log.entries(after=3)) == []
    assert kept.logs() == ["audit", "other"]


def test_a_long_log_is_walked_in_pages(kept: Tables) -> None:
    count = 600
    kept.apply([Append("audit", b"%d" % number) for number in range(count)])
    assert [entry.body for entry in kept.log("audit").entries()] == [
        b"%d" % n for n in range(count)
    ]
    assert kept.log("audit").verify().seq == count


def test_a_log_is_held_against_a_head_that_was_remembered(kept: Tables) -> None:
    log = kept.log("audit")
    start = log.head()
    log.append(b"a")
    trusted = log.head()
    log.append(b"b")
    assert log.verify(trusted) == log.verify(start) == log.head()
    with pytest.raises(CorruptObject, match="run through head 7"):
        log.verify(LogHead(7, trusted.digest))
    with pytest.raises(CorruptObject, match="run through head 1"):
        log.verify(LogHead(1, start.digest))


def test_changes_are_made_together_and_in_order(kept: Tables) -> None:
    changes: list[Change] = [
        Put("t", b"a", b"1"),
        Put("t", b"b", b"2"),
        Append("audit", b"x"),
        Trim("t", 1),
        Delete("t", b"b"),
        Delete("t", b"b"),
        Append("audit", b"y"),
    ]
    assert kept.apply(changes) == [1, 1, 1, 1, 1, 0, 2]
    assert kept.keyed("t").count() == 0
    assert kept.apply([]) == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (Put("t", b"", b"v"), ContentError),
        (Put("t", b"k" * 1025, b"v"), LimitExceeded),
        (Put("t", bytearray(b"k"), b"v"), ContentError),  # type: ignore[arg-type]
        (Put("t", b"k", "v"), ContentError),  # type: ignore[arg-type]
        (Put("t", b"k", bytes(RECORD_BYTES_MAX + 1)), LimitExceeded),
        (Put("T", b"k", b"v"), ContentError),
        (Delete("", b"k"), ContentError),
        (Delete("t", b""), ContentError),
        (Trim("t", -1), ContentError),
        (Trim("t", True), ContentError),
        (Append("a b", b""), ContentError),
        (Drop("A"), ContentError),
        (Append("audit", None), ContentError),  # type: ignore[arg-type]
        ("put", ContentError),
    ],
)
def test_one_refused_change_refuses_all(
    kept: Tables, change: Change, error: type[Exception]
) -> None:
    with pytest.raises(error):
        kept.apply([Put("t", b"good", b"v"), change])
    assert kept.keyed("t").items() == []


def test_a_log_that_is_dropped_begins_anew(kept: Tables) -> None:
    log = kept.log("audit")
    for body in (b"a", b"b"):
        log.append(body)
    kept.log("other").append(b"c")
    assert kept.apply([Drop("audit"), Drop("audit"), Append("audit", b"d")]) == [2, 0, 1]
    assert [(entry.seq, entry.body) for entry in log.entries()] == [(1, b"d")]
    assert log.verify(log_start("audit")).seq == 1
    assert kept.apply([Drop("audit")]) == [1]
    assert log.head() == log_start("audit")
    assert kept.logs() == ["other"]


async def test_a_coroutine_waits_for_durability(kept: Tables) -> None:
    first = kept.apply_soon([Append("audit", b"a")])
    assert await settled(kept.apply_soon([Append("audit", b"b")])) == [2]
    assert first.done()


def test_nothing_works_after_close(kept: Tables) -> None:
    table, log = kept.keyed("t"), kept.log("audit")
    kept.close()
    kept.close()
    calls: list[Callable[[], object]] = [
        lambda: table.put(b"k", b"v"),
        lambda: table.get(b"k"),
        table.items,
        table.count,
        lambda: log.append(b""),
        log.head,
        log.verify,
        kept.logs,
    ]
    for call in calls:
        with pytest.raises(StoreFault, match="closed"):
            call()


def test_a_scrub_changes_nothing_that_is_kept(kept: Tables) -> None:
    table = kept.keyed("t")
    for key in (b"b", b"a", b"c"):
        table.put(key, b"v" + key)
    table.delete(b"a")
    kept.log("l").append(b"entry")
    kept.scrub()
    assert table.items() == [(b"b", b"vb"), (b"c", b"vc")]
    table.put(b"d", b"after")
    assert [key for key, _ in table.items()] == [b"b", b"c", b"d"]
    assert kept.log("l").verify().seq == 1
    kept.close()
    with pytest.raises(StoreFault, match="closed"):
        kept.scrub()


keys = st.sampled_from([b"a", b"ab", b"b", b"\xff"])
names = st.sampled_from(["t", "u"])
changes = st.one_of(
    st.builds(Put, names, keys, st.binary(max_size=3)),
    st.builds(Delete, names, keys),
    st.builds(Trim, names, st.integers(0, 4)),
    st.builds(Append, names, st.binary(max_size=3)),
    st.builds(Drop, names),
)


@settings(max_examples=max(20, settings().max_examples // 5))
@given(st.lists(st.lists(changes, max_size=6), max_size=6))
def test_the_tables_on_disk_do_what_the_plain_model_does(batches: list[list[Change]]) -> None:
    model = MemoryTables()
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        kept = SqliteTables(Database(Path(folder) / "tables.db"))
        for batch in batches:
            assert kept.apply(batch) == model.apply(batch)
        for name in ("t", "u"):
            assert kept.keyed(name).items() == model.keyed(name).items()
            assert kept.keyed(name).items(b"a") == model.keyed(name).items(b"a")
            assert list(kept.log(name).entries()) == list(model.log(name).entries())
            assert kept.log(name).verify() == model.log(name).verify()
        kept.close()
