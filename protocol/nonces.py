"""The nonce window: each invocation is accepted once.

A nonce is remembered by the time that its invocation states, not by when it came: it is forgotten
only when the window's floor has passed that time, and below the floor everything is refused. So
whatever the clock does, nothing is both forgotten and acceptable. The floor follows the latest
time seen, less the allowed skew, so a nonce is kept for 60 s at most (twice the skew). After a
clock that ran ahead is set back, everything is refused until it has caught up.

A window starts empty, with its floor at the later of `started_ns` and its `HighMark`: above what
was accepted before a restart. An invocation stated in the future is accepted when the mark above
it is durable. One that is not is accepted at once, and the mark, a second ahead, is written behind
it: until then only a clock that is set back across the restart could bring it below the start.
"""

from __future__ import annotations

import heapq
from concurrent.futures import Future
from typing import Any, Protocol

from protocol.errors import InvocationError, Unavailable
from protocol.limits import INVOCATION_SKEW_NS_MAX, MARK_AHEAD_NS, NONCES_MAX


class HighMark(Protocol):
    """What outlives a window: a time that is above everything it accepted."""

    def read(self) -> int:
        """The time kept last, Unix ns; 0 where none was."""

    def keep_soon(self, ns: int) -> Future[Any]:
        """Keeps `ns`. The future resolves when that is durable, or with what went wrong."""


class NonceWindow:
    """Nonces by signer. Not for use by several threads at once."""

    def __init__(
        self, started_ns: int, *, nonces_max: int = NONCES_MAX, mark: HighMark | None = None
    ) -> None:
        """`started_ns`: Unix time below which nothing is accepted (the room's own start), or
        below `mark`, if that is later."""
        self._mark = mark
        # Everything accepted lies below `_kept_ns`, durably; `_asked_ns` is being written.
        self._kept_ns = self._asked_ns = 0 if mark is None else mark.read()
        self._asked: Future[Any] | None = None
        started_ns = max(started_ns, self._kept_ns)
        self.started_ns = started_ns
        self.high_ns = started_ns - 1
        self._floor_ns = started_ns
        self._nonces_max = nonces_max
        self._seen: set[tuple[bytes, bytes]] = set()
        self._by_time: list[tuple[int, bytes, bytes]] = []

    def admit(self, signer: bytes, nonce: bytes, ts_ns: int, now_ns: int) -> None:
        """Accepts `signer`'s `nonce`, stated at `ts_ns`, for the one time.

        Raises InvocationError with step `start` for a time below the window's floor, `nonce` for
        one that was seen, and Unavailable when the window is full (nothing is accepted then). What
        `HighMark` raises for a time in the future that cannot be kept.
        """
        self._advance(now_ns - INVOCATION_SKEW_NS_MAX)
        if ts_ns < self._floor_ns:
            raise InvocationError(
                "start", f"signed at {ts_ns} ns, nothing before {self._floor_ns} is accepted here"
            )
        key = (signer, nonce)
        if key in self._seen:
            raise InvocationError("nonce", "this invocation was accepted before; sign a new one")
        if len(self._seen) >= self._nonces_max:
            raise Unavailable(f"{self._nonces_max} invocations within the last minute; try later")
        self._reserve(ts_ns, now_ns)
        self._seen.add(key)
        heapq.heappush(self._by_time, (ts_ns, signer, nonce))
        self.high_ns = max(self.high_ns, ts_ns)

    def _reserve(self, ts_ns: int, now_ns: int) -> None:
        """Sees to it that the mark lies above `ts_ns`; waits for that if it is in the future."""
        if self._mark is None:
            return
        if self._asked is not None and self._asked.done():
            # A mark that could not be written is asked for again by the next invocation.
            if self._asked.exception() is None:
                self._kept_ns = self._asked_ns
            else:
                self._asked_ns = self._kept_ns
            self._asked = None
        if ts_ns >= self._asked_ns:
            self._asked = self._mark.keep_soon(ts_ns + MARK_AHEAD_NS)
            self._asked_ns = ts_ns + MARK_AHEAD_NS
        if ts_ns > now_ns and ts_ns >= self._kept_ns and self._asked is not None:
            self._asked.result()

    def _advance(self, floor_ns: int) -> None:
        self._floor_ns = max(self._floor_ns, floor_ns)
        while self._by_time and self._by_time[0][0] < self._floor_ns:
            _, signer, nonce = heapq.heappop(self._by_time)
            self._seen.discard((signer, nonce))

    def __len__(self) -> int:
        return len(self._seen)
