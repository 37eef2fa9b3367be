"""Which sources there are, and for whom."""

from __future__ import annotations

import hashlib

import pytest

from actors.events.registry import KnownSource, SourceRegistry, label
from actors.events.scope import ScopedSource
from protocol.errors import ContentError, LimitExceeded, NotVisible
from protocol.events import source_id
from protocol.resource import Right
from protocol.signing import Signer
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryTables
from tests.event_logs import SIGNER, SOURCE, stored_chain
from tests.event_sources import call


def known(name: str, namespace: str = "team", signer: Signer | None = None) -> KnownSource:
    seed = hashlib.sha256(f"{namespace} {name}".encode()).digest()
    public = (signer or Signer(seed)).public
    return KnownSource(
        namespace=namespace, name=name, id=source_id(public), public_key=public, key_name="k"
    )


class Kept:
    def __init__(self) -> None:
        self.tables = MemoryTables()
        self.logs = MemoryEventLogs(self.tables)
        self.registry = self.again()

    def again(self) -> SourceRegistry:
        return SourceRegistry(self.tables, self.logs)


async def test_names_below_are_paths() -> None:
    kept = Kept()
    here, below, beside = known("a"), known("a", "team/x"), known("a", "teams")
    for row in (here, below, beside):
        kept.registry.keep(row)
    find = kept.registry.find
    assert find(call(), Right.OBSERVE, "team", "a") == here
    assert find(call(), Right.OBSERVE, "team", "x/a") == below
    assert find(call("team/x"), Right.OBSERVE, "team/x", "a") == below
    assert (label(here, "team"), label(below, "team"), label(below, "team/x")) == ("a", "x/a", "a")
    assert kept.registry.visible(call(), "team") == [here, below]
    assert kept.registry.visible(call("team/x"), "team") == [below]
    for namespace, name in [("team", "b"), ("teams", "a"), ("team", "/a"), ("team", "")]:
        with pytest.raises(NotVisible, match="no such source"):
            find(call(), Right.OBSERVE, namespace, name)
    with pytest.raises(NotVisible):
        find(call(rights=[Right.OBSERVE]), Right.EMIT, "team", "a")
    assert kept.registry.visible(call(rights=[Right.EMIT]), "team") == []


def test_a_registry_is_read_again() -> None:
    kept = Kept()
    row = known("a")
    kept.registry.keep(row)
    again = kept.again()
    assert (len(again), again.all(), again.by_id(row.id), again.at("team", "a")) == (
        1,
        [row],
        row,
        row,
    )
    again.forget(row, 0)
    assert (len(again), len(kept.again()), again.by_id(row.id)) == (0, 0, None)


def test_a_namespace_has_so_many() -> None:
    kept = Kept()
    kept.registry = SourceRegistry(kept.tables, kept.logs, sources_max=2)
    kept.registry.keep(known("a"))
    kept.registry.keep(known("b"))
    kept.registry.keep(known("c", "team/x"))
    with pytest.raises(LimitExceeded, match="2 sources"):
        kept.registry.keep(known("c"))
    with pytest.raises(ContentError, match="name a source"):
        kept.registry.keep(known("C"))


def test_what_was_removed_stays_in_scope_with_its_last_number() -> None:
    kept = Kept()
    row = known("a", signer=SIGNER)
    kept.registry.keep(row)
    kept.logs.append_soon(stored_chain(3)).result()
    in_scope = kept.registry.in_scope
    assert in_scope(call(), "team", None) == [ScopedSource(SOURCE, "team", "a", 1, 3)]
    kept.logs.trim(SOURCE, 1)
    assert in_scope(call(), "team", ["a"]) == [ScopedSource(SOURCE, "team", "a", 2, 3)]
    assert in_scope(call(), "team", ["b"]) == []
    kept.registry.forget(row, 3)
    kept.logs.drop(SOURCE)
    gone = [ScopedSource(SOURCE, "team", "a", 4, 3)]
    assert in_scope(call(), "team", None) == gone
    assert kept.again().in_scope(call(), "team", ["a"]) == gone
    assert in_scope(call("elsewhere"), "team", None) == []
    assert in_scope(call("elsewhere"), "elsewhere", None) == []
    # Followed again, it is what it is now.
    kept.registry.keep(row)
    assert in_scope(call(), "team", None) == [ScopedSource(SOURCE, "team", "a", 1, 0)]


@pytest.mark.req("AUT-3")
def test_what_was_removed_is_remembered_whatever_others_remove_or_follow() -> None:
    kept = Kept()
    kept.registry = SourceRegistry(kept.tables, kept.logs, removed_max=2, removed_total_max=6)
    ours = known("a", signer=SIGNER)
    kept.registry.keep(ours)
    kept.registry.forget(ours, 3)

    def seen(registry: SourceRegistry, namespace: str) -> list[tuple[str, int]]:
        found = registry.in_scope(call(namespace), namespace, None)
        return [(each.name, each.head) for each in found]

    for number in range(4):
        theirs = known(f"b{number}", "elsewhere")
        kept.registry.keep(theirs)
        kept.registry.forget(theirs, number)
    # The same key elsewhere: followed, and removed again at another number.
    same = known("c", "another", SIGNER)
    kept.registry.keep(same)
    assert seen(kept.registry, "team") == [("a", 3)]
    assert seen(kept.registry, "another") == [("c", 0)]
    kept.registry.forget(same, 9)
    for registry in (kept.registry, kept.again()):
        assert seen(registry, "team") == [("a", 3)]
        assert seen(registry, "elsewhere") == [("b2", 2), ("b3", 3)]
        assert seen(registry, "another") == [("c", 9)]
    # Of all together the oldest goes.
    for number in range(3):
        row = known("d", f"place{number}")
        kept.registry.keep(row)
        kept.registry.forget(row, 1)
    assert seen(kept.registry, "team") == []
    assert seen(kept.again(), "elsewhere") == [("b2", 2), ("b3", 3)]
    gone = kept.registry.drop_removed(lambda namespace: namespace == "elsewhere")
    assert gone == [known(name, "elsewhere").id for name in ("b2", "b3")]
    assert len(kept.tables.keyed("removed-sources").items()) == 4


def test_a_key_that_was_removed_in_two_places_is_one_source_from_above() -> None:
    kept = Kept()
    for name, head in (("a", 5), ("b", 4)):
        row = known(name, f"team/{name}", SIGNER)
        kept.registry.keep(row)
        kept.registry.forget(row, head)
    for registry in (kept.registry, kept.again()):
        found = registry.in_scope(call(), "team", None)
        assert found == [ScopedSource(SOURCE, "team/a", "a", 6, 5)]
    # Followed again below, it is not gone.
    kept.registry.keep(known("c", "team/c", SIGNER))
    assert [each.name for each in kept.registry.in_scope(call(), "team", None)] == ["c"]
    assert [each.head for each in kept.registry.in_scope(call("team/b"), "team/b", None)] == [4]
