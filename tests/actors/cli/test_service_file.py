"""Who serves a data directory: the file is believed while the lock is held, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from actors.cli.asked import Failure
from actors.cli.service_file import FILE, announced, claimed, here, is_claimed, running, url

_HOLDER = """
import sys
from pathlib import Path
from actors.cli.service_file import announced, claimed, here
home = Path(sys.argv[1])
with claimed(home), announced(home, here("127.0.0.1", 7001, "embedded", "tiny-gemma")):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(home: Path) -> subprocess.Popen[str]:
    """Another process that serves `home`, until its input ends."""
    command = [sys.executable, "-c", _HOLDER, str(home)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_nobody_serves_an_empty_directory(home: Path) -> None:
    assert not is_claimed(home)
    assert running(home) is None
    assert list(home.iterdir()) == []


def test_a_service_is_seen_and_not_doubled(home: Path) -> None:
    with holder(home) as other:
        service = running(home)
        assert service is not None
        assert (service.pid, service.url) == (other.pid, "http://127.0.0.1:7001")
        assert (home / FILE).stat().st_mode & 0o777 == 0o600
        with pytest.raises(Failure, match=f"pid {other.pid}.*huginn down") as caught, claimed(home):
            pass
        assert caught.value.code == "already_running"
        other.communicate()
    assert running(home) is None
    assert not (home / FILE).exists()


def test_a_killed_service_leaves_a_file_that_misleads_nobody(home: Path) -> None:
    with holder(home) as other:
        other.kill()
    assert (home / FILE).exists()
    assert running(home) is None
    with claimed(home):
        assert is_claimed(home)


def test_a_claim_without_a_service_says_so(home: Path) -> None:
    with claimed(home), pytest.raises(Failure, match="another huginn command"), claimed(home):
        pass


def test_here_is_this_process(home: Path) -> None:
    service = here("::", 7001, "ray", "tiny-gemma")
    assert service.pid == os.getpid()
    with claimed(home), announced(home, service):
        assert running(home) == service


@pytest.mark.parametrize(
    ("host", "reached"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("raven", "raven")],
)
def test_where_a_client_finds_it(host: str, reached: str) -> None:
    assert url(host, 7717) == f"http://{reached}:7717"
