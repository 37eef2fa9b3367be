"""Removing a source: its row, its key and its log go, wherever the process died on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.runtime.source_keys import StoredSourceKeys
from protocol.messages.events import ListSources
from tests.event_sources import NAMESPACE, Keeper, call
from tests.worker_rooms import CountingEntropy


class Killed(Exception):
    """Nothing after it was done."""


class Dying(StoredSourceKeys):
    """Keys in files, of a process that dies when it destroys one: `before` it is done, or after."""

    before: bool

    def destroy(self, name: str) -> bool:
        if not self.before:
            super().destroy(name)
        raise Killed


@pytest.mark.req("EVT-10", "AUT-8")
@pytest.mark.parametrize("before", [True, False])
async def test_a_removal_that_broke_off_at_its_key_is_finished_by_the_next_start(
    tmp_path: Path, before: bool
) -> None:
    """Never is there a source whose key is gone: it could sign nothing more."""
    entropy = CountingEntropy()
    dying = Dying(tmp_path / "keys", entropy)
    dying.before = before
    async with Keeper(keys=dying) as keeper:
        removed = await keeper.add()
        kept = await keeper.add("deploys")
        await keeper.emit("1", "2")
        with pytest.raises(Killed):
            await keeper.remove()
        keeper.keys = StoredSourceKeys(tmp_path / "keys", entropy)
        await keeper.restart()
        ask = ListSources(namespace=NAMESPACE)
        assert (await keeper.sources.list(call(), ask)).sources == [kept]
        assert removed.id not in keeper.logs.ranges()
        assert len(list((tmp_path / "keys").iterdir())) == 1
        # The other goes on under its own key, and the name is free for a new one.
        await keeper.emit("3", name="deploys")
        assert (await keeper.add()).id != removed.id
        await keeper.emit("4")


@pytest.mark.req("AUT-8")
async def test_an_erasure_takes_what_a_removal_left(tmp_path: Path) -> None:
    """A key that could not be destroyed keeps the erasure waiting, not for good."""
    dying = Dying(tmp_path / "keys", CountingEntropy())
    dying.before = True
    async with Keeper(keys=dying) as keeper:
        await keeper.add()
        with pytest.raises(Killed):
            await keeper.sources.erase(lambda namespace: namespace == NAMESPACE)
        keeper.sources._keys = StoredSourceKeys(tmp_path / "keys", CountingEntropy())
        await keeper.sources.erase(lambda namespace: namespace == NAMESPACE)
        assert list((tmp_path / "keys").iterdir()) == []
        assert not keeper.logs.ranges()
