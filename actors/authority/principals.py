"""The principals of an installation: granted, listed and revoked, each durably and on the record.

Every principal gets a handle on its own namespace, in its own computation-sharing domain. One who
administers gets a second handle, on everything, which can grant, revoke, erase, operate and see
telemetry but read nothing: running a machine is no licence to read on it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from actors.authority.audit import AUDIT, audit_entry
from actors.ports import Clock, Entropy
from protocol.capability import decode_link, issue
from protocol.caveats import Caveat, DomainCaveat, ProfileCaveat, TelemetryCaveat
from protocol.errors import Conflict, ContentError, NotVisible
from protocol.limits import CAPABILITY_LIFETIME_NS_MAX
from protocol.messages.authority import Enroll, Enrolled, PrincipalRow, Revocations
from protocol.publication import PUBLIC
from protocol.record import Record, decode_record, encode_record
from protocol.resource import ALL, Resource, ResourceKind, Right, path_covers
from protocol.signing import NONCE_BYTES, Signer
from store.commit import settled
from store.tables import Append, Put, Tables

ADMIN_RIGHTS: Final = frozenset(
    (Right.ERASE, Right.GRANT, Right.OPERATE, Right.REVOKE, Right.TELEMETRY)
)
# What a handle on a namespace may carry: administering is not done under one.
NAMESPACE_RIGHTS: Final = frozenset(Right) - {Right.GRANT, Right.OPERATE, Right.REVOKE}


class PrincipalRecord(Record):
    """One principal as kept: what was asked for, the handles given, and whether they still hold.

    `earlier`: the ids of links given before these. They hold until their own end, or until the
    principal is revoked: renewing a handle takes nothing back.
    """

    asked: Enroll
    chain: list[bytes]
    revoked: bool
    admin_chain: list[bytes] | None = None
    earlier: list[bytes] | None = None

    def ids(self) -> list[bytes]:
        """The ids (32 bytes) of every link that was given and is not known to be revoked."""
        links = self.chain + (self.admin_chain or [])
        return [*(self.earlier or []), *(decode_link(link).id.digest for link in links)]


class Principals:
    """Principals, revocations and the audit log in `tables`. `root` signs every first link."""

    def __init__(self, tables: Tables, root: Signer, clock: Clock, entropy: Entropy) -> None:
        self._tables = tables
        self._records = tables.keyed("principals")
        self._revoked = tables.keyed("revoked")
        self._root = root
        self._clock = clock
        self._entropy = entropy

    def revocations(self) -> Revocations:
        """All that is revoked. The epoch is their number: it only grows."""
        revoked = sorted(key for key, _ in self._revoked.items())
        return Revocations(epoch=len(revoked), revoked=revoked)

    def rows(self) -> list[PrincipalRow]:
        """Every principal, in the order of first enrolment."""
        rows = []
        for _, value in self._records.items():
            record = decode_record(PrincipalRecord, value)
            rows.append(
                PrincipalRow(
                    name=record.asked.name,
                    public_key=record.asked.public_key,
                    namespace=record.asked.namespace,
                    domain=record.asked.domain,
                    rights=sorted(record.asked.rights),
                    revoked=record.revoked,
                )
            )
        return rows

    async def enroll(self, ask: Enroll) -> Enrolled:
        """The handles of the principal that `ask` describes, granted now or given again.

        Raises Conflict if the name is another key's, ContentError for an unknown right, a right
        that no namespace handle carries, what is public, or a lifetime out of range.
        """
        key = ask.name.encode("utf-8")
        found = self._records.get(key)
        earlier = None
        if found is not None:
            kept = decode_record(PrincipalRecord, found)
            earlier = None if kept.revoked else kept.ids()
            if not kept.revoked and kept.asked.public_key != ask.public_key:
                raise Conflict(
                    f"a principal {ask.name!r} exists with another key: revoke it first, "
                    "or choose another name"
                )
            if not kept.revoked and kept.asked == ask and self._holds(kept):
                return _enrolled(kept)
        record = self._grant(ask, earlier)
        await settled(
            self._tables.apply_soon(
                [
                    Put("principals", key, encode_record(record)),
                    Append(
                        AUDIT,
                        audit_entry(self._clock, "grant", ask.name, rights=sorted(ask.rights)),
                    ),
                ]
            )
        )
        return _enrolled(record)

    async def revoke(self, name: str) -> Revocations:
        """Revoke every handle of `name`; what is revoked now. Raises NotVisible."""
        key = name.encode("utf-8")
        found = self._records.get(key)
        if found is None:
            raise NotVisible(f"no principal {name!r:.80}")
        kept = decode_record(PrincipalRecord, found)
        record = msgspec.structs.replace(kept, revoked=True)
        await settled(
            self._tables.apply_soon(
                [
                    *(Put("revoked", revoked, b"") for revoked in kept.ids()),
                    Put("principals", key, encode_record(record)),
                    Append(AUDIT, audit_entry(self._clock, "revoke", name)),
                ]
            )
        )
        return self.revocations()

    def _holds(self, kept: PrincipalRecord) -> bool:
        """Whether what was given earlier has at least half of its lifetime left, and the rights
        that it would have now."""
        link = decode_link(kept.chain[0]).capability
        admin = None if kept.admin_chain is None else decode_link(kept.admin_chain[0]).capability
        if admin is not None and frozenset(admin.rights) != ADMIN_RIGHTS:
            return False
        return self._clock.wall_ns() < (link.nbf_ns + link.exp_ns) // 2

    def _grant(self, ask: Enroll, earlier: list[bytes] | None) -> PrincipalRecord:
        rights = frozenset(_right(name) for name in ask.rights)
        if rights - NAMESPACE_RIGHTS:
            wrong = ", ".join(sorted(right.value for right in rights - NAMESPACE_RIGHTS))
            raise ContentError(f"rights that no namespace handle carries: {wrong}")
        if path_covers(PUBLIC, ask.namespace) or ask.domain == PUBLIC:
            raise ContentError(
                f"the namespace and the domain {PUBLIC!r} are everybody's: choose other names"
            )
        if not 0 < ask.lifetime_ns <= CAPABILITY_LIFETIME_NS_MAX:
            raise ContentError(
                f"lifetime_ns {ask.lifetime_ns} is not in 1 … {CAPABILITY_LIFETIME_NS_MAX}"
            )
        caveats: list[Caveat] = [DomainCaveat(name=ask.domain)]
        if ask.profiles:
            caveats.append(ProfileCaveat(names=tuple(sorted(set(ask.profiles)))))
        if ask.telemetry:
            caveats.append(TelemetryCaveat(names=tuple(sorted(set(ask.telemetry)))))
        path = Resource(kind=ResourceKind.NAMESPACE, name=ask.namespace)
        return PrincipalRecord(
            asked=ask,
            chain=self._issue(ask, path, rights, caveats),
            admin_chain=self._issue(ask, ALL, ADMIN_RIGHTS, []) if ask.administers else None,
            revoked=False,
            earlier=earlier,
        )

    def _issue(
        self, ask: Enroll, resource: Resource, rights: frozenset[Right], caveats: list[Caveat]
    ) -> list[bytes]:
        now_ns = self._clock.wall_ns()
        return list(
            issue(
                self._root,
                audience=ask.public_key,
                resource=resource,
                rights=rights,
                caveats=caveats,
                nbf_ns=now_ns,
                exp_ns=now_ns + ask.lifetime_ns,
                nonce=self._entropy.draw(NONCE_BYTES),
            )
        )


def _right(name: str) -> Right:
    try:
        return Right(name)
    except ValueError as error:
        known = ", ".join(right.value for right in Right)
        raise ContentError(f"{name!r:.40} is not a right; the rights are {known}") from error


def _enrolled(record: PrincipalRecord) -> Enrolled:
    return Enrolled(name=record.asked.name, chain=record.chain, admin_chain=record.admin_chain)
