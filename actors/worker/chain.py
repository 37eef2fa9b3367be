"""State chains: the name of a prefix state is everything that was fed to make it.

    chain_k = ChainId of CBOR [profile digest, digest of chain_(k-1) (b"" for k = 1), packed ids k]

where advance k is the k-th piece of the schedule. Two prefixes share a chain only if one profile
was fed the same ids in the same pieces; grammars, blocks and names do not enter (KV-1).
"""

from __future__ import annotations

from collections.abc import Iterable

from actors.worker.schedule import Advance
from protocol import cbor
from protocol.ids import ChainId, ProfileId
from protocol.tokens import TokenIds, pack


def next_chain(profile: ProfileId, previous: ChainId | None, ids: TokenIds) -> ChainId:
    """The chain after feeding `ids` in one advance to the state `previous` (None: an empty one)."""
    before = b"" if previous is None else previous.digest
    return ChainId.of(cbor.encode([profile.digest, before, pack(ids)]))


def chains(profile: ProfileId, advances: Iterable[Advance]) -> list[ChainId]:
    """The chain after each of `advances`, fed in order to an empty state."""
    found: list[ChainId] = []
    previous: ChainId | None = None
    for advance in advances:
        previous = next_chain(profile, previous, advance.ids)
        found.append(previous)
    return found
