"""The keeper of sources: each operation, through the eyes of who may and who may not."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from actors.events.ports import Remote
from protocol.errors import Conflict, ContentError, FeedRefused, NotVisible
from protocol.events import read_entry
from protocol.messages.events import (
    EVENTS_MAX,
    AddSource,
    AppendEvents,
    Follow,
    ListSources,
    ReadEvents,
    RegisterKind,
    RemoveSource,
    StreamItem,
)
from protocol.resource import Right
from tests.event_logs import SIGNER, stored_chain
from tests.event_sources import NAMESPACE, Keeper, ScriptedFeed, call, event

REMOTE: dict[str, Any] = {
    "url": "http://far/huginn/v1/sources/x",
    "public_key": SIGNER.public,
    "api_key_file": "far",
}


def shown(item: StreamItem) -> tuple[object, ...]:
    if item.entry is not None:
        return item.source, read_entry(item.entry)[1].subject
    assert item.gap is not None
    return item.source, item.gap.first, item.gap.last, item.gap.cause


def follow(sources: list[str] | None = None, **after: int) -> Follow:
    return Follow(namespace=NAMESPACE, sources=sources, after=after or None)


async def taken(keeper: Keeper, ask: Follow, count: int) -> list[tuple[object, ...]]:
    found = []
    items = keeper.sources.follow(call(), ask)
    try:
        async with asyncio.timeout(30):
            while len(found) < count:
                found.append(shown(await anext(items)))
    finally:
        await items.aclose()
    return found


@pytest.mark.req("EVT-10")
async def test_one_source_is_nothing_special() -> None:
    async with Keeper() as keeper:
        row = await keeper.add()
        assert (row.state, row.first, row.head) == ("local", 1, 0)
        assert await keeper.add() == row
        await keeper.emit("1", "2")
        assert (await keeper.row()).head == 2
        assert await taken(keeper, follow(builds=0), 2) == [("builds", "1"), ("builds", "2")]
        assert len(keeper.sources) == 1
        await keeper.restart()
        assert (await keeper.row()).head == 2
        await keeper.emit("3")
        page = await keeper.read(after=1, limit=1)
        assert (len(page.entries), page.head, page.gap) == (1, 3, None)


async def test_who_may_not_is_told_what_who_asks_for_nothing_is() -> None:
    async with Keeper() as keeper:
        await keeper.add()
        sources, outside = keeper.sources, call("elsewhere")
        asks: list[tuple[Any, Any]] = [
            (sources.remove, lambda name: RemoveSource(namespace=NAMESPACE, name=name)),
            (
                sources.append,
                lambda name: AppendEvents(namespace=NAMESPACE, source=name, events=[event()]),
            ),
            (
                sources.read,
                lambda name: ReadEvents(namespace=NAMESPACE, source=name, after=0, limit=1),
            ),
        ]
        for operation, ask in asks:
            told = set()
            for caller, name in [(outside, "builds"), (outside, "none"), (call(), "none")]:
                with pytest.raises(NotVisible) as refused:
                    await operation(caller, ask(name))
                told.add(refused.value.message)
            assert len(told) == 1
            with pytest.raises(NotVisible):
                await operation(call(rights=[]), ask("builds"))
        assert (await sources.list(outside, ListSources(namespace=NAMESPACE))).sources == []
        for ask in (follow(), follow(["builds"]), follow(builds=0)):
            with pytest.raises(NotVisible):
                await anext(sources.follow(outside, ask))
        with pytest.raises(NotVisible):
            await sources.add(outside, AddSource(namespace=NAMESPACE, name="builds"))
        kind = RegisterKind(namespace=NAMESPACE, kind="team.K", schema=b"{}")
        with pytest.raises(NotVisible):
            await sources.register_kind(outside, kind)


async def test_a_name_belongs_to_one_source() -> None:
    async with Keeper(feed=ScriptedFeed()) as keeper:
        await keeper.add("a")
        row = await keeper.add("far", **REMOTE)
        assert (await keeper.add("far", **REMOTE)).id == row.id
        for name, fields in [
            ("a", REMOTE),
            ("far", {}),
            ("far", REMOTE | {"url": "http://far/huginn/v1/sources/y"}),
            ("again", REMOTE),
        ]:
            with pytest.raises(Conflict):
                await keeper.add(name, **fields)


@pytest.mark.req("AUT-3")
async def test_a_key_that_is_followed_elsewhere_is_refused_and_nothing_told() -> None:
    ask = AddSource(namespace=NAMESPACE, name="again", **REMOTE)
    async with Keeper(feed=ScriptedFeed()) as keeper:
        await keeper.add("hidden-name", namespace=f"{NAMESPACE}/hidden-place", **REMOTE)
        with pytest.raises(Conflict, match="hidden-name in team/hidden-place"):
            await keeper.sources.add(call(), ask)
        with pytest.raises(FeedRefused) as alike:
            await keeper.add("again", namespace="elsewhere", **REMOTE)
        with pytest.raises(FeedRefused) as blind:
            await keeper.sources.add(call(rights=[Right.EMIT]), ask)
        for refused, namespace in ((alike, "elsewhere"), (blind, NAMESPACE)):
            told = f"this source cannot be followed for {namespace}"
            assert (refused.value.message, refused.value.details) == (told, {})
        assert len(keeper.sources) == 1


async def test_a_removed_source_remembers_no_keys_of_appends() -> None:
    async with Keeper() as keeper:
        await keeper.add()
        await keeper.add("other")
        for name in ("builds", "other"):
            await keeper.emit("1", name=name, key="k")
        await keeper.remove()
        assert keeper.tables.keyed("appends").count() == 1
        await keeper.emit("1", name="other", key="k")
        assert (await keeper.row("other")).head == 1


async def test_a_remote_source_is_added_whole_or_not_at_all() -> None:
    class Strict(ScriptedFeed):
        def check(self, remote: Remote) -> None:
            assert remote == Remote(REMOTE["url"], "far", NAMESPACE)
            raise FeedRefused("not from here")

    async with Keeper(feed=Strict()) as keeper:
        with pytest.raises(FeedRefused):
            await keeper.add("far", **REMOTE)
        for lacking in ("public_key", "api_key_file", "url"):
            with pytest.raises(ContentError):
                await keeper.add("far", **{k: v for k, v in REMOTE.items() if k != lacking})
        assert len(keeper.sources) == 0
    async with Keeper() as keeper:
        with pytest.raises(ContentError, match="follows no remote"):
            await keeper.add("far", **REMOTE)


async def test_only_its_owner_appends_to_a_source() -> None:
    async with Keeper(feed=ScriptedFeed()) as keeper:
        await keeper.add("far", **REMOTE)
        with pytest.raises(ContentError, match="followed from"):
            await keeper.emit("1", name="far")


async def test_a_removed_source_is_gone_and_never_the_same_again() -> None:
    async with Keeper() as keeper:
        first = await keeper.add()
        await keeper.emit("1", "2")
        items = keeper.sources.follow(call(), follow(builds=1))
        assert shown(await anext(items)) == ("builds", "2")
        await keeper.emit("3")
        await keeper.remove()
        assert shown(await anext(items)) == ("builds", 3, 3, "retention")
        with pytest.raises(StopAsyncIteration):
            await anext(items)
        with pytest.raises(NotVisible):
            await keeper.read()
        assert keeper.logs.ranges() == {}
        scoped = keeper.sources.in_scope(call(), NAMESPACE, None)
        assert [(each.id, each.first, each.head) for each in scoped] == [(first.id, 4, 3)]
        assert (await keeper.add()).id != first.id


@pytest.mark.req("EVT-6")
async def test_the_log_names_the_reader_that_leaves_and_from_where_it_may_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By its request: one who follows the stream is no session."""
    async with Keeper() as keeper:
        await keeper.add()
        await keeper.emit("1", "2", "3")
        items = keeper.sources.follow(call(), follow(builds=0))
        assert shown(await anext(items)) == ("builds", "1")
        with caplog.at_level(logging.WARNING, "huginn.events"):
            await items.aclose()
    line = "[event-agg] dropped 2 events for reader q; client must re-fetch from builds:1"
    assert [record.getMessage() for record in caplog.records] == [line]


