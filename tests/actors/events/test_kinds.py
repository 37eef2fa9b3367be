"""Kinds of one's own: registered once, in one's own namespace, for who may emit there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.events.kinds import KindRegistry, may
from protocol.errors import Conflict, ContentError, LimitExceeded, NotVisible, Unavailable
from protocol.messages.events import KindRow, ListSources, RegisterKind
from protocol.resource import Right
from store.memory_tables import MemoryTables
from tests.event_sources import call

SCHEMA = json.dumps({"type": "object", "required": ["n"]}).encode()


def asked(kind: str = "team.Counted", schema: bytes = SCHEMA, **more: Any) -> RegisterKind:
    return RegisterKind(namespace=more.pop("namespace", "team"), kind=kind, schema=schema)


@pytest.fixture
def registry() -> KindRegistry:
    return KindRegistry(MemoryTables())


@pytest.mark.req("EVT-1")
async def test_a_kind_is_registered_once(registry: KindRegistry) -> None:
    row = await registry.register(call(), asked())
    assert row == KindRow(kind="team.Counted", schema=SCHEMA)
    assert await registry.register(call(), asked()) == row
    with pytest.raises(Conflict, match="another schema"):
        await registry.register(call(), asked(schema=b"{}"))
    registry.check(call(), "team.Counted", {"n": 1}, None, None)
    with pytest.raises(ContentError, match=r"^team\.Counted: "):
        registry.check(call(), "team.Counted", {}, None, None)


async def test_a_kind_is_called_by_its_namespace(registry: KindRegistry) -> None:
    for kind in ("Counted", "other.Counted", "team/a.Counted", "team.counted", "team."):
        with pytest.raises(ContentError):
            await registry.register(call(), asked(kind))
    with pytest.raises(NotVisible):
        await registry.register(call("team/a"), asked())
    with pytest.raises(NotVisible):
        await registry.register(call(rights=[Right.OBSERVE]), asked())
    with pytest.raises(NotVisible):
        await registry.register(call(), asked(".Counted", namespace=""))


async def test_who_may_not_emit_there_has_no_such_kind(registry: KindRegistry) -> None:
    await registry.register(call(), asked())
    messages = set()
    for kind in ("team.Counted", "team.Nothing"):
        with pytest.raises(ContentError) as refused:
            registry.check(call("elsewhere"), kind, {"n": 1}, None, None)
        messages.add(refused.value.message.replace(kind, ""))
    assert len(messages) == 1
    found = await registry.list(call("elsewhere"), ListSources(namespace="elsewhere"))
    assert found.kinds == []
    assert (await registry.list(call("elsewhere"), ListSources(namespace="team"))).kinds == []
    assert len((await registry.list(call(), ListSources(namespace="team"))).kinds) == 1


async def test_a_schema_outlives_the_room_and_its_memory() -> None:
    tables = MemoryTables()
    first = KindRegistry(tables)
    for number in range(5):
        await first.register(call(), asked(f"team.K{number}"))
    later = KindRegistry(tables, kinds_max=5, compiled_max=2)
    for number in (0, 4, 2, 0, 1, 0):
        with pytest.raises(ContentError):
            later.check(call(), f"team.K{number}", {}, None, None)
    with pytest.raises(LimitExceeded, match="5 kinds"):
        await later.register(call(), asked("team.K5"))


@pytest.mark.req("AUT-3")
async def test_each_namespace_has_its_own_number_of_kinds() -> None:
    tables = MemoryTables()
    said = set()
    for others in (0, 2):
        registry = KindRegistry(tables, kinds_max=2, total_max=5)
        for number in range(others):
            for place in ("elsewhere", "team.x"):
                ask = asked(f"{place}.K{number}", namespace=place)
                if number or place == "elsewhere":
                    await registry.register(call(place), ask)
        for number in range(2):
            await registry.register(call(), asked(f"team.K{number}"))
        with pytest.raises(LimitExceeded) as full:
            await registry.register(call(), asked("team.K2"))
        said.add(full.value.message)
    assert said == {"team has 2 kinds, which is as many as may be"}
    # All together there are as many as the installation keeps.
    with pytest.raises(Unavailable, match="this installation keeps no more kinds"):
        await registry.register(call("below"), asked("below.K", namespace="below"))
    # What is there is there, also for a later registry, and what was erased makes room.
    await registry.register(call(), asked("team.K1"))
    for again in (registry, KindRegistry(tables, kinds_max=2, total_max=5)):
        assert again.erase(lambda namespace: namespace == "team") == 2
        await again.register(call(), asked("team.K2"))
        await again.register(call(), asked("team.K3"))


def test_what_is_no_namespace_is_nobodys() -> None:
    assert may(call(), Right.EMIT, "team/a")
    for name in ("", "/", "Team", "team/", "..", "teams"):
        assert not may(call(), Right.EMIT, name)
