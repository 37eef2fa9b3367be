"""Handles shown in place of an API key.

A principal can give out less of what it holds without asking anybody: a handle whose last link
names this gateway's key. Whoever shows it acts as that principal as far as the handle goes, and
the gateway signs for it while its request is here. The rooms verify the chain as they do every
other; here it is verified so that a stranger is told nothing, and to find whose it is.
"""

from __future__ import annotations

import msgspec

from actors.gateway.keys import ApiKeys, KeyHolder, KeyRow
from protocol.capability import Capability, decode_link
from protocol.caveats import Scope
from protocol.chain import ChainCache, IsRevoked
from protocol.errors import CapabilityError
from protocol.handle_text import HANDLE_PREFIX, decode_handle
from protocol.ids import CapabilityId
from protocol.resource import ResourceKind
from protocol.signing import Signer


class PresentedHandles:
    """Handles for the key of `signer`, the gateway's own, under `anchors`."""

    def __init__(self, signer: Signer, anchors: frozenset[bytes], keys: ApiKeys) -> None:
        self._signer = signer
        self._chains = ChainCache(anchors)
        self._keys = keys
        # What the authority announced as revoked; the gateway's room says.
        self.is_revoked: IsRevoked = _nobody

    @staticmethod
    def is_one(text: str) -> bool:
        """Whether `text` looks like a handle, not like an API key."""
        return text.startswith(HANDLE_PREFIX)

    def find(self, text: str, now_ns: int) -> KeyHolder | None:
        """Who shows the handle in `text`; None for one that does not hold at `now_ns` (Unix time),
        that is not for this gateway, or whose principal has no key here any more."""
        try:
            chain = decode_handle(text)
            self._chains.verify(chain, now_ns=now_ns, epoch=0, is_revoked=self.is_revoked)
        except CapabilityError:
            return None
        leaf = decode_link(chain[-1]).capability
        row = self._keys.of(decode_link(chain[0]).capability.aud)
        if leaf.aud != self._signer.public or row is None:
            return None
        return KeyHolder(_row(row, chain, leaf), self._signer)


def _row(row: KeyRow, chain: tuple[bytes, ...], leaf: Capability) -> KeyRow:
    """The principal's row as far as the handle goes: it never administers."""
    path = leaf.res.name if leaf.res.kind is ResourceKind.NAMESPACE else None
    # A caveat may leave less than the resource says: then that is where it works.
    paths = Scope.of(leaf.caveats).namespaces
    if paths and len(paths[-1]) == 1:
        path = paths[-1][0]
    return msgspec.structs.replace(
        row, chain=list(chain), namespace=path or row.namespace, admin_chain=None
    )


def _nobody(_id: CapabilityId, _capability: Capability) -> bool:
    return False
