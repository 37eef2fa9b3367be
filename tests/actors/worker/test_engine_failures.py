"""Something of the engine breaks: a stream, all of them, a settlement, the engine itself."""

from __future__ import annotations

from actors.worker.drivers import step
from actors.worker.jobs import DigestKnown
from protocol.errors import WorkerFault
from protocol.messages.worker import Item
from tests.engine_stands import Stand


def test_an_export_that_fails_costs_the_digest_alone() -> None:
    stand = Stand(window_tokens=32)
    stand.job("a", 300)
    stand.run()
    end = stand.end("a")
    assert isinstance(end, Item)
    assert stand.posted["a"][-1] == DigestKnown(None)
    assert stand.engine.jobs_failed == 0


def test_a_stream_that_cannot_be_emptied_is_retired_and_the_others_serve() -> None:
    stand = Stand(streams=2)
    real = stand.backend.truncate

    def refuse(stream: int, tokens: int) -> None:
        if stream == 0:
            raise WorkerFault("no")
        real(stream, tokens)

    stand.job("a", 100)
    step(stand.engine)
    stand.backend.truncate = refuse  # type: ignore[method-assign]
    stand.run()
    assert isinstance(stand.end("a"), Item)
    for name in ("b", "c"):
        stand.job(name, 100)
        stand.run()
        assert isinstance(stand.end(name), Item)
    assert stand.engine.streams[0].retired


def test_with_every_stream_retired_jobs_fail_with_a_reason() -> None:
    stand = Stand(streams=1)

    def refuse(stream: int, tokens: int) -> None:
        raise WorkerFault("no")

    stand.backend.truncate = refuse  # type: ignore[method-assign]
    stand.job("a", 10)
    stand.run()
    stand.job("b", 10)
    stand.run()
    end = stand.end("b")
    assert isinstance(end, WorkerFault)
    assert "restart" in str(end)


def test_a_fault_of_the_engine_fails_every_job_and_it_goes_on() -> None:
    stand = Stand()
    stand.job("a", 100)
    stand.settle("s", 10)
    step(stand.engine)
    stand.engine._turns.choose = None  # type: ignore[assignment]
    assert step(stand.engine)
    assert isinstance(stand.end("a"), WorkerFault)
    assert isinstance(stand.posted["s"][-1], WorkerFault)
    del stand.engine._turns.choose
    stand.job("b", 100)
    stand.run()
    assert isinstance(stand.end("b"), Item)


def test_a_settlement_that_fails_is_an_error_and_leaves_nothing() -> None:
    stand = Stand()
    stand.settle("s", 100)
    stand.backend.fault = "keep"
    stand.run()
    assert isinstance(stand.posted["s"][-1], WorkerFault)
    assert stand.engine.resident_tokens == 0
