"""Handles that principals gave out below their own: on record, listed, and taken back.

A handle needs no record to hold: whoever has one can give out less of it without asking anybody.
Telling the authority makes it one that its giver can find again; taking back works for every
handle below the giver's own, told of or not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile

from actors.authority.audit import AUDIT, audit_entry
from actors.ports import Clock
from protocol.capability import Link, decode_link
from protocol.chain import IsRevoked, verify_chain
from protocol.errors import ContentError, NotVisible
from protocol.handle import Handle
from protocol.ids import CapabilityId
from protocol.messages.authority import HandedOut, HandedRow
from protocol.record import Record, decode_record, encode_record
from store.commit import settled
from store.tables import Append, Change, Delete, Put, Tables

_TABLE = "delegations"


class _Kept(Record):
    """One handle on record, and when it was told of (Unix time)."""

    chain: list[bytes]
    told_ns: int


class Delegations:
    """The keyed table `delegations` of `tables`, by the id of the last link."""

    def __init__(self, tables: Tables, anchor: bytes, clock: Clock, is_revoked: IsRevoked) -> None:
        self._tables = tables
        self._kept = tables.keyed(_TABLE)
        self._anchors = frozenset((anchor,))
        self._clock = clock
        self._is_revoked = is_revoked

    async def tell(self, caller: Handle, chain: Sequence[bytes]) -> HandedRow:
        """Put `chain` on record. Raises CapabilityError for one that does not hold now, NotVisible
        for one that does not lie below the caller's own."""
        links = self._verified(caller, chain)
        leaf = links[-1].id
        kept = _Kept(chain=list(chain), told_ns=self._clock.wall_ns())
        if self._kept.get(leaf.digest) is None:
            rights = [right.value for right in links[-1].capability.rights]
            entry = audit_entry(self._clock, "delegate", str(leaf), rights)
            put = Put(_TABLE, leaf.digest, encode_record(kept))
            await settled(self._tables.apply_soon([put, Append(AUDIT, entry)]))
        return self._row(links)

    def rows(self, caller: Handle) -> HandedOut:
        """What is on record below the caller's own handle, in the order of telling."""
        rows = []
        for _, value in self._kept.items():
            links = [decode_link(link) for link in decode_record(_Kept, value).chain]
            if _lies_below(caller, links):
                rows.append(self._row(links))
        return HandedOut(handles=rows)

    async def take_back(
        self, caller: Handle, leaf: CapabilityId | None, chain: Sequence[bytes] | None
    ) -> CapabilityId:
        """Revoke the handle `leaf` that is on record, or `chain`, and so all below it; its id.
        Raises as `tell` does, and NotVisible for an id that is not on record below the caller's
        own."""
        if (leaf is None) == (chain is None):
            raise ContentError("name a handle by its id, or give it whole")
        if chain is None:
            found = None if leaf is None else self._kept.get(leaf.digest)
            if found is None:
                raise NotVisible("no such handle in this view")
            chain = decode_record(_Kept, found).chain
            links = [decode_link(link) for link in chain]
            if not _lies_below(caller, links):
                raise NotVisible("no such handle in this view")
        else:
            links = self._verified(caller, chain)
        taken = links[-1].id
        if not self._is_revoked(taken, links[-1].capability):
            entry = audit_entry(self._clock, "revoke", str(taken))
            put = Put("revoked", taken.digest, b"")
            await settled(self._tables.apply_soon([put, Append(AUDIT, entry)]))
        return taken

    def _verified(self, caller: Handle, chain: Sequence[bytes]) -> list[Link]:
        verify_chain(chain, self._anchors, self._clock.wall_ns(), self._is_revoked)
        links = [decode_link(link) for link in chain]
        if not _lies_below(caller, links):
            raise NotVisible("no such handle in this view")
        return links

    def _row(self, links: Sequence[Link]) -> HandedRow:
        leaf = links[-1].capability
        revoked = any(self._is_revoked(link.id, link.capability) for link in links)
        return HandedRow(
            id=links[-1].id,
            audience=leaf.aud,
            resource=str(leaf.res),
            rights=[right.value for right in leaf.rights],
            nbf_ns=leaf.nbf_ns,
            exp_ns=leaf.exp_ns,
            links=len(links),
            revoked=revoked,
        )


def _lies_below(caller: Handle, links: Sequence[Link]) -> bool:
    """Whether the caller gave the handle out, or gave out one that it lies below.

    The caller's chain ends with the link that it made for this message alone, so what is its own
    is all but that. The link after what both have in common has to be signed by the caller's key:
    a gateway signs for many, and what these have in common is less.
    """
    both = zip(caller.lineage, (link.id for link in links), strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
    own = max(1, len(caller.lineage) - 1)
    return own <= common < len(links) and links[common].capability.iss == caller.audience


def drop_below(tables: Tables, principals: Collection[bytes]) -> list[Change]:
    """The changes that forget what was given out below the handles of these principals (keys)."""
    rows = [(key, decode_record(_Kept, value)) for key, value in tables.keyed(_TABLE).items()]
    return [
        Delete(_TABLE, key)
        for key, kept in rows
        if decode_link(kept.chain[0]).capability.aud in principals
    ]
