"""`huginn up`: a service in the foreground, from nothing to ready, and down again without a rest.

In order: configuration, the lock of the data directory, the port, the weights, the library, the
rooms. SIGTERM or Ctrl-C end it at any point, with everything that it started; a second one does
not wait.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

import click

from actors.cli.asked import Asked, Failure, verb
from actors.cli.processes import signal_descendants

if TYPE_CHECKING:
    from actors.config import Config

_FORCED: Final = 1


@click.command()
@verb
@click.option("--embedded", is_flag=True, help="Rooms in one process, without Ray.")
@click.option("--host", help="Address to listen on; 127.0.0.1 by default.")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes any free one.")
@click.option("--profile", help="A name of `huginn models list`, or a TOML file.")
def up(
    asked: Asked, embedded: bool, host: str | None, port: int | None, profile: str | None
) -> None:
    """Start the service and stay until Ctrl-C or SIGTERM.

    The first time, this fetches the model and builds the library that runs it.
    """
    flags = {"host": host, "port": port, "profile": profile}
    config = asked.origins({**flags, "shell": "embedded" if embedded else None}).config
    from actors.cli.service_file import announced, claimed, here
    from actors.cli.serving import serve
    from actors.runtime.logs import configure
    from store.files import make_directory

    configure(config)
    make_directory(config.home_path)
    with _own_stdout() as answers, claimed(config.home_path):
        config = _with_port(config)
        _warn_of_strangers(asked, config)
        with _ending_children():
            _prepare(asked, config)
        service = here(config.host, config.port, config.shell, config.profile)
        with announced(config.home_path, service):
            serve(config, service, _teller(asked, config, answers), force=_force)


def _prepare(asked: Asked, config: Config) -> None:
    from actors.cli.fetch import ensure_library, ensure_weights
    from profiles import loader

    ensure_weights(loader.load(config.profile), config.home_path, asked)
    ensure_library(asked)


def _with_port(config: Config) -> Config:
    """The configuration with a port that is free now. Raises Failure for one that is not."""
    import msgspec

    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host or None, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return msgspec.structs.replace(config, port=probe.getsockname()[1])
    except OSError as error:
        raise Failure(
            f"port {config.port} of {config.host} cannot be used ({error.strerror or error}): "
            "choose another with --port or HUGINN_PORT, or stop what listens there",
            code="port",
            port=config.port,
        ) from error


def _warn_of_strangers(asked: Asked, config: Config) -> None:
    from actors.config import LOOPBACK

    if config.host not in LOOPBACK:
        asked.note(
            f"huginn: warning: {config.host} can be reached from other machines. Every request "
            "needs a key, but keys and prompts travel unencrypted: put TLS in front"
        )


def _teller(asked: Asked, config: Config, answers: TextIO) -> Callable[[dict[str, Any]], None]:
    """What says that the service is ready, given the body of `/health`."""
    import json

    from actors.cli.client import KEY_FILE
    from actors.cli.service_file import url

    def tell(health: dict[str, Any]) -> None:
        base, path = url(config.host, config.port), config.home_path / KEY_FILE
        key = path.read_text("ascii").strip()
        model = health["models"][0]
        document = {
            "url": base,
            "key": key,
            "key_file": str(path),
            "model": model,
            "profile": config.profile,
            "shell": config.shell,
            "home": config.home,
            "pid": os.getpid(),
        }
        text = json.dumps(document) if asked.json else _welcome(document)
        print(text, file=answers, flush=True)

    return tell


def _welcome(ready: dict[str, Any]) -> str:
    body = f'{{"model":"{ready["model"]}","messages":[{{"role":"user","content":"Hello"}}]}}'
    return "\n".join(
        [
            f"Huginn is ready at {ready['url']}",
            f"  key    {ready['key']}  (in {ready['key_file']})",
            f"  model  {ready['model']}  (profile {ready['profile']}, shell {ready['shell']})",
            f"  try    curl -s {ready['url']}/v1/chat/completions"
            f" -H 'Authorization: Bearer {ready['key']}'"
            f" -H 'Content-Type: application/json' -d '{body}'",
            "  stop   Ctrl-C, or `huginn down`",
        ]
    )


@contextmanager
def _own_stdout() -> Iterator[TextIO]:
    """Standard output for us alone: whatever else writes to it, in this process or in one that it
    starts, writes to standard error. Ray prints to its driver's standard output."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(kept), "w", encoding="utf-8") as answers:
            yield answers
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def _ending_children() -> Iterator[None]:
    """Inside, SIGTERM ends what was started (pip, a compiler) and then this process."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        signal_descendants(os.getpid(), signal.SIGTERM)
        raise click.Abort

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _force(service_file: Path) -> NoReturn:
    """End at once, with everything below: somebody asked twice."""
    signal_descendants(os.getpid(), signal.SIGKILL)
    service_file.unlink(missing_ok=True)
    os._exit(_FORCED)
