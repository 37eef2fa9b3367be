"""Who does it: one folder per room, and the shells that run rooms."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
