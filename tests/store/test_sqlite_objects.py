from __future__ import annotations

import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from protocol.errors import CorruptObject, NotVisible, StoreFault
from protocol.ids import BlockId, TextId
from store.blobs import BlobFiles
from store.files import UNFINISHED
from store.objects import Swept
from store.sqlite_objects import INLINE_BYTES_MAX, SqliteObjectStore
from tests.stores import large, sqlite_store, text


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteObjectStore]:
    found = sqlite_store(tmp_path)
    yield found
    found.close()


def damage(store: SqliteObjectStore, statement: str, *bindings: object) -> None:
    """What a bad disk or another program might do to the file."""
    store.database.write(lambda connection: connection.execute(statement, bindings).fetchall())


def test_a_body_over_the_line_lies_in_a_file(store: SqliteObjectStore) -> None:
    for size, files in ((INLINE_BYTES_MAX, 0), (INLINE_BYTES_MAX + 1, 1)):
        body = bytes(size)
        store.put_many("n", [(BlockId.of(body), body)])
        assert len(list(store.blobs.files())) == files
        assert store.get(("n",), BlockId.of(body)) == body


def test_all_is_there_after_reopening(tmp_path: Path) -> None:
    one, big = text("one"), large("big ")
    store = sqlite_store(tmp_path)
    store.put_many("n", [one, big])
    store.set_head("n", "main", one[0], None)
    store.close()
    again = sqlite_store(tmp_path)
    assert again.get_many(("n",), [one[0], big[0]]) == [one[1], big[1]]
    assert again.get_head("n", "main") == one[0]
    again.close()


@pytest.mark.req("ID-5")
def test_a_flipped_byte_is_found_on_every_read_and_mended_by_a_put(
    store: SqliteObjectStore,
) -> None:
    one = text("one")
    store.put_many("n", [one])
    for body in (b"onE", b"", b"one ", None):
        damage(store, "UPDATE objects SET body = ?", body)
        for _ in range(2):
            with pytest.raises(CorruptObject):
                store.get(("n",), one[0])
        store.put_many("other", [one])
        assert store.get(("n",), one[0]) == b"one"


@pytest.mark.req("ID-5")
def test_a_swapped_row_is_found(store: SqliteObjectStore) -> None:
    one, two = text("one"), text("two")
    store.put_many("n", [one, two])
    damage(store, "UPDATE objects SET body = ? WHERE digest = ?", b"two", one[0].digest)
    with pytest.raises(CorruptObject, match=str(one[0])):
        store.get(("n",), one[0])
    assert store.get(("n",), two[0]) == b"two"


@pytest.mark.req("ID-5")
def test_a_damaged_or_missing_file_is_a_fault_and_never_not_visible(
    store: SqliteObjectStore,
) -> None:
    big = large("big ")
    store.put_many("n", [big])
    path = store.blobs.path(big[0].digest)
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"X")
    with pytest.raises(CorruptObject):
        store.get(("n",), big[0])
    path.unlink()
    with pytest.raises(CorruptObject, match="missing"):
        store.get(("n",), big[0])
    with pytest.raises(NotVisible):
        store.get(("other",), big[0])
    store.put_many("n", [big])
    assert store.get(("n",), big[0]) == big[1]


def test_a_row_of_an_unknown_kind_is_a_fault(store: SqliteObjectStore) -> None:
    store.put_many("n", [text("one")])
    damage(store, "UPDATE objects SET kind = 'nonsense'")
    with pytest.raises(CorruptObject, match="unknown kind"):
        store.list_members("n")


def test_one_query_asks_for_many(store: SqliteObjectStore) -> None:
    objects = [text(f"object {number}") for number in range(1000)]
    store.put_many("n", objects[::2])
    seen = store.has_many(("a", "n"), [id for id, _ in objects])
    assert seen == [number % 2 == 0 for number in range(1000)]


