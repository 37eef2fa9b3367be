"""How much one principal may ask for at a time: requests that are open, and requests a minute.

Only a principal's own requests count, and each counts the same whatever it finds warm: so the limit
says nothing of anybody else (AUT-9), and one principal does not take the service from the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from actors.ports import Clock
from protocol.errors import LimitExceeded

_NS_PER_S: Final = 10**9
_MINUTE_NS: Final = 60 * _NS_PER_S
# What is remembered of principals without an open request. One that is forgotten begins anew.
_IDLE_MAX: Final = 10_000


@dataclass(slots=True)
class _Account:
    """`spent_ns`: how far ahead of the clock its requests have come, were they evenly spaced."""

    open: int = 0
    spent_ns: int = 0


class Quotas:
    """Limits for each principal. `open_max` requests at once; `minute_max` a minute on the long
    run, a sixth of them at once. 0 is no limit."""

    def __init__(self, clock: Clock, *, open_max: int, minute_max: int) -> None:
        self._clock = clock
        self._open_max = open_max
        self._minute_max = minute_max
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    @contextmanager
    def entered(self, principal: str) -> Iterator[None]:
        """One request of `principal`, open while the context is. Raises LimitExceeded, with the
        detail `retry_s`, the seconds after which the next one is let in; what is refused does not
        count."""
        account = self._account(principal)
        if self._open_max and account.open >= self._open_max:
            raise LimitExceeded(
                f"{account.open} requests of this key are open, the limit is {self._open_max}: "
                "try again when one has ended",
                retry_s=1,
            )
        self._spend(account)
        account.open += 1
        try:
            yield
        finally:
            account.open -= 1

    def _spend(self, account: _Account) -> None:
        if not self._minute_max:
            return
        now_ns, gap_ns = self._clock.steady_ns(), _MINUTE_NS // self._minute_max
        ahead_ns = max(account.spent_ns, now_ns) + gap_ns - now_ns
        burst_ns = max(gap_ns, _MINUTE_NS // 6)
        if ahead_ns > burst_ns:
            wait_s = -(-(ahead_ns - burst_ns) // _NS_PER_S)
            raise LimitExceeded(
                f"this key may ask {self._minute_max} times a minute: try again in {wait_s} s",
                retry_s=wait_s,
            )
        account.spent_ns = now_ns + ahead_ns

    def _account(self, principal: str) -> _Account:
        account = self._accounts.setdefault(principal, _Account())
        self._accounts.move_to_end(principal)
        if len(self._accounts) > _IDLE_MAX:
            idle = next((name for name, each in self._accounts.items() if not each.open), None)
            if idle is not None and idle != principal:
                del self._accounts[idle]
        return account
