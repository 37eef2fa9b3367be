"""What is public: the blocks that are members of the namespace `public`, and nothing else.

A published block lies there with its content, so being public survives a restart as any object
does. A content that two public blocks share goes with the last of them. What is here is mirrored in
memory, because every commit asks it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future

from protocol.blocks import ContextBlock
from protocol.errors import HuginnError, LimitExceeded, NotVisible
from protocol.ids import BlockId, ObjectId, TextId
from protocol.messages.ropes import Publication
from protocol.publication import PUBLIC, PUBLICATIONS_MAX
from protocol.record import decode_record, encode_record
from store.objects import ObjectStore

log = logging.getLogger("huginn.ropes")


class PublicBlocks:
    """The public blocks of `store`, at most `blocks_max`. Used in one event loop, by one change at
    a time."""

    def __init__(self, store: ObjectStore, *, blocks_max: int = PUBLICATIONS_MAX) -> None:
        self._store = store
        self._blocks_max = blocks_max
        self._shown: dict[BlockId, Publication] = {}
        self._contents: dict[BlockId, ObjectId] = {}
        for member in store.list_members(PUBLIC):
            if isinstance(member, BlockId):
                self._load(member)

    def _load(self, member: BlockId) -> None:
        try:
            block = decode_record(ContextBlock, self._store.get((PUBLIC,), member))
            content = self._store.get((PUBLIC,), block.source.object)
        except HuginnError as error:
            # What cannot be read is public to nobody: its sequences are derived privately.
            log.warning("%s is taken for private: %s", member, error.message)
            return
        self.add(block, len(content))

    def __contains__(self, block: BlockId) -> bool:
        return block in self._shown

    def __len__(self) -> int:
        return len(self._shown)

    def rows(self) -> list[Publication]:
        """All of them, in the order of their ids."""
        return [self._shown[block] for block in sorted(self._shown)]

    def leading(self, blocks: Iterable[BlockId]) -> int:
        """How many of `blocks`, from the first on, are public. Looks at one more than that."""
        count = 0
        for block in blocks if self._shown else ():
            if block not in self._shown:
                break
            count += 1
        return count

    def store_soon(self, block: ContextBlock, content: bytes) -> Future[None]:
        """Store the block as public; the caller then adds it. LimitExceeded if there are too many
        already."""
        body = encode_record(block)
        found = BlockId.of(body)
        if found not in self._shown and len(self._shown) >= self._blocks_max:
            raise LimitExceeded(
                f"{len(self._shown)} blocks are public, the most there are: withdraw one first"
            )
        objects: list[tuple[ObjectId, bytes]] = [(TextId.of(content), content), (found, body)]
        return self._store.put_many_soon(PUBLIC, objects)

    def add(self, block: ContextBlock, content_bytes: int) -> Publication:
        """The block is stored as public."""
        found = BlockId.of(encode_record(block))
        self._contents[found] = block.source.object
        self._shown[found] = Publication(
            block=found,
            role=block.role.value,
            type=block.type.value,
            content_bytes=content_bytes,
            name=block.name,
        )
        return self._shown[found]

    def remove(self, block: BlockId) -> Publication:
        """Make the block private again, durably. Raises NotVisible if it is not public."""
        if block not in self._shown:
            raise NotVisible(f"{block} is not public")
        content = self._contents[block]
        shared = any(other != block and held == content for other, held in self._contents.items())
        self._store.remove_membership(PUBLIC, [block] if shared else [block, content])
        del self._contents[block]
        return self._shown.pop(block)
