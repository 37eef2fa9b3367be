"""What rooms say to each other: one module per room that is asked, one record per message.

A message travels inside an envelope, as the body that the invocation signs. Each room's table
`OPERATIONS` names, for each operation, the record asked with, the record answered with, the right
that the handle must carry and whether the answer is a stream.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.record import Record


class Operation(NamedTuple):
    """`reply` is the record of each item where `streams` is true. `right` None: whatever the handle
    may do, because what is asked is about the handle itself."""

    ask: type[Record]
    reply: type[Record]
    right: str | None
    streams: bool = False


class Empty(Record):
    """Nothing to say."""
