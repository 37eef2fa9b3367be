from __future__ import annotations

import pytest

from protocol.errors import ContentError
from store.events import LogRange, StoredEvent
from store.memory_events import MemoryEventLogs
from store.memory_tables import MemoryTables
from tests.event_logs import SOURCE, chain, entry_after, position, stored, stored_chain

CHAIN = stored_chain(3)
LOOSE = stored(entry_after(position(chain(2)[-1]), prev=chain(1)[0].id))


@pytest.fixture
def logs() -> MemoryEventLogs:
    return MemoryEventLogs(MemoryTables())


def test_it_takes_plain_batches_only(logs: MemoryEventLogs) -> None:
    with pytest.raises(ContentError, match="generator"):
        logs.append_soon(entry for entry in CHAIN)  # type: ignore[arg-type]
    assert logs.ranges() == {}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (CHAIN[2]._replace(hlc=1), "not what it says"),
        (CHAIN[2]._replace(kind="Other"), "not what it says"),
        (LOOSE, "does not follow entry 2"),
    ],
)
def test_what_is_kept_beside_and_the_chain_have_to_be_true(
    logs: MemoryEventLogs, entry: StoredEvent, message: str
) -> None:
    with pytest.raises(ContentError, match=message):
        logs.append_soon([*CHAIN[:2], entry]).result()
    assert logs.range(SOURCE) == LogRange(1, 0, None)


def test_what_it_shows_is_a_copy(logs: MemoryEventLogs) -> None:
    logs.append_soon(CHAIN).result()
    logs.read(SOURCE, 0, 9).clear()
    assert logs.read(SOURCE, 0, 9) == CHAIN