@pytest.mark.req("AUT-8")
def test_erased_bytes_are_in_no_file(store: SqliteObjectStore, tmp_path: Path) -> None:
    secret, big, kept = text("the secret of one tenant"), large("a large secret "), text("kept")
    store.put_many("tenant", [secret, big])
    store.put_many("other", [kept])
    store.set_head("tenant", "private name", secret[0], None)
    needles = [secret[1], b"a large secret", b"private name", b"tenant", secret[0].digest]

    def holds(needle: bytes) -> bool:
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        return any(needle in path.read_bytes() for path in files)

    assert all(holds(needle) for needle in needles)
    assert store.drop_namespace("tenant") == 2
    assert store.sweep().objects == 2
    assert [needle for needle in needles if holds(needle)] == []
    assert store.get(("other",), kept[0]) == b"kept"


def test_sweeping_beside_puts_loses_nothing(store: SqliteObjectStore) -> None:
    objects = [text("small"), large("large ")]

    def churn(number: int) -> None:
        space = f"space {number}"
        for _ in range(8):
            store.put_many(space, objects)
            assert store.get_many((space,), [id for id, _ in objects]) == [b for _, b in objects]
            store.drop_namespace(space)

    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(churn, number) for number in range(3)]
        while not all(task.done() for task in tasks):
            store.sweep()
        for task in tasks:
            task.result()
    store.sweep()
    assert store.stats().objects == 0
    assert list(store.blobs.files()) == []


def test_a_file_whose_row_came_back_is_not_removed(store: SqliteObjectStore) -> None:
    big = large("big ")
    store.put_many("n", [big])
    path = store.blobs.path(big[0].digest)
    # Found while a put had written its file and not yet its row.
    assert store.database.write(lambda found: store._remove_unnamed([path], found)) == 0
    assert store.get(("n",), big[0]) == big[1]


class Dying(BlobFiles):
    """Files of a process that dies at the unlink."""

    def remove(self, path: Path) -> bool:
        raise OSError(errno.EIO, "here it died")


@pytest.mark.req("AUT-8")
def test_a_sweep_that_died_at_the_unlink_is_ended_by_the_next(tmp_path: Path) -> None:
    store = sqlite_store(tmp_path)
    gone, kept = large("a large secret "), large("kept ")
    store.put_many("tenant", [gone])
    store.put_many("other", [kept])
    store.drop_namespace("tenant")
    store.blobs = Dying(tmp_path / "blobs")
    with pytest.raises(StoreFault, match="here it died"):
        store.sweep()
    store.close()
    again = sqlite_store(tmp_path)
    # Its row is gone: only the file is left to say so.
    assert again.stats().objects == 1
    assert again.unnamed() == [again.blobs.path(gone[0].digest)]
    assert again.sweep() == Swept(0, 0)
    assert list(again.blobs.files()) == [again.blobs.path(kept[0].digest)]
    assert again.get(("other",), kept[0]) == kept[1]
    again.close()


@pytest.mark.req("AUT-8")
def test_what_a_put_left_that_died_is_swept_and_what_is_not_ours_stays(
    store: SqliteObjectStore,
) -> None:
    one, two, inline = large("one "), large("two "), text("small")
    store.blobs.put(*one)
    began = store.blobs.path(two[0].digest)
    began.parent.mkdir(parents=True)
    began = began.with_name(began.name + UNFINISHED)
    began.write_bytes(two[1][:1000])
    # A row that has its bytes itself names no file.
    store.put_many("n", [inline])
    store.blobs.put(*inline)
    others = [store.blobs.root / name for name in ("notes", f"quarantine/{one[0].digest.hex()}")]
    others[1].parent.mkdir()
    for path in others:
        path.write_bytes(b"not ours")
    assert len(store.unnamed()) == 3
    store.sweep()
    assert sorted(store.blobs.files()) == sorted(others)


def test_the_queries_use_their_indexes(store: SqliteObjectStore) -> None:
    import store.sqlite_objects as module

    bindings = ("text", TextId.of(b"").digest, '["n"]')

    def plan(connection: apsw.Connection) -> list[str]:
        query = f"EXPLAIN QUERY PLAN {module._VISIBLE}"
        return [str(row[3]) for row in connection.execute(query, bindings)]

    lines = store.database.read(plan)
    assert lines
    assert not [line for line in lines if line.startswith(("SCAN o", "SCAN m", "SCAN n"))]
