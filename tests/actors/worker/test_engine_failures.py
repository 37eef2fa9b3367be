"""Something of the engine breaks: a stream, all of them, a settlement, the engine itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from actors.worker.drivers import step
from actors.worker.jobs import DigestKnown
from actors.worker.streams import Choice, Streams
from protocol.errors import WorkerFault
from protocol.ids import ChainId
from protocol.messages.worker import Item
from tests.engine_stands import Stand
from tests.killed_worker import tiers_over
from tests.worker_rooms import Talk, text_ids

FAULTS = pytest.mark.parametrize("fault", [WorkerFault, ValueError, MemoryError])


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


@FAULTS
def test_a_settlement_that_fails_is_an_error_and_leaves_nothing(fault: type[Exception]) -> None:
    """To itself: an answer that is being given goes on."""
    stand = Stand()
    stand.job("a", 20, tokens_max=60)
    stand.settle("s", 100)
    while not stand.engine.decoded_tokens:
        step(stand.engine)
    stand.engine._settle_chunk()
    stand.backend.fault, stand.backend.fault_class = "keep", fault
    stand.engine._settle_chunk()
    stand.run()
    assert isinstance(stand.posted["s"][-1], WorkerFault)
    end = stand.end("a")
    assert isinstance(end, Item)
    assert end.finish == "length"
    assert stand.engine.jobs_failed == 1


@FAULTS
def test_a_restore_that_fails_costs_its_prompt_the_reuse_and_nobody_an_answer(
    tmp_path: Path, fault: type[Exception]
) -> None:
    stand = Stand(tiers_over(tmp_path))
    talk = Talk().add("user", text_ids("a" * 200))
    stand.job("a", 0, talk=talk)
    stand.run()
    stand.engine._seats.clear_all()
    stand.job("b", 20, tokens_max=60, domain="bob")
    while not stand.engine.decoded_tokens > 8:
        step(stand.engine)
    # The next call that changes a stream is the restore.
    stand.backend.fault, stand.backend.fault_class = "clear", fault
    stand.job("again", 0, talk=talk)
    stand.engine._receive()
    stand.engine._admit()
    assert stand.backend.fault is None
    stand.run()
    for name in ("again", "b"):
        end = stand.end(name)
        assert isinstance(end, Item)
        assert end.finish == "length"
    end = stand.end("again")
    assert isinstance(end, Item)
    assert end.receipt is not None
    assert (end.receipt.reused_tokens, end.receipt.pages_refused) == (0, ["restore"])


class Broken(Streams):
    """A table with a bug: it fails whoever is to be given a stream, once."""

    def choose(self, domain: str, chains: Sequence[ChainId], public: int = 0) -> Choice | None:
        self.__class__ = Streams  # type: ignore[assignment]
        raise KeyError(domain)


def test_what_nobody_foresaw_is_one_jobs_fault_and_names_itself() -> None:
    stand = Stand()
    stand.job("a", 20, tokens_max=60)
    while not stand.engine.decoded_tokens:
        step(stand.engine)
    stand.engine.streams.__class__ = Broken
    stand.job("b", 20)
    stand.run()
    end = stand.end("b")
    assert isinstance(end, WorkerFault)
    assert "KeyError" in end.message
    assert isinstance(stand.end("a"), Item)
