"""The ropes room: here is the root after your edit, and here is what it is made of.

It owns the object store. It is blind to prompts and models: a block is an object with a content,
an assembly a record of ids. Everything is read through the handle's view, and what lies outside it
answers like what does not exist, down the same path (AUT-3, I-VIEW). A commit stores contents,
blocks, nodes, the sequence and its assembly in one transaction, and is durable when answered.

It also says which blocks are public: those that the operator published, members of a namespace that
is nobody's but this room's. A commit's answer tells how many of the sequence's first blocks are. A
publication is durable when it is answered; a withdrawal is answered when the workers that run have
given up what they held of it, and one that does not run asks when it starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from itertools import chain
from typing import Final

from actors.room import Call, Room, World
from actors.ropes.erasure import erase_objects
from actors.ropes.publications import PublicBlocks
from actors.ropes.tree import tree_nodes
from protocol.assembly import SEQUENCE_CONTRACT_ID, ContextSequence, sequence_of
from protocol.blocks import ContextBlock
from protocol.errors import ContentError, NotVisible, Unavailable
from protocol.ids import (
    BlockId,
    ContextId,
    NodeId,
    ObjectId,
    SequenceId,
    TextId,
    parse_any,
)
from protocol.limits import CONTENT_BYTES_MAX
from protocol.messages import Empty
from protocol.messages import ropes as messages
from protocol.messages.erasure import Erase
from protocol.publication import PUBLIC
from protocol.record import decode_record, encode_record
from protocol.resource import Resource, ResourceKind, Right, path_covers
from protocol.rope.node import EMPTY_BYTES, EMPTY_ID
from protocol.rope.node import Entry as RopeEntry
from protocol.rope.read import NodeSource
from protocol.rope.tree import Rope
from store.commit import settled
from store.objects import ObjectStore, View

log = logging.getLogger("huginn.ropes")

# (view, block) → bytes of content, so that a long history is not read again to be measured.
_LENGTHS_MAX: Final = 200_000

_PUBLIC_DOMAIN: Final = Resource(kind=ResourceKind.DOMAIN, name=PUBLIC)
_WORKER: Final = "worker"
# Between two tries of a worker that runs and takes no message now.
_PAUSES_S: Final = (0.1, 0.5)

NOT_VISIBLE: Final = "no such object in this view"


class RopesRoom(Room):
    """Owns `store`; closes it when drained."""

    operations = messages.OPERATIONS

    def __init__(
        self, world: World, store: ObjectStore, *, lengths_max: int = _LENGTHS_MAX
    ) -> None:
        super().__init__("ropes", world)
        self._store = store
        self._lengths_max = lengths_max
        self._lengths: OrderedDict[tuple[str, BlockId], int] = OrderedDict()
        self._public = PublicBlocks(store)
        # One change of what is public at a time, from the store to the workers.
        self._publishing = asyncio.Lock()

    async def drain(self) -> None:
        self._store.close()

    # -- what a handle may see ---------------------------------------------------------------

    def _view(self, call: Call) -> View:
        """The namespaces that this handle reads: those that exist and that it covers."""
        root = call.namespace_root()
        return tuple(
            namespace
            for namespace in ([] if root is None else self._store.list_namespaces(root))
            if call.handle.permits(
                Right.READ, Resource(kind=ResourceKind.NAMESPACE, name=namespace)
            )
        )

    def _own(self, call: Call, namespace: str) -> str:
        """`namespace`, if the handle may write there; NotVisible otherwise. What is public is
        published, never committed."""
        wanted = Resource(kind=ResourceKind.NAMESPACE, name=namespace)
        if not call.handle.permits(Right.WRITE, wanted) or path_covers(PUBLIC, namespace):
            raise NotVisible(NOT_VISIBLE)
        return namespace

    def _rope(self, view: View, root: NodeId) -> Rope:
        return Rope(root, self._source(view))

    def _source(self, view: View) -> NodeSource:
        def read(node: NodeId) -> bytes:
            # The empty sequence is everybody's and nobody's: it need not be stored to be there.
            return EMPTY_BYTES if node == EMPTY_ID else self._store.get(view, node)

        return read

    async def erase(self, ask: Erase) -> dict[str, int]:
        self._lengths.clear()
        return await asyncio.to_thread(erase_objects, self._store, ask)

    # -- operations --------------------------------------------------------------------------

    async def on_get(self, call: Call, ask: messages.GetObjects) -> messages.Objects:
        ids = [parse_any(text) for text in ask.ids]
        bodies = self._store.get_many(self._view(call), ids)
        return messages.Objects(
            objects=[
                messages.StoredObject(id=text, body=body)
                for text, body in zip(ask.ids, bodies, strict=True)
            ]
        )

    async def on_commit(self, call: Call, ask: messages.Commit) -> messages.Committed:
        namespace = self._own(call, ask.namespace)
        view = self._view(call)
        objects, lengths = _new_blocks(ask.blocks)
        entries = self._entries(namespace, view, ask.entries, lengths)
        rope = self._rope(view, ask.base or EMPTY_ID)
        if ask.keep > rope.count:
            raise ContentError(
                f"keep {ask.keep} of a base of {rope.count} blocks: name a longer base, or fewer",
                keep=ask.keep,
                blocks=rope.count,
            )
        edit = rope.splice(ask.keep, rope.count, entries)
        objects.extend(edit.nodes.items())
        sequence = sequence_of(edit.root)
        sequence_bytes = encode_record(sequence)
        sequence_id = SequenceId.of(sequence_bytes)
        objects.append((sequence_id, sequence_bytes))
        context: ContextId | None = None
        if ask.assembly is not None:
            assembly_bytes = encode_record(ask.assembly.over(sequence_id))
            context = ContextId.of(assembly_bytes)
            objects.append((context, assembly_bytes))
        await settled(self._store.put_many_soon(namespace, objects))
        for block, length in lengths.items():
            self._remember(namespace, block, length)
        return messages.Committed(
            root=edit.root,
            sequence=sequence_id,
            context=context,
            blocks=ask.keep + len(entries),
            amplification_nodes=len(edit.nodes),
            # Asked now: it holds for the answer, not for when the question came.
            public=self._public.leading(
                entry.block for entry in chain(rope.entries(0, ask.keep), entries)
            )
            or None,
        )

    async def on_read(self, call: Call, ask: messages.ReadSequence) -> messages.SequenceBlocks:
        view = self._view(call)
        rope = self._rope(view, self._root(view, ask.sequence))
        entries = list(rope.entries(ask.start, ask.stop))
        blocks = self._blocks(view, [entry.block for entry in entries])
        return messages.SequenceBlocks(root=rope.root, count=rope.count, blocks=blocks)

    async def on_tree(self, call: Call, ask: messages.ReadTree) -> messages.Tree:
        view = self._view(call)
        root = self._root(view, ask.sequence)
        nodes = tree_nodes(root, self._source(view))
        return messages.Tree(root=root, nodes=nodes)

    # -- what is public ----------------------------------------------------------------------

    async def on_publish(self, call: Call, ask: messages.Publish) -> messages.Publication:
        """Durable when answered; again is once."""
        call.handle.require(Right.OPERATE, _PUBLIC_DOMAIN)
        _new_blocks([messages.NewBlock(block=ask.block, content=ask.content)])
        async with self._publishing:
            await settled(self._public.store_soon(ask.block, ask.content))
            published = self._public.add(ask.block, len(ask.content))
            await self._announce()
        log.info("%s is public: %d bytes", published.block, published.content_bytes)
        return published

    async def on_withdraw(self, call: Call, ask: messages.Withdraw) -> messages.Publication:
        """Raises what a worker raises that could not delete its pages: asked again, it tries
        again."""
        call.handle.require(Right.OPERATE, _PUBLIC_DOMAIN)
        async with self._publishing:
            try:
                withdrawn = self._public.remove(ask.block)
            finally:
                # Also if it is gone: whoever asks again may not have been told that it worked.
                await self._announce()
        log.info("%s is not public any more", withdrawn.block)
        return withdrawn

    async def on_publications(self, call: Call, ask: Empty) -> messages.Publications:
        return messages.Publications(blocks=self._public.rows())

    async def _announce(self) -> None:
        """Have every worker that runs ask what is public now, and wait until it has acted on it."""
        for room in sorted(self.world.room_to_key):
            if room.startswith(_WORKER):
                await self.tell(room)

    async def tell(self, room: str) -> None:
        """Have the worker `room` ask what is public; one that does not run does so when it starts.
        Raises what one raises that runs and did not take it, or cannot give up what it held: then
        nothing is told as done that is not."""
        for pause_s in _PAUSES_S:
            try:
                await self.tell_running(room, "publications", Empty())
                return
            except Unavailable as error:
                log.info("the %s room is told again what is public: %s", room, error)
                await asyncio.sleep(pause_s)
        await self.tell_running(room, "publications", Empty())

    # -- reading -----------------------------------------------------------------------------

    def _root(self, view: View, sequence: SequenceId) -> NodeId:
        record = decode_record(ContextSequence, self._store.get(view, sequence))
        if record.sequence_contract != SEQUENCE_CONTRACT_ID:
            raise ContentError(f"{sequence} is of another sequence contract than this build reads")
        return record.root

    def _blocks(self, view: View, ids: Sequence[BlockId]) -> list[messages.NewBlock]:
        distinct = list(dict.fromkeys(ids))
        bodies = self._store.get_many(view, distinct)
        blocks = [decode_record(ContextBlock, body) for body in bodies]
        contents = self._store.get_many(view, [block.source.object for block in blocks])
        read = {
            block_id: messages.NewBlock(block=block, content=content)
            for block_id, block, content in zip(distinct, blocks, contents, strict=True)
        }
        return [read[block_id] for block_id in ids]

    # -- checking an edit --------------------------------------------------------------------

    def _entries(
        self,
        namespace: str,
        view: View,
        entries: Sequence[messages.Entry],
        new: dict[BlockId, int],
    ) -> list[RopeEntry]:
        """The edit's entries, each with the length that its content really has.

        A block that is not new must be in the view: otherwise a sequence could be made to hold
        what its maker may not see.
        """
        old = [entry.block for entry in entries if entry.block not in new]
        if not all(self._store.has_many(view, old)):
            raise NotVisible(NOT_VISIBLE)
        # Kept beside what is remembered, which an edit longer than it would push out again.
        lengths = dict(new)
        unknown = []
        for block in old:
            remembered = self._lengths.get((namespace, block))
            if remembered is None:
                unknown.append(block)
            else:
                lengths[block] = remembered
        for block, read in zip(unknown, self._blocks(view, unknown), strict=True):
            lengths[block] = len(read.content)
            self._remember(namespace, block, len(read.content))
        checked: list[RopeEntry] = []
        for entry in entries:
            length = lengths[entry.block]
            if entry.content_bytes != length:
                raise ContentError(
                    f"{entry.block} holds {length} bytes of content, not {entry.content_bytes}"
                )
            checked.append(RopeEntry(entry.block, length))
        return checked

    def _remember(self, namespace: str, block: BlockId, length: int) -> None:
        self._lengths[namespace, block] = length
        if len(self._lengths) > self._lengths_max:
            self._lengths.popitem(last=False)


def _new_blocks(
    blocks: Sequence[messages.NewBlock],
) -> tuple[list[tuple[ObjectId, bytes]], dict[BlockId, int]]:
    """The objects that new blocks are, and each block's length in bytes. Ids are computed here."""
    objects: list[tuple[ObjectId, bytes]] = []
    lengths: dict[BlockId, int] = {}
    for new in blocks:
        if len(new.content) > CONTENT_BYTES_MAX:
            raise ContentError(
                f"content of {len(new.content)} bytes: a block holds at most {CONTENT_BYTES_MAX}"
            )
        content = TextId.of(new.content)
        if new.block.source.object != content:
            raise ContentError(f"a block names {new.block.source.object}, its content is {content}")
        block_bytes = encode_record(new.block)
        block = BlockId.of(block_bytes)
        objects.append((content, new.content))
        objects.append((block, block_bytes))
        lengths[block] = len(new.content)
    return objects, lengths
