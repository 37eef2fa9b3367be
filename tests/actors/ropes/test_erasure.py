"""Erasing from the object store: memberships, then what nobody has; shared content stays."""

from __future__ import annotations

import pytest

from actors.authority.erasures import fingerprint
from actors.ropes.erasure import erase_objects, named, traces
from protocol.errors import NotVisible
from protocol.ids import BlockId, ObjectId, TextId
from protocol.messages.erasure import Erase
from protocol.record import encode_record
from store.memory_objects import MemoryObjectStore
from tests.events_rooms import user


def order(
    *namespaces: str, spared: tuple[str, ...] = (), objects: list[str] | None = None
) -> Erase:
    return Erase(
        domains=[],
        namespaces=list(namespaces),
        spared=list(spared),
        principals=[],
        names=[],
        objects=objects,
    )


def body(text: str) -> tuple[ObjectId, bytes]:
    data = text.encode()
    return TextId.of(data), data


def block(text: str, name: str) -> tuple[list[tuple[ObjectId, bytes]], BlockId, TextId]:
    from msgspec.structs import replace

    made = user(text)
    record = encode_record(replace(made.block, name=name))
    content = TextId.of(made.content)
    return [(BlockId.of(record), record), (content, made.content)], BlockId.of(record), content


@pytest.mark.req("AUT-8")
def test_a_namespace_goes_with_what_lies_below_and_what_is_spared_stays() -> None:
    store = MemoryObjectStore()
    for namespace in ("team", "team/a", "team/a/b", "team/ab", "public"):
        store.put_many(namespace, [body(namespace), body("shared")])
    ask = order("team/a", "public", spared=("team/a/b",))
    # What is public is nobody's to erase.
    assert named(store, ask) == ["team/a"]
    assert erase_objects(store, ask) == {
        "namespaces": 1,
        "memberships": 2,
        "objects": 1,
        "bytes": len("team/a"),
    }
    assert traces(store, ask, fingerprint) == []
    assert store.has_many(("team", "team/ab", "team/a/b"), [body("shared")[0]]) == [True]
    assert erase_objects(store, ask)["objects"] == 0


@pytest.mark.req("AUT-8")
def test_a_block_takes_its_content_along_unless_another_has_it() -> None:
    store = MemoryObjectStore()
    mine, one, content = block("a secret", "ann")
    other, two, _ = block("a secret", "bea")
    store.put_many("alice", [*mine, *other])
    store.set_head("alice", "newest", one, None)
    erase_objects(store, order("alice", objects=[str(one)]))
    assert store.has_many(("alice",), [one, two, content]) == [False, True, True]
    assert store.list_heads("alice") == {}
    erase_objects(store, order("alice", objects=[str(two)]))
    assert store.has_many(("alice",), [two, content]) == [False, False]
    with pytest.raises(NotVisible):
        store.get(("alice",), content)
    assert store.stats().objects == 0


def test_two_blocks_that_go_together_take_what_they_share() -> None:
    store = MemoryObjectStore()
    mine, one, _ = block("a secret", "ann")
    other, two, _ = block("a secret", "bea")
    store.put_many("alice", [*mine, *other])
    erase_objects(store, order("alice", objects=[str(one), str(two)]))
    assert store.list_members("alice") == []


def test_traces_are_what_is_left() -> None:
    store = MemoryObjectStore()
    id, data = body("a secret")
    store.put_many("alice/x", [(id, data)])
    assert traces(store, order("alice"), fingerprint) == ["namespace alice/x"]
    one = order("alice", objects=[fingerprint(str(id))])
    assert traces(store, one, fingerprint) == ["an object of namespace alice/x"]
    store.remove_membership("alice/x", [id])
    assert traces(store, one, fingerprint) == []
