"""Which stored sequence a list of blocks continues, found without asking anyone.

A client that resends its whole history sends a list that shares a prefix with one that was stored
before. The lineage remembers, for every prefix of what was stored, a running digest and the root
that has it; so the longest known prefix is found by hashing the list once, and only what follows
it has to be sent to be stored. Memory, not identity: forgetting costs a larger message.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from protocol.ids import BlockId, NodeId


class Base(NamedTuple):
    """Keep the first `keep` blocks of the sequence under `root`; None: start from the empty one."""

    root: NodeId | None
    keep: int


class Lineage:
    """Remembers at most `prefixes_max` prefixes over all namespaces; the oldest used goes first."""

    def __init__(self, prefixes_max: int = 200_000) -> None:
        self._prefixes_max = prefixes_max
        self._digest_to_root: OrderedDict[bytes, NodeId] = OrderedDict()

    def find(self, namespace: str, blocks: Sequence[BlockId]) -> Base:
        """The longest known prefix of `blocks` in `namespace`."""
        digests = running_digests(namespace, blocks)
        for keep in range(len(digests), 0, -1):
            root = self._digest_to_root.get(digests[keep - 1])
            if root is not None:
                self._digest_to_root.move_to_end(digests[keep - 1])
                return Base(root, keep)
        return Base(None, 0)

    def remember(self, namespace: str, blocks: Sequence[BlockId], root: NodeId) -> None:
        """The sequence of `blocks` under `root` is in `namespace`, and each prefix with it."""
        for digest in running_digests(namespace, blocks):
            self._digest_to_root[digest] = root
            self._digest_to_root.move_to_end(digest)
        while len(self._digest_to_root) > self._prefixes_max:
            self._digest_to_root.popitem(last=False)

    def forget(self, namespace: str, blocks: Sequence[BlockId]) -> None:
        """Nothing is known of these prefixes any more: what they named was not there."""
        for digest in running_digests(namespace, blocks):
            self._digest_to_root.pop(digest, None)


def running_digests(namespace: str, blocks: Sequence[BlockId]) -> list[bytes]:
    """For each prefix of `blocks`, a digest of the namespace and the ids in it."""
    running = hashlib.sha256(namespace.encode("utf-8") + b"\0")
    digests = []
    for block in blocks:
        running.update(block.digest)
        digests.append(running.copy().digest())
    return digests
