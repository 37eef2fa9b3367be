"""The command line as a test calls it: in this process, with an environment of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from actors.cli.main import main
from tests.fake_rooms import Service, running

# None removes what the machine that runs the tests may have set.
_CLEAN: dict[str, str | None] = {
    name: None
    for name in ("HUGINN_API_KEY", "HUGINN_HOST", "HUGINN_PORT", "HUGINN_PROFILE", "HUGINN_SHELL")
}


def huginn(*words: str, home: Path, given: str | None = None, **variables: str) -> Result:
    """Run `huginn` with `words` on the data directory `home`; `given` is standard input."""
    environment = {**_CLEAN, "HUGINN_HOME": str(home), **variables}
    return CliRunner().invoke(main, list(words), env=environment, input=given)


def answered(*words: str, home: Path, given: str | None = None, **variables: str) -> Any:
    """What the verb answers with `--json`: one line, exit 0."""
    result = huginn(*words, "--json", home=home, given=given, **variables)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def refused(*words: str, home: Path, code: str, exit_code: int = 1, **variables: str) -> str:
    """The message of a verb that fails with `code`: one line on standard error, and as JSON."""
    result = huginn(*words, "--json", home=home, **variables)
    assert result.exit_code == exit_code, result.output
    assert result.stderr.startswith("huginn: ")
    assert result.stderr.count("\n") == 1
    error = json.loads(result.stdout)["error"]
    assert error["code"] == code, error
    message: str = error["message"]
    return message


@contextmanager
def served() -> Iterator[Service]:
    """A gateway over rooms without a model, in a thread of its own."""
    loop = asyncio.new_event_loop()
    ready: list[Service] = []
    up, down = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with running() as service:
            ready.append(service)
            up.set()
            await down.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert up.wait(60), "the service did not start"
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(down.set)
        thread.join(60)
        loop.close()


def reach(service: Service, key: str | None = None) -> dict[str, str]:
    """The variables by which a client finds `service`, as its operator or with `key`."""
    return {
        "HUGINN_PORT": str(service.host_port[1]),
        "HUGINN_API_KEY": service.operator_key if key is None else key,
    }


@contextmanager
def peer(answer: bytes) -> Iterator[str]:
    """The address of something that says `answer` to the first request, whatever it is."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(60)
