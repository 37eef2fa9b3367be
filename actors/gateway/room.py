"""The gateway: who is calling, what is served here, and what is still going on for callers.

It owns connections and the table of API keys. It keeps nothing that a model sees: every context,
token and receipt is asked of the rooms, in the name of the principal whose key came with the
request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from actors.gateway.caller import Caller, Ports
from actors.gateway.keys import ApiKeys, KeyHolder
from actors.gateway.limits import Limits
from actors.gateway.models import ServedModel, ServedModels
from actors.gateway.presented import PresentedHandles
from actors.gateway.quotas import Quotas
from protocol.errors import AuthorityError, HuginnError
from protocol.signing import Signer
from store.tables import KeyedTable

log = logging.getLogger("huginn.gateway")

_NS_PER_S: Final = 10**9
_SCHEME: Final = "bearer"


class Gateway:
    """One gateway over one mailbox."""

    def __init__(
        self,
        ports: Ports,
        key_table: KeyedTable,
        models: Iterable[ServedModel],
        *,
        version: str,
        limits: Limits | None = None,
        signer: Signer | None = None,
        anchors: frozenset[bytes] = frozenset(),
    ) -> None:
        """`signer`: the gateway's own key, with which handles shown under `anchors` are used
        (None: no handle is taken in place of an API key)."""
        self.ports = ports
        self.keys = ApiKeys(key_table)
        self.presented = None if signer is None else PresentedHandles(signer, anchors, self.keys)
        self.models = ServedModels(models)
        self.version = version
        self.limits = limits or Limits()
        self.quotas = Quotas(
            ports.clock,
            open_max=self.limits.requests_open_max,
            minute_max=self.limits.requests_minute_max,
        )
        self._later: set[asyncio.Task[None]] = set()
        self._draining = False
        # Hears of what is refused here: the step, what was asked for, and the request's id.
        self.on_refusal: Callable[[str, str, str], None] = _unheard

    @property
    def is_ready(self) -> bool:
        """Whether the worker can be asked now: what health says."""
        return self.ports.readiness.is_ready

    def authenticate(self, authorization: str | None, request_id: str) -> Caller:
        """The caller whose key, or handle for this gateway, stands in an `Authorization` header
        (`Bearer hg-…`, `Bearer hgh-…`).

        Raises AuthorityError with step `key`, the same whatever is wrong with it.
        """
        scheme, _, key = (authorization or "").partition(" ")
        holder = self._holder(key.strip()) if scheme.lower() == _SCHEME else None
        if holder is None:
            raise AuthorityError("key", "an API key is needed: 'Authorization: Bearer hg-…'")
        return Caller(holder, self.ports, request_id)

    def _holder(self, key: str) -> KeyHolder | None:
        if self.presented is not None and self.presented.is_one(key):
            return self.presented.find(key, self.ports.clock.wall_ns())
        return self.keys.find(key)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work` off the caller's path. What goes wrong in it is logged and told to nobody."""
        if self._draining:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(_quietly(work))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def drain(self) -> None:
        """Wait for what goes on off callers' paths, at most `drain_ns_max`, then stop it."""
        self._draining = True
        pending = set(self._later)
        if pending:
            _, pending = await asyncio.wait(pending, timeout=self.limits.drain_ns_max / _NS_PER_S)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


def _unheard(step: str, op: str, request_id: str) -> None: ...


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except HuginnError as error:
        log.info("work after an answer failed: %s: %s", error.code, error.message)
    except Exception:
        log.exception("a fault in work after an answer")
