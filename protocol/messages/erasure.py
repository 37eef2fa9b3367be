"""Erasure: what the authority is asked to have forgotten, and its order to each room.

The authority alone gives the order, to one room after the other, and again until each has done it;
so what a room does is idempotent. A room answers when nothing of it is left on its disk.
"""

from __future__ import annotations

from typing import Final, Literal

from protocol.messages import Empty, Operation
from protocol.record import Record
from protocol.resource import path_covers

Target = Literal["object", "namespace", "principal", "domain"]
Policy = Literal["immediate", "bounded"]


class Erase(Record):
    """Forget what these name.

    `domains`: everything that was computed for them, and the keys it was sealed with. `namespaces`:
    paths, each with all below it but what a path in `spared` covers, which others can see;
    `objects` (ids as text): of these namespaces only these objects, and the sessions that name
    them. `principals`: public keys, and `names` what they were called.
    """

    domains: list[str]
    namespaces: list[str]
    spared: list[str]
    principals: list[bytes]
    names: list[str]
    objects: list[str] | None = None

    def takes(self, namespace: str) -> bool:
        """Whether `namespace` goes (or these objects of it)."""
        return any(path_covers(path, namespace) for path in self.namespaces) and not any(
            path_covers(path, namespace) for path in self.spared
        )


class Erased(Record):
    """What went from one room, by kind: counts, and `bytes`. Of an order that was carried out
    before, what was left to do."""

    counts: dict[str, int]


class RequestErasure(Record):
    """Erase an object (an id) of `namespace`, a namespace, a principal or a domain by `name`.

    Needs the right `erase` there; for a principal, which is revoked by it, the right `revoke` too,
    unless it asks itself, under its own key. Of a domain all principals go. NotVisible for what the
    caller may not erase and for what is not there; ContentError for the domain `public` and for one
    who administers.
    """

    target: Target
    name: str
    namespace: str | None = None


class RoomErased(Record):
    """What one room has done. Of `counts` one who may not erase everything is told those that
    depend on nobody else."""

    room: str
    counts: dict[str, int]


class ErasureRow(Record):
    """One erasure. `due_ns`: not begun before; `done_ns`: when the last room had done it. `waits`
    says what the last try failed at. Times are Unix nanoseconds."""

    id: str
    target: Target
    name: str
    cause: Literal["asked", "retention"]
    asked_ns: int
    due_ns: int
    rooms: list[RoomErased]
    done_ns: int | None = None
    waits: str | None = None


class Erasures(Record):
    """The erasures that are kept, oldest first."""

    erasures: list[ErasureRow]


class AskErasure(Record):
    """One erasure by its id. NotVisible."""

    id: str


class Retention(Record):
    """How long what was computed for `domain` is kept once nobody in it has authority: not at all,
    or for so many `seconds` (0 with `immediate`)."""

    domain: str
    policy: Policy
    seconds: int


class Retentions(Record):
    """What was set, by domain; `standard` holds for all others."""

    standard: Retention
    domains: list[Retention]


# Every room takes this one from the authority.
ORDER: Final[dict[str, Operation]] = {"erase": Operation(Erase, Erased, "erase")}
# Asked of the authority.
ASKED: Final[dict[str, Operation]] = {
    "request_erasure": Operation(RequestErasure, ErasureRow, "erase"),
    "erasure": Operation(AskErasure, ErasureRow, "erase"),
    "erasures": Operation(Empty, Erasures, "erase"),
    "set_retention": Operation(Retention, Retention, "operate"),
    "retentions": Operation(Empty, Retentions, "operate"),
}
