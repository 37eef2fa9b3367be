"""Running a shell from its plan to its end: started, waited for, announced, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

from actors.cli.asked import Failure
from actors.cli.client import Client
from actors.cli.service_file import FILE, Service
from actors.config import Config
from actors.runtime.garbage import spare_the_old
from actors.runtime.plan import Plan, prepare
from actors.runtime.world import SystemClock, SystemEntropy

Json = dict[str, Any]

_POLL_SECONDS: Final = 0.1
# A large model on a cold disk takes minutes; whatever takes longer will not come.
_READY_SECONDS_MAX: Final = 600.0
_READY: Final = 200


class Shell(Protocol):
    """What runs the rooms. `start` stops what it began if it fails."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def serve(
    config: Config,
    service: Service,
    tell: Callable[[Json], None],
    *,
    force: Callable[[Path], NoReturn],
) -> None:
    """Serve until SIGTERM or SIGINT; `tell` gets the body of `/health` once it is ready.

    A second signal calls `force` with the path of the service file. Raises HuginnError if the
    rooms cannot start, Failure if they are not ready in ten minutes.
    """
    make_shell = _shell_of(config)
    asyncio.run(_serve(config, service, tell, force, make_shell))


def _shell_of(config: Config) -> Callable[[Plan], Shell]:
    if config.shell == "embedded":
        from actors.runtime.local import EmbeddedShell

        return EmbeddedShell
    from actors.runtime.ray_environment import set_environment

    # Ray reads its environment when it is imported.
    set_environment(config.home_path)
    from actors.runtime.ray import RayShell

    return RayShell


async def _serve(
    config: Config,
    service: Service,
    tell: Callable[[Json], None],
    force: Callable[[Path], NoReturn],
    make_shell: Callable[[Plan], Shell],
) -> None:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            force(config.home_path / FILE)
        stop.set()

    _on_stop_signals(on_signal)
    shell = make_shell(await prepare(config, SystemClock(), SystemEntropy()))
    # Never cancelled half-way: a shell that was begun can only be stopped once it has started.
    await shell.start()
    spare_the_old()
    # Ray's native code puts handlers of its own over ours, which print a stack at SIGTERM.
    _on_stop_signals(on_signal)
    try:
        await _until_stopped(service, tell, stop)
    finally:
        await shell.stop()


def _on_stop_signals(act: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, act)


async def _until_stopped(
    service: Service, tell: Callable[[Json], None], stop: asyncio.Event
) -> None:
    client = Client(service.url, seconds_max=5.0)
    stopping = asyncio.create_task(stop.wait())
    readying = asyncio.create_task(_ready(client))
    try:
        await asyncio.wait({stopping, readying}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            tell(readying.result())
            await stopping
    finally:
        for task in (stopping, readying):
            task.cancel()
        await asyncio.gather(stopping, readying, return_exceptions=True)


async def _ready(client: Client) -> Json:
    """The body of `/health` once it is 200. Raises Failure after ten minutes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_READY_SECONDS_MAX):
            while True:
                with contextlib.suppress(Failure):
                    status, body = await asyncio.to_thread(client.health)
                    if status == _READY:
                        health: Json = body
                        return health
                await asyncio.sleep(_POLL_SECONDS)
    raise Failure(
        f"the service is not ready after {_READY_SECONDS_MAX:.0f} s: its log above says why",
        code="not_ready",
    )
