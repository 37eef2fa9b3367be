"""What a session may be told of: the sources in its scope, as the keeper of sources answers it.

Sessions know sources through this port alone. A source that was removed while sessions had not
seen all of it stays in the answer with its last number and no log: its end is seen as a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from actors.room import Call
from protocol.errors import NotVisible
from protocol.ids import SourceId, framed_digest
from protocol.resource import Resource, ResourceKind, Right


class ScopedSource(NamedTuple):
    """One source. `first` … `head` are the numbers that are kept; of a removed one `head` is the
    last that it had, and `first` = head + 1."""

    id: SourceId
    namespace: str
    name: str
    first: int
    head: int

    def label(self, namespace: str) -> str:
        """The name as a session in `namespace` is told it: with the path below it, if any."""
        below = self.namespace.removeprefix(namespace).strip("/")
        return f"{below}/{self.name}" if below else self.name


class Scopes(Protocol):
    """The sources that there are, as far as the caller may observe them."""

    def in_scope(
        self, call: Call, namespace: str, names: Sequence[str] | None
    ) -> list[ScopedSource]:
        """The sources that `names` (as `ScopedSource.label` gives them) name in and below
        `namespace`; None: all that `call` may observe. Names of what is not there are left out."""


def may_read(call: Call, namespace: str) -> bool:
    """Whether the caller may be told what was said in `namespace`. To begin and to end turns there
    takes less."""
    return call.handle.permits(Right.READ, Resource(kind=ResourceKind.NAMESPACE, name=namespace))


def holder(call: Call) -> bytes:
    """In whose hands the caller's handle is: 32 bytes, the same for one message and the next. They
    are the principal's key or, of a handle that was given out below its own, what names that handle
    and the key that signs for it: a gateway signs for all that are shown to it."""
    handle = call.handle
    if handle.audience == handle.principal:
        return handle.principal
    # The last link is made for the message, or for the next few.
    given = handle.lineage[-2:][0]
    return framed_digest("huginn.holder/1", given.digest + handle.audience)


def may_have(call: Call, namespace: str, begun_by: bytes | None) -> bool:
    """Whether what the holder `begun_by` began in `namespace` is there for the caller: its own, or
    anybody's where it may read."""
    return may_read(call, namespace) or begun_by == holder(call)


def require(call: Call, right: Right, namespace: str) -> str:
    """`namespace`, if the handle holds `right` there; NotVisible otherwise."""
    wanted = Resource(kind=ResourceKind.NAMESPACE, name=namespace)
    if not call.handle.permits(right, wanted):
        raise NotVisible("no such session or source in this view")
    return namespace
