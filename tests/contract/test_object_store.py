"""The contract of `store.objects.ObjectStore`, held by the store on disk and the one in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import (
    Conflict,
    ContentError,
    CorruptObject,
    HuginnError,
    LimitExceeded,
    NotVisible,
    StoreFault,
)
from protocol.ids import BlockId, NodeId, ObjectId, TextId
from protocol.limits import RECORD_BYTES_MAX
from store.commit import settled
from store.memory_objects import MemoryObjectStore
from store.objects import ObjectStore, StoreStats, Swept
from tests.stores import FAST, KINDS, large, object_store, sqlite_store, text


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    found = object_store(request.param, tmp_path)
    yield found
    found.close()


ONE, TWO, BIG = text("one"), text("two"), large("big ")


def test_what_was_put_is_given_back(store: ObjectStore) -> None:
    store.put_many("n", [ONE, TWO, BIG])
    assert store.get(("n",), ONE[0]) == b"one"
    assert store.get_many(frozenset({"n"}), [BIG[0], ONE[0]]) == [BIG[1], b"one"]
    assert store.list_members("n") == sorted(
        (ONE[0], TWO[0], BIG[0]), key=lambda id: (id.PREFIX, id.digest)
    )


def test_namespaces_below_a_root_are_listed_by_path(store: ObjectStore) -> None:
    for namespace in ("team/b", "team", "team/a/x", "teamster", "team0", "tea", "other/team"):
        store.put_many(namespace, [ONE])
    assert store.list_namespaces("team") == ["team", "team/a/x", "team/b"]
    assert store.list_namespaces("team/a") == ["team/a/x"]
    assert store.list_namespaces("nothing") == []


def test_putting_again_changes_nothing(store: ObjectStore) -> None:
    store.put_many("n", [ONE, BIG, ONE])
    before = store.stats()
    store.put_many("n", [BIG, ONE])
    assert store.stats() == before == StoreStats(2, 3 + len(BIG[1]), 2, 1, 0)


def test_bytes_are_kept_once_and_membership_per_namespace(store: ObjectStore) -> None:
    store.put_many("a", [ONE, BIG])
    store.put_many("b", [ONE, BIG])
    assert store.stats() == StoreStats(2, 3 + len(BIG[1]), 4, 2, 0)


def test_the_same_bytes_under_two_kinds_are_two_objects(store: ObjectStore) -> None:
    store.put_many("n", [(TextId.of(b"x"), b"x")])
    assert store.has_many(("n",), [TextId.of(b"x"), BlockId.of(b"x")]) == [True, False]


def test_a_scrub_changes_nothing_that_is_kept(store: ObjectStore) -> None:
    one, two = [(TextId.of(body), body) for body in (b"one", b"two")]
    store.put_many("alice", [one])
    store.put_many("bob", [one, two])
    store.drop_namespace("bob")
    assert store.sweep().objects == 1
    store.scrub()
    assert store.get(("alice",), one[0]) == b"one"
    store.put_many("bob", [two])
    assert store.has_many(("alice", "bob"), [one[0], two[0]]) == [True, True]


def test_an_empty_body_is_a_body(store: ObjectStore) -> None:
    store.put_many("n", [(TextId.of(b""), b"")])
    assert store.get(("n",), TextId.of(b"")) == b""


@pytest.mark.parametrize("view", [("b",), (), frozenset(), ("missing", "b"), ("N",), ("n ",)])
def test_unknown_and_outside_the_view_are_one_answer(store: ObjectStore, view: tuple[str]) -> None:
    store.put_many("n", [ONE, BIG])
    store.put_many("b", [TWO])
    for known in (ONE[0], BIG[0]):
        with pytest.raises(NotVisible) as outside:
            store.get(view, known)
        store.drop_namespace("n")
        store.sweep()
        with pytest.raises(NotVisible) as unknown:
            store.get(view, known)
        assert outside.value.to_map() == unknown.value.to_map()
        assert store.has_many(view, [known]) == [False]
        store.put_many("n", [ONE, BIG])


def test_one_object_outside_the_view_hides_the_batch(store: ObjectStore) -> None:
    store.put_many("n", [ONE])
    store.put_many("other", [TWO])
    with pytest.raises(NotVisible, match=str(TWO[0])):
        store.get_many(("n",), [ONE[0], TWO[0]])
    assert store.get_many(("n", "other"), [TWO[0], ONE[0], TWO[0]]) == [b"two", b"one", b"two"]
    assert store.has_many(("n",), [TWO[0], ONE[0], ONE[0]]) == [False, True, True]


def test_empty_batches(store: ObjectStore) -> None:
    store.put_many("n", [])
    assert store.get_many(("n",), []) == []
    assert store.has_many(("n",), []) == []
    assert store.remove_membership("n", []) == 0


@pytest.mark.req("ID-5")
def test_bytes_that_do_not_hash_to_their_id_are_not_stored(store: ObjectStore) -> None:
    with pytest.raises(CorruptObject):
        store.put_many("n", [TWO, (ONE[0], b"One")])
    with pytest.raises(CorruptObject):
        store.put_many("n", [(BlockId(ONE[0].digest), b"one")])
    assert store.has_many(("n",), [ONE[0], TWO[0]]) == [False, False]
    assert store.stats().objects == 0


def test_bodies_and_ids_of_the_wrong_type_are_refused(store: ObjectStore) -> None:
    with pytest.raises(ContentError, match="bytearray"):
        store.put_many("n", [(ONE[0], bytearray(b"one"))])  # type: ignore[list-item]
    with pytest.raises(ContentError, match="known kind"):
        store.put_many("n", [(str(ONE[0]), b"one")])  # type: ignore[list-item]
    with pytest.raises(ContentError, match="known kind"):
        store.get(("n",), ONE[0].digest)  # type: ignore[arg-type]


def test_a_body_over_the_limit_is_refused(store: ObjectStore) -> None:
    body = bytes(RECORD_BYTES_MAX + 1)
    with pytest.raises(LimitExceeded, match="chunks"):
        store.put_many("n", [(TextId.of(body), body)])


@pytest.mark.parametrize("name", ["", "x" * 513, "a\nb", "a\0b", "\ud800", None, b"n"])
def test_names_that_are_no_names(store: ObjectStore, name: str) -> None:
    with pytest.raises(ContentError):
        store.put_many(name, [ONE])
    with pytest.raises(ContentError):
        store.get((name,), ONE[0])
    with pytest.raises(ContentError):
        store.set_head("n", name, ONE[0], None)


@pytest.mark.parametrize("view", ["n", ["n"], {"n": 1}, None])
def test_a_view_is_a_set_of_names_and_never_a_bare_string(store: ObjectStore, view: object) -> None:
    store.put_many("n", [ONE])
    with pytest.raises(ContentError, match="view"):
        store.get(view, ONE[0])  # type: ignore[arg-type]
    with pytest.raises(ContentError, match="view"):
        store.has_many(view, [ONE[0]])  # type: ignore[arg-type]


def test_membership_is_removed_and_given_again(store: ObjectStore) -> None:
    store.put_many("a", [ONE, TWO])
    store.put_many("b", [ONE])
    assert store.remove_membership("a", [ONE[0], BIG[0], ONE[0]]) == 1
    assert store.remove_membership("missing", [ONE[0]]) == 0
    assert store.has_many(("a",), [ONE[0], TWO[0]]) == [False, True]
    assert store.get(("a", "b"), ONE[0]) == b"one"
    store.put_many("a", [ONE])
    assert store.get(("a",), ONE[0]) == b"one"


def test_sweeping_takes_only_what_no_namespace_holds(store: ObjectStore) -> None:
    other = large("other ")
    store.put_many("a", [ONE, TWO, BIG, other])
    store.put_many("b", [TWO, other])
    assert store.sweep() == Swept(0, 0)
    assert store.drop_namespace("a") == 4
    assert store.sweep() == Swept(2, 3 + len(BIG[1]))
    assert store.get_many(("b",), [TWO[0], other[0]]) == [b"two", other[1]]
    assert store.stats() == StoreStats(2, 3 + len(other[1]), 2, 1, 0)
    store.put_many("a", [BIG])
    assert store.get(("a",), BIG[0]) == BIG[1]


def test_a_head_moves_only_from_where_it_is_expected(store: ObjectStore) -> None:
    store.put_many("n", [ONE, TWO])
    assert store.get_head("n", "main") is None
    store.set_head("n", "main", ONE[0], None)
    with pytest.raises(Conflict) as refused:
        store.set_head("n", "main", TWO[0], None)
    assert refused.value.details == {"expected": None, "found": str(ONE[0])}
    with pytest.raises(Conflict) as refused:
        store.set_head("n", "main", TWO[0], TWO[0])
    assert refused.value.details == {"expected": str(TWO[0]), "found": str(ONE[0])}
    assert store.get_head("n", "main") == ONE[0]
    store.set_head("n", "main", TWO[0], ONE[0])
    assert store.get_head("n", "main") == TWO[0]
    store.set_head("n", "main", None, TWO[0])
    assert store.get_head("n", "main") is None
    with pytest.raises(Conflict):
        store.set_head("n", "main", None, TWO[0])


def test_a_head_always_finds_its_object(store: ObjectStore) -> None:
    store.put_many("n", [ONE])
    store.put_many("other", [TWO])
    for id in (TWO[0], BIG[0]):
        with pytest.raises(NotVisible):
            store.set_head("n", "main", id, None)
    store.set_head("n", "main", ONE[0], None)
    with pytest.raises(Conflict, match="move the head first"):
        store.remove_membership("n", [TWO[0], ONE[0]])
    store.put_many("other", [ONE])
    assert store.remove_membership("other", [ONE[0]]) == 1
    assert store.sweep() == Swept(0, 0)
    assert store.get(("n",), ONE[0]) == b"one"


def test_heads_are_listed_by_name_within_their_namespace(store: ObjectStore) -> None:
    store.put_many("n", [ONE, TWO])
    store.put_many("m", [ONE])
    for name in ("b/2", "é", "b/10", "a", "B"):
        store.set_head("n", name, ONE[0], None)
    store.set_head("m", "b/3", ONE[0], None)
    assert list(store.list_heads("n")) == ["B", "a", "b/10", "b/2", "é"]
    assert store.list_heads("n", "b/") == {"b/10": ONE[0], "b/2": ONE[0]}
    assert store.list_heads("missing") == {}
    assert store.stats().heads == 6
    assert store.drop_namespace("n") == 2
    assert store.list_heads("n") == {}
    assert store.get_head("m", "b/3") == ONE[0]


async def test_futures_resolve_for_a_coroutine_and_keep_their_order(store: ObjectStore) -> None:
    put = store.put_many_soon("n", [ONE])
    head = store.set_head_soon("n", "main", ONE[0], None)
    await settled(head)
    assert put.done()
    assert store.get_head("n", "main") == ONE[0]
    with pytest.raises(Conflict):
        await settled(store.set_head_soon("n", "main", ONE[0], None))


def test_of_many_who_move_a_head_one_wins(store: ObjectStore) -> None:
    ids = [text(f"value {number}") for number in range(8)]
    store.put_many("n", ids)

    def move(id: ObjectId) -> bool:
        try:
            store.set_head("n", "main", id, None)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(move, [id for id, _ in ids]))
    assert sum(won) == 1
    assert store.get_head("n", "main") == ids[won.index(True)][0]


def test_nothing_works_after_close(store: ObjectStore) -> None:
    store.put_many("n", [ONE])
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.put_many("n", [TWO]),
        lambda: store.get(("n",), ONE[0]),
        lambda: store.has_many(("n",), [ONE[0]]),
        lambda: store.set_head("n", "main", ONE[0], None),
        lambda: store.list_heads("n"),
        lambda: store.drop_namespace("n"),
        store.sweep,
        store.stats,
    ]
    for call in calls:
        with pytest.raises(StoreFault, match="closed"):
            call()


POOL = [text("a"), text("b"), (NodeId.of(b"a"), b"a"), large("c ")]
SPACES = ("one", "two", "three")
spaces = st.sampled_from(SPACES)
indexes = st.lists(st.integers(0, len(POOL) - 1), max_size=3)
maybe = st.none() | st.integers(0, len(POOL) - 1)
steps = st.one_of(
    st.tuples(st.just("put"), spaces, indexes),
    st.tuples(st.just("remove"), spaces, indexes),
    st.tuples(st.just("drop"), spaces, indexes),
    st.tuples(st.just("sweep"), spaces, indexes),
    st.tuples(st.just("head"), spaces, st.tuples(maybe, maybe)),
)


def take(store: ObjectStore, step: tuple[str, str, tuple[int, ...]]) -> object:
    """What the step gives or raises: what two stores have to agree on."""
    name, space, which = step
    picked = [None if index is None else POOL[index][0] for index in which]
    try:
        match name:
            case "put":
                store.put_many(space, [POOL[index] for index in which])
            case "remove":
                return store.remove_membership(space, [id for id in picked if id is not None])
            case "drop":
                return store.drop_namespace(space)
            case "sweep":
                return store.sweep()
            case _:
                store.set_head(space, "main", picked[0], picked[1])
    except HuginnError as error:
        return error.to_map()
    return None


@settings(max_examples=max(20, settings().max_examples // 5))
@given(st.lists(steps, min_size=1, max_size=14))
def test_the_store_on_disk_does_what_the_plain_model_does(
    script: list[tuple[str, str, tuple[int, ...]]],
) -> None:
    model = MemoryObjectStore()
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        store = sqlite_store(Path(folder))
        for step in script:
            assert take(store, step) == take(model, step)
            assert store.stats() == model.stats()
        ids = [id for id, _ in POOL]
        for space in SPACES:
            assert store.list_members(space) == model.list_members(space)
            assert store.list_heads(space) == model.list_heads(space)
            assert store.has_many((space,), ids) == model.has_many((space,), ids)
        store.close()
