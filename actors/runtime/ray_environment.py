"""What Ray reads from the environment, set on purpose before Ray is imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from store.keys import KeyStore

_TOKEN: Final = "ray.token"
_TOKEN_BYTES: Final = 32


def set_environment(home: Path) -> None:
    """Set Ray's environment for a service whose data directory is `home`.

    Every Ray port listens on all interfaces, so the token is not optional; it lies in our key
    directory, 0600. The memory monitor would kill the largest actor first: the one with the model.
    Raises StoreFault for a token that is empty or that others may read.
    """
    keys = KeyStore(home / "keys", entropy=os.urandom)
    keys.text_once(_TOKEN, lambda: os.urandom(_TOKEN_BYTES).hex())
    os.environ.update(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN_PATH=str(keys.root / _TOKEN),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_memory_monitor_refresh_ms="0",
        RAY_DEDUP_LOGS="0",
    )
