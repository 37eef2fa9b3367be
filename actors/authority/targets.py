"""What an erasure takes: from what somebody names to the order that every room is given.

A principal goes with its namespace and its domain, as far as no other principal has them: what
others can see stays. Of a namespace everything goes, and what was computed for whoever works in it.
What the caller may not erase and what is not there are one answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from actors.authority.principals import PrincipalRecord
from actors.room import Call
from protocol.errors import ContentError, NotVisible, RecordError
from protocol.ids import parse_any
from protocol.messages.erasure import Erase, ErasureRow, RequestErasure
from protocol.publication import PUBLIC
from protocol.resource import ALL, Resource, ResourceKind, Right, path_covers

# What rooms count by the namespaces and the principals of an order, and what by its domains.
_OF_NAMESPACES: Final = frozenset(
    {
        *("keys", "kinds", "letters", "marks", "memberships"),
        *("namespaces", "principals", "sessions", "sources"),
    }
)
_OF_DOMAINS: Final = frozenset(("evidence", "receipts", "rows"))


def resolved(call: Call, ask: RequestErasure, records: Sequence[PrincipalRecord]) -> Erase:
    """The order for what `ask` names. Raises as `RequestErasure` says."""
    match ask.target:
        case "object":
            if ask.namespace is None:
                raise ContentError("an object is erased from a namespace: name it", param="target")
            parse_any(ask.name)
            return _of_namespace(call, ask.namespace, records, objects=[ask.name])
        case "namespace":
            return _of_namespace(call, ask.name, records, objects=None)
        case "principal":
            mine = [record for record in records if record.asked.name == ask.name]
        case "domain":
            if ask.name == PUBLIC:
                raise ContentError("what is public is withdrawn, block by block: huginn unpublish")
            mine = [record for record in records if record.asked.domain == ask.name]
            if not mine and _permits(call, Right.ERASE, ResourceKind.DOMAIN, ask.name):
                return _order(domains=[ask.name])
    if not mine or not all(_may_erase(call, record) for record in mine):
        raise NotVisible(f"no such {ask.target} in this view")
    return _of_principals(mine, records)


def _of_principals(mine: Sequence[PrincipalRecord], records: Sequence[PrincipalRecord]) -> Erase:
    for record in mine:
        if record.asked.administers:
            raise ContentError(
                f"{record.asked.name} administers this installation, which would be locked: erase "
                f"the namespace {record.asked.namespace} instead"
            )
    gone = {record.asked.name for record in mine}
    others = [r.asked for r in records if r.asked.name not in gone and not r.revoked]
    held = {other.domain for other in others}
    return _order(
        domains=sorted({record.asked.domain for record in mine} - held),
        namespaces=sorted({record.asked.namespace for record in mine}),
        spared=sorted({other.namespace for other in others}),
        principals=sorted(record.asked.public_key for record in mine),
        names=sorted(gone),
    )


def _of_namespace(
    call: Call, path: str, records: Sequence[PrincipalRecord], *, objects: list[str] | None
) -> Erase:
    if path_covers(PUBLIC, path):
        raise ContentError("what is public is withdrawn, block by block: huginn unpublish")
    if not _permits(call, Right.ERASE, ResourceKind.NAMESPACE, path):
        raise NotVisible("no such namespace in this view")
    reaching = {
        record.asked.domain
        for record in records
        if path_covers(record.asked.namespace, path) or path_covers(path, record.asked.namespace)
    }
    return _order(domains=sorted(reaching), namespaces=[path], objects=objects)


def _order(
    *,
    domains: Sequence[str] = (),
    namespaces: Sequence[str] = (),
    spared: Sequence[str] = (),
    principals: Sequence[bytes] = (),
    names: Sequence[str] = (),
    objects: list[str] | None = None,
) -> Erase:
    return Erase(
        domains=list(domains),
        namespaces=list(namespaces),
        spared=list(spared),
        principals=list(principals),
        names=list(names),
        objects=objects,
    )


def of_domain(domain: str) -> Erase:
    """The order to forget what was computed for `domain`, and nothing else."""
    return _order(domains=[domain])


def may_see(call: Call, order: Erase) -> bool:
    """Whether the caller may be told of this erasure: who may erase all that it took."""
    return all(
        _permits(call, Right.ERASE, ResourceKind.NAMESPACE, path) for path in order.namespaces
    ) and (
        bool(order.namespaces)
        or all(_permits(call, Right.ERASE, ResourceKind.DOMAIN, name) for name in order.domains)
    )


def shown(call: Call, order: Erase, row: ErasureRow) -> ErasureRow:
    """`row` with what of its counts the caller is told: who may not erase everything is told
    nothing that depends on others. So not which objects nobody else had, what a cache held, nor
    what was computed in a domain that a namespace lies in and that is not the caller's."""
    if call.handle.permits(Right.ERASE, ALL):
        return row
    told = _OF_NAMESPACES
    if all(_permits(call, Right.ERASE, ResourceKind.DOMAIN, name) for name in order.domains):
        told |= _OF_DOMAINS
    rooms = [
        structs.replace(
            room, counts={kind: count for kind, count in room.counts.items() if kind in told}
        )
        for room in row.rooms
    ]
    return structs.replace(row, rooms=rooms)


def _may_erase(call: Call, record: PrincipalRecord) -> bool:
    path = record.asked.namespace
    return _permits(call, Right.ERASE, ResourceKind.NAMESPACE, path) and (
        _is_own(call, record) or _permits(call, Right.REVOKE, ResourceKind.NAMESPACE, path)
    )


def _is_own(call: Call, record: PrincipalRecord) -> bool:
    """Whether it is the principal itself who asks. A handle that was given out has the principal's
    key at its root and another at its end, and whoever shows it may erase what lies there, not who
    gave it."""
    handle = call.handle
    return handle.principal == handle.audience == record.asked.public_key


def _permits(call: Call, right: Right, kind: ResourceKind, name: str) -> bool:
    """Whether the handle permits it. A text that is no name names nothing."""
    try:
        return call.handle.permits(right, Resource(kind=kind, name=name))
    except RecordError:
        return False
