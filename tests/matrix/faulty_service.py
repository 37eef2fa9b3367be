"""`huginn` with a Matrix transport that forgets what it answered, for the control of a crash test.

A message that was answered waits again after a start, and each reply has a name of its own: the
server shows two.
"""

from __future__ import annotations

import secrets

from actors.cli.main import main
from actors.gateway.transports import matrix
from actors.gateway.transports.matrix_inbox import Inbox, Letter


def _forgotten(self: Inbox, letter: Letter) -> None:
    """Leaves it waiting."""


def _unnamed(letter: Letter) -> str:
    return secrets.token_hex(16)


if __name__ == "__main__":
    Inbox.answered = _forgotten  # type: ignore[method-assign]
    matrix.transaction = _unnamed
    main(prog_name="huginn")