async def test_a_log_that_lost_its_source_is_erased_at_the_start() -> None:
    keeper = Keeper()
    keeper.logs.append_soon(stored_chain(3)).result()
    async with keeper:
        assert keeper.logs.ranges() == {}


@pytest.mark.parametrize("after", [-1, 3, 2**62])
async def test_a_cursor_lies_in_the_log(after: int) -> None:
    async with Keeper() as keeper:
        await keeper.add()
        await keeper.emit("1", "2")
        for reading in (keeper.read(after=after), taken(keeper, follow(builds=after), 1)):
            with pytest.raises(ContentError) as refused:
                await reading
            assert refused.value.details["param"] == "after"


async def test_what_an_append_may_hold() -> None:
    async with Keeper() as keeper:
        await keeper.add()
        for events in ([], [event()] * (EVENTS_MAX + 1)):
            ask = AppendEvents(namespace=NAMESPACE, source="builds", events=events)
            with pytest.raises(ContentError, match="1 to 1024"):
                await keeper.sources.append(call(), ask)
        for key in ("", "k" * 256):
            with pytest.raises(ContentError, match="characters"):
                await keeper.emit("1", key=key)
        for limit in (0, EVENTS_MAX + 1):
            with pytest.raises(ContentError, match="limit"):
                await keeper.read(limit=limit)
        assert (await keeper.row()).head == 0


