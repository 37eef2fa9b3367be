"""The physical ledger: what grows is added once, what lies there counts by the second."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors.worker.meter import SAVE_NS, Meter
from protocol.errors import StoreFault
from store.memory_tables import MemoryTables
from tests.worker_rooms import PROFILE, SECOND, HandClock, inline


class Bench:
    """A meter, and all that it looks at."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.clock = HandClock()
        self.cpu = 0
        self.start()

    def start(self) -> None:
        """A new process: its counters begin at 0."""
        self.cpu = 0
        self.engine: Any = SimpleNamespace(
            busy_ns=0, prefilled_tokens=0, decoded_tokens=0, resident_tokens=0
        )
        self.host = {"bytes": 0, "written_bytes": 0, "read_bytes": 0}
        tiers: Any = SimpleNamespace(stats=lambda: {"host": self.host})
        self.meter = Meter(
            self.table,
            PROFILE,
            self.engine,
            tiers,
            self.clock,
            cpu_ns=lambda: self.cpu,
            blocking=inline,
        )

    def used(self) -> dict[str, int]:
        return self.meter.read().used


@pytest.mark.req("AUT-6")
def test_what_grows_is_added_once_and_what_lies_there_by_the_second() -> None:
    bench = Bench(MemoryTables().keyed("use"))
    bench.engine.busy_ns, bench.engine.resident_tokens, bench.cpu = 7, 100, 9
    bench.host |= {"bytes": 1000, "read_bytes": 30, "written_bytes": 40}
    bench.clock.now_ns += 3 * SECOND
    for _ in range(2):
        assert bench.used() == {
            "cpu_ns": 9,
            "device_ns": 7,
            "prefilled_tokens": 0,
            "decoded_tokens": 0,
            "device_token_seconds": 300,
            "host_byte_seconds": 3000,
            "host_read_bytes": 30,
            "host_written_bytes": 40,
        }
    bench.clock.now_ns += SECOND
    assert bench.used()["host_byte_seconds"] == 4000


@pytest.mark.req("AUT-6")
async def test_it_goes_on_in_the_next_process() -> None:
    bench = Bench(MemoryTables().keyed("use"))
    bench.engine.busy_ns = 7
    await bench.meter.close()
    bench.start()
    bench.engine.busy_ns = 3
    assert bench.used()["device_ns"] == 10


async def test_it_is_written_down_now_and_then() -> None:
    bench = Bench(MemoryTables().keyed("use"))
    bench.meter.tick()
    assert bench.table.items() == []
    bench.clock.now_ns += SAVE_NS
    bench.meter.tick()
    assert bench.meter._writer is not None
    await bench.meter._writer
    assert len(bench.table.items()) == 1


async def test_a_full_disk_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object) -> None:
        raise StoreFault("the disk is full")

    bench = Bench(SimpleNamespace(put=refuse, get=refuse))
    await bench.meter.close()
    assert caplog.text.count("the disk is full") == 2
