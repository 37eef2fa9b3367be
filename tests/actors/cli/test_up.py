"""`huginn up`, as far as it goes before anything is started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from actors.cli.service_file import claimed


def up(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which has standard output for itself."""
    return subprocess.run(
        [sys.executable, "-m", "actors.cli", "up", "--embedded", "--home", str(home), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_port_that_is_taken(tiny_home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = up(tiny_home, "--profile", "tiny-gemma", "--port", str(port), "--json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["port"]) == ("port", port)
    assert "--port or HUGINN_PORT" in done.stderr


def test_a_home_that_is_taken(tiny_home: Path) -> None:
    with claimed(tiny_home):
        done = up(tiny_home, "--profile", "tiny-gemma", "--port", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "wait for it" in done.stderr


def test_weights_that_cannot_be_had(home: Path) -> None:
    done = up(home, "--profile", "tiny-gemma", "--port", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "put the file there" in done.stderr
    assert done.stderr.count("Traceback") == 0


def test_a_profile_that_is_not_there(home: Path) -> None:
    done = up(home, "--profile", "crow", "--port", "0")
    assert done.returncode == 1
    assert "no profile 'crow'" in done.stderr


def test_others_are_warned_of(home: Path) -> None:
    done = up(home, "--profile", "crow", "--port", "0", "--host", "0.0.0.0")
    assert "can be reached from other machines" in done.stderr


def test_a_signal_ends_what_prepares(home: Path) -> None:
    """SIGTERM while a child does what pip or a compiler would do."""
    code = (
        "import subprocess, sys\n"
        "from actors.cli import up\n"
        "with up._ending_children():\n"
        "    child = subprocess.Popen(['sleep', '60'])\n"
        "    print(child.pid, flush=True)\n"
        "    child.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.terminate()
        assert process.wait(60) != 0
    deadline = time.monotonic() + 60
    while _lives(child):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.02)


def _lives(pid: int) -> bool:
    from actors.cli.processes import look

    return look(pid) is not None


def test_standard_output_is_ours_alone() -> None:
    code = (
        "import os\n"
        "from actors.cli import up\n"
        "with up._own_stdout() as answers:\n"
        "    os.write(1, b'somebody else\\n')\n"
        "    print('answer', file=answers, flush=True)\n"
        "print('after')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "answer\nafter\n"
    assert done.stderr == "somebody else\n"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert os.isatty(1) in (True, False)
