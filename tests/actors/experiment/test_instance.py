"""A service of one's own: it is asked, its worker is killed, and nothing of it is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cli.asked import Failure
from actors.cli.processes import descendants, look
from actors.experiment.instance import Instance
from tests import tiny_gemma


def test_nothing_is_left() -> None:
    with Instance("tiny-gemma", "embedded", tiny_gemma.cached()) as running:
        stats = running.stats()
        assert stats is not None
        worker = look(int(stats["process"]))
        assert worker is not None
        assert running.worker_rss_bytes() == pytest.approx(worker.rss_bytes, rel=0.2)
        service = worker.parent
        below = [each.pid for each in descendants(service)]
        assert worker.pid in below
        assert (running.home / "operator.key").exists()
        assert running.client().get("/v1/models")["data"][0]["id"] == running.model
    assert not running.home.exists()
    assert [pid for pid in [service, *below] if look(pid)] == []


def test_a_killed_worker_has_a_successor(instance: Instance) -> None:
    before = instance.stats()
    assert before is not None
    assert instance.kill_worker() > 0
    after = instance.stats()
    assert after is not None
    assert after["process"] != before["process"]
    assert after["prefilled_tokens"] == 0
    assert look(int(before["process"])) is None
    instance.wait_quiet()


def test_a_service_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    running = Instance("tiny-gemma", "embedded", broken)
    with pytest.raises(Failure, match="the profile pins"), running:
        raise AssertionError("it started")
    assert not running.home.exists()
