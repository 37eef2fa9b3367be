"""Chain verification: from bytes to a handle, or the step that refused.

The order, cheap before costly, each step an error of its own (`CapabilityError.step`):

    size         at most 8 × 4096 bytes together
    decode       each link is one signed capability, strictly decoded as received
    length       1 to 8 links
    anchor       the root is issued by a configured anchor, for itself, with no parent
    signature    every link verifies under the key that it states as issuer
    key, alignment, subject, parent
                 every audience is a sound key; each link is issued by the audience of the one
                 before it, for the same root authority, naming it by hash
    attenuation  .rights .resource .caveats .times .depth: nothing is wider than its parent
    time         every link holds now
    revocation   no link is revoked, by its id or by its issuer

A verdict may be cached (`ChainCache`), an invocation never. Source: AUT-1, authority design.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Final

from protocol.capability import (
    CAPABILITY_CONTEXT,
    Capability,
    Link,
    check_alignment,
    check_attenuation,
    check_audience,
    decode_link,
)
from protocol.caveats import Scope
from protocol.errors import CapabilityError
from protocol.handle import Handle
from protocol.ids import CapabilityId
from protocol.limits import CAPABILITY_BYTES_MAX, CHAIN_LINKS_MAX
from protocol.signing import verify

# Answers whether a link is revoked, by its id, its issuer, or its audience. `nbf_ns` is the
# issuer's own word: revoking a lost key has to ignore it. If it raises, nothing is verified.
IsRevoked = Callable[[CapabilityId, Capability], bool]

_CHAIN_BYTES_MAX: Final = CHAIN_LINKS_MAX * CAPABILITY_BYTES_MAX


def verify_chain(
    chain: Sequence[bytes], anchors: Collection[bytes], now_ns: int, is_revoked: IsRevoked
) -> Handle:
    """The handle that `chain` (root first) stands for at `now_ns`, Unix time.

    `anchors` are the 32-byte public keys whose word counts. Raises CapabilityError with the
    first step, in the order above, that does not hold.
    """
    links = _sound_links(chain, anchors)
    _check_current(links, now_ns, is_revoked)
    return _handle(links)


def _sound_links(chain: Sequence[bytes], anchors: Collection[bytes]) -> tuple[Link, ...]:
    """The steps whose answer never changes about the same bytes: size to attenuation."""
    _check_size(chain)
    links = tuple(decode_link(data) for data in chain)
    if not 1 <= len(links) <= CHAIN_LINKS_MAX:
        raise CapabilityError("length", f"{len(links)} links, 1 to {CHAIN_LINKS_MAX} are allowed")
    root = links[0].capability
    if root.iss not in anchors or root.sub != root.iss or root.parent is not None:
        raise CapabilityError("anchor", "the first link is not an anchor's own grant")
    for link in links:
        if not verify(link.capability.iss, CAPABILITY_CONTEXT + link.payload, link.signature):
            raise CapabilityError("signature", f"{link.id} is not signed by its issuer")
    for link in links:
        check_audience(link.capability)
    for parent, child in pairwise(links):
        check_alignment(parent.id, parent.capability, child.capability)
    for parent, child in pairwise(links):
        check_attenuation(parent.capability, child.capability)
    return links


def _check_size(chain: Sequence[bytes]) -> None:
    size = sum(map(len, chain))
    if size > _CHAIN_BYTES_MAX:
        raise CapabilityError("size", f"a chain of {size} bytes, at most {_CHAIN_BYTES_MAX}")


def _check_current(links: Sequence[Link], now_ns: int, is_revoked: IsRevoked) -> None:
    for link in links:
        if not link.capability.nbf_ns <= now_ns < link.capability.exp_ns:
            raise CapabilityError(
                "time",
                f"{link.id} holds in [{link.capability.nbf_ns}, {link.capability.exp_ns}), "
                f"now is {now_ns}",
            )
    for link in links:
        if is_revoked(link.id, link.capability):
            raise CapabilityError("revocation", f"{link.id} is revoked, or its issuer is")


def _handle(links: Sequence[Link]) -> Handle:
    root, leaf = links[0].capability, links[-1].capability
    return Handle(
        lineage=tuple(link.id for link in links),
        root=root.iss,
        principal=root.aud,
        audience=leaf.aud,
        resource=leaf.res,
        rights=frozenset(leaf.rights),
        # The leaf repeats every caveat above it, so its own are all of them.
        scope=Scope.of(leaf.caveats),
        nbf_ns=leaf.nbf_ns,
        exp_ns=leaf.exp_ns,
    )


class ChainCache:
    """`verify_chain` that remembers what it verified.

    What cannot change about given bytes is remembered: size to attenuation. Time and revocation
    are checked on each use, and a new authority epoch forgets everything. Refusals are not
    remembered. Keyed by a digest of all the bytes, so a changed signature is another chain.
    """

    def __init__(self, anchors: Collection[bytes], *, entries_max: int = 4096) -> None:
        """`entries_max`: chains remembered, at about 5 KB each; the least recently used goes."""
        self._anchors = frozenset(anchors)
        self._entries_max = entries_max
        self._epoch: int | None = None
        self._entries: OrderedDict[bytes, tuple[tuple[Link, ...], Handle]] = OrderedDict()

    def verify(
        self, chain: Sequence[bytes], *, now_ns: int, epoch: int, is_revoked: IsRevoked
    ) -> Handle:
        """As `verify_chain`, at the authority's `epoch`."""
        if epoch != self._epoch:
            self._entries.clear()
            self._epoch = epoch
        _check_size(chain)
        key = _chain_digest(chain)
        entry = self._entries.get(key)
        if entry is None:
            links = _sound_links(chain, self._anchors)
            entry = links, _handle(links)
            self._entries[key] = entry
            if len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(key)
        links, handle = entry
        _check_current(links, now_ns, is_revoked)
        return handle

    def __len__(self) -> int:
        return len(self._entries)


def _chain_digest(chain: Sequence[bytes]) -> bytes:
    digest = hashlib.sha256()
    for link in chain:
        digest.update(len(link).to_bytes(4, "big"))
        digest.update(link)
    return digest.digest()
