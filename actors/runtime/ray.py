"""The Ray shell: each room an actor of its own process. The only file that knows Ray's options.

What was measured of Ray 2.60 decides the shape. Asynchronous actors do not keep call order, so no
message here depends on it. An actor with `max_restarts=0` and a parked call reports its death in
milliseconds, so a supervisor restarts it; Ray's own restarts take seconds and replay half-read
streams. Dropping a stream does not stop its producer, so closing one cancels it. Exceptions of our
own classes do not survive the trip, so errors are reply records. A dead actor keeps its name while
a handle is held, so an old handle is killed before the name is used again. A handle outlives its
actor and tells only when it is used: the message then goes to the actor that has the name now.

`ray_environment.set_environment` runs before this module is imported: Ray reads it on import.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any, Final

import ray  # noqa: TID251 - this is the shell
from ray import exceptions as faults  # noqa: TID251

from actors.room import Room
from actors.runtime.batches import batches
from actors.runtime.garbage import spare_the_old
from actors.runtime.logs import configure
from actors.runtime.plan import ROOMS, Plan
from actors.runtime.session_folder import SessionFolder, sweep
from actors.runtime.supervisor import Running, Supervisor
from actors.runtime.wiring import build_room
from profiles import loader
from protocol.envelope import open_reply
from protocol.errors import FaultError, HuginnError, InvocationError, Unavailable, WorkerFault

NAMESPACE: Final = "huginn"
WORKER: Final = "worker"
# Ray's own minimum, and far more than our messages need: tensors and KV never travel.
_OBJECT_STORE_BYTES: Final = 100_000_000
_HEARTBEAT_SECONDS: Final = 5.0
_HUNG_SECONDS: Final = 30.0
_DRAIN_SECONDS_MAX: Final = 20.0


class RoomActor:
    """One room in one Ray process. Methods take and give bytes."""

    def __init__(self, plan: bytes, name: str) -> None:
        self._plan = Plan.decode(plan)
        self._name = name
        self._room: Room | None = None
        self._ended = asyncio.Event()
        configure(self._plan.config)

    async def start(self) -> str:
        """Build and start the room: "" if that worked, else why not."""
        try:
            # Loading a model takes seconds: the loop stays free to answer and to be drained.
            self._room = await asyncio.to_thread(build_room, self._plan, self._name, RayMailbox())
            await self._room.start()
            spare_the_old()
        except HuginnError as error:
            return error.message
        return ""

    def _ready(self) -> Room:
        if self._room is None:
            raise RuntimeError(f"the {self._name} room has not started")
        return self._room

    async def receive(self, message: bytes) -> bytes:
        return await self._ready().receive(message)

    async def stream(self, message: bytes) -> AsyncIterator[list[bytes]]:
        """The room's items, in lists of those that were there at once: to Ray each thing that is
        given is an object of its own, which costs about a millisecond."""
        # A cancelled stream arrives here as GeneratorExit or CancelledError.
        async with contextlib.aclosing(batches(self._ready().stream(message))) as given:
            async for batch in given:
                yield batch

    async def ping(self) -> int:
        return os.getpid()

    async def watch(self) -> None:
        """Parked until the drain; raises at the caller when this process dies."""
        await self._ended.wait()

    async def drain(self) -> None:
        if self._room is not None:
            await self._room.refusals.settle()
            await self._room.drain()
        self._ended.set()


class RayMailbox:
    """Rooms by name, from any process of the cluster.

    A message whose actor turns out to have died goes, once, to the one that was started in its
    place. It is done once all the same: the new room takes nothing that was signed before its own
    start (`protocol/nonces.py`), and what was signed after that cannot have reached the old one.
    """

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}

    def _handle(self, room: str) -> Any:
        if room not in self._handles:
            try:
                self._handles[room] = ray.get_actor(room, namespace=NAMESPACE)
            except ValueError as error:
                raise _absent(room) from error
        return self._handles[room]

    def _successor(self, room: str, handle: Any, error: Exception) -> Any:
        """The handle of the actor that has the place of `handle`'s now. Raises what `error` means
        where there is none."""
        self._handles.pop(room, None)
        if not isinstance(error, faults.ActorDiedError):
            raise _lost(room, error) from error
        try:
            found = self._handle(room)
        except HuginnError:
            found = handle
        if found == handle:
            self._handles.pop(room, None)
            raise _lost(room, error) from error
        return found

    async def call(self, room: str, message: bytes) -> bytes:
        handle = self._handle(room)
        try:
            reply: bytes = await handle.receive.remote(message)
            return reply
        except faults.RayError as error:
            died = error
        again = self._successor(room, handle, died)
        try:
            reply = await again.receive.remote(message)
        except faults.RayError as error:
            self._handles.pop(room, None)
            raise _lost(room, error) from error
        if _precedes_start(reply):
            raise _lost(room, died) from died
        return reply

    async def stream(self, room: str, message: bytes) -> AsyncIterator[bytes]:
        handle = self._handle(room)
        began = False
        try:
            async with contextlib.aclosing(_items(handle, message)) as items:
                async for item in items:
                    began = True
                    yield item
            return
        except faults.RayError as error:
            died = error
        if began:
            self._handles.pop(room, None)
            raise _lost(room, died) from died
        again = self._successor(room, handle, died)
        try:
            async with contextlib.aclosing(_items(again, message)) as items:
                async for item in items:
                    if _precedes_start(item):
                        raise _lost(room, died) from died
                    yield item
        except faults.RayError as error:
            self._handles.pop(room, None)
            raise _lost(room, error) from error


async def _items(handle: Any, message: bytes) -> AsyncGenerator[bytes, None]:
    """What one actor streams. Raises RayError."""
    references = handle.stream.options(num_returns="streaming").remote(message)
    complete = False
    try:
        async for reference in references:
            for item in await reference:
                yield item
        complete = True
    except faults.RayError:
        complete = True
        raise
    finally:
        if not complete:
            with contextlib.suppress(faults.RayError):
                ray.cancel(references)


def _precedes_start(reply: bytes) -> bool:
    """Whether a room refused because the message is older than itself."""
    try:
        open_reply(reply)
    except InvocationError as error:
        return error.step == "start"
    except HuginnError:
        pass
    return False


def _lost(room: str, error: Exception) -> HuginnError:
    """What `error` means of a room, as `Mailbox` says it."""
    if isinstance(error, faults.ActorDiedError):
        if room == WORKER:
            return WorkerFault("the worker process died; it is being started again")
        return Unavailable(f"the {room} room died; it is being started again")
    if isinstance(error, faults.RayTaskError):
        # A room raises nothing: this one has no room yet.
        return Unavailable(f"the {room} room is being started; try again in a few seconds")
    return FaultError(
        f"the {room} room did not answer ({type(error).__name__}): nobody knows whether it runs"
    )


def _absent(room: str) -> HuginnError:
    if room == WORKER:
        return WorkerFault("the worker is being started; try again in a few seconds")
    return Unavailable(f"the {room} room does not run")


class _Watched:
    """A started actor. `died` returns when it is gone or does not answer any more."""

    def __init__(self, name: str, handle: Any) -> None:
        self.name = name
        self.handle = handle

    async def died(self) -> str:
        reason = await self._watch()
        # Whatever ended it, the name must be free before the next one takes it.
        ray.kill(self.handle)
        return reason

    async def _watch(self) -> str:
        watching = asyncio.ensure_future(self.handle.watch.remote())
        try:
            while True:
                await asyncio.wait({watching}, timeout=_HEARTBEAT_SECONDS)
                if watching.done():
                    watching.exception()
                    return f"the actor of the {self.name} room died"
                try:
                    await asyncio.wait_for(self.handle.ping.remote(), _HUNG_SECONDS)
                except TimeoutError:
                    return f"the {self.name} room has not answered for {_HUNG_SECONDS:.0f} s"
                except faults.RayError:
                    continue
        finally:
            watching.cancel()

    async def stop(self) -> None:
        with contextlib.suppress(faults.RayError, TimeoutError):
            await asyncio.wait_for(self.handle.drain.remote(), _DRAIN_SECONDS_MAX)
        with contextlib.suppress(faults.RayError):
            ray.kill(self.handle)


class RayShell:
    """All rooms of one plan, on a Ray of its own that ends with this process."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._supervisors: dict[str, Supervisor] = {}
        sweep()
        self._folder = SessionFolder()
        self._gpus = 1 if loader.load(plan.config.profile).runtime.device_class == "cuda" else 0

    async def start(self) -> None:
        try:
            await asyncio.to_thread(
                ray.init,
                # A Ray of our own, whatever RAY_ADDRESS names.
                address="local",
                num_cpus=2,
                num_gpus=self._gpus,
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                namespace=NAMESPACE,
                logging_level=logging.ERROR,
                log_to_driver=True,
                _temp_dir=str(self._folder.session),
            )
            for name in ROOMS:
                # A room that cannot start ends the start. The worker loads its model meanwhile.
                first = None if name == WORKER else await self._start_room(name)
                supervisor = Supervisor(name, partial(self._start_room, name))
                self._supervisors[name] = supervisor
                supervisor.begin(first)
        except BaseException:
            await self.stop()
            raise

    async def _start_room(self, name: str) -> Running:
        options: dict[str, Any] = {
            "num_cpus": 0,
            "num_gpus": self._gpus if name == WORKER else 0,
            "max_restarts": 0,
            "max_task_retries": 0,
            "name": name,
            "namespace": NAMESPACE,
        }
        if self._gpus:
            # An actor without a GPU of its own would otherwise see every one.
            visible = "0" if name == WORKER else ""
            options["runtime_env"] = {"env_vars": {"CUDA_VISIBLE_DEVICES": visible}}
        actor: Any = ray.remote(**options)(RoomActor)
        handle = actor.remote(self._plan.encode(), name)
        try:
            problem = await handle.start.remote()
        except faults.RayError as error:
            ray.kill(handle)
            raise WorkerFault(f"the {name} room died while it started: {error}") from error
        if problem:
            ray.kill(handle)
            raise WorkerFault(f"the {name} room cannot start: {problem}")
        return _Watched(name, handle)

    async def stop(self) -> None:
        """Stop taking requests, finish what runs, stop everything that was started."""
        for name in ("gateway", WORKER, *reversed(ROOMS)):
            if (supervisor := self._supervisors.pop(name, None)) is not None:
                await supervisor.stop()
        await asyncio.to_thread(ray.shutdown)
        self._folder.remove()