@pytest.mark.req("EVT-10")
async def test_all_that_may_be_observed_is_one_stream() -> None:
    async with Keeper() as keeper:
        for name in ("a", "b"):
            await keeper.add(name)
        await keeper.add("c", namespace="team/x")
        await keeper.add("d", namespace="teams")
        items = keeper.sources.follow(call(), follow())
        following = asyncio.create_task(anext(items))
        await asyncio.sleep(0)
        assert keeper.sources.subscribers == 1
        for number, name in enumerate("abab"):
            await keeper.emit(str(number), name=name)
        found = [shown(await following), *[shown(await anext(items)) for _ in range(3)]]
        assert found == [("a", "0"), ("b", "1"), ("a", "2"), ("b", "3")]
        await items.aclose()
        assert keeper.sources.subscribers == 0
        counters = keeper.sources.counters
        assert (counters["produced"], counters["delivered"], counters["pending"]) == (4, 4, 0)


async def test_a_stream_ends_with_the_handle_and_goes_on_from_its_marks() -> None:
    async with Keeper() as keeper:
        await keeper.add()
        await keeper.emit("1")
        ends_ns = keeper.clock.wall_ns() + 10**9 // 5
        items = keeper.sources.follow(call(exp_ns=ends_ns), follow(builds=0))
        assert shown(await anext(items)) == ("builds", "1")
        with pytest.raises(StopAsyncIteration):
            async with asyncio.timeout(30):
                await anext(items)
        await keeper.emit("2")
        assert await taken(keeper, follow(builds=1), 1) == [("builds", "2")]
        # One who always has something to read is cut off after a while too.
        await keeper.emit(*map(str, range(30)))
        items = keeper.sources.follow(call(exp_ns=ends_ns), follow(builds=0))
        await anext(items)
        keeper.clock.now_ns = ends_ns + 60 * 10**9
        assert [shown(item) async for item in items] == [("builds", "2")]


async def test_what_is_followed_is_named() -> None:
    async with Keeper() as keeper:
        for name in ("a", "b"):
            await keeper.add(name)
        await keeper.emit("1", name="b")
        await keeper.emit("2", name="a")
        assert await taken(keeper, follow(["a"], a=0), 1) == [("a", "2")]
        with pytest.raises(ContentError, match="not among"):
            await taken(keeper, follow(["a"], b=0), 1)


@pytest.mark.req("EVT-14")
async def test_the_accounts_of_who_left_are_even() -> None:
    async with Keeper() as keeper:
        await keeper.add()
        items = keeper.sources.follow(call(rights=[Right.OBSERVE]), follow())
        waiting = asyncio.create_task(anext(items))
        await asyncio.sleep(0)
        await keeper.emit("1", "2", "3")
        await waiting
        await items.aclose()
        counters = keeper.sources.counters
        assert counters["delivered"] + counters["gaps"] - counters["refilled"] == 3
        assert (counters["dropped"], counters["produced"]) == (2, 3)
