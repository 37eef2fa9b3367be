"""Erasing from the object store: memberships first, then what nobody is a member of any more.

Bytes are kept once for all who have them, so what goes from disk is what no namespace holds, and
nothing that anybody else can see. Also a file whose row went before, when somebody died in between:
every file that no row names goes. A block that is erased by itself takes its content along unless
another block of the namespace has the same; sequences that name it stay, and cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.blocks import ContextBlock
from protocol.errors import HuginnError
from protocol.ids import BlockId, ObjectId, parse_any
from protocol.messages.erasure import Erase
from protocol.publication import PUBLIC
from protocol.record import decode_record
from protocol.resource import path_covers
from store.objects import ObjectStore


def erase_objects(store: ObjectStore, ask: Erase) -> dict[str, int]:
    """Carry out `ask` in `store`; blocks until nothing of it is on disk. Raises StoreFault."""
    namespaces = memberships = 0
    for namespace in named(store, ask):
        namespaces += 1
        if ask.objects is None:
            memberships += store.drop_namespace(namespace)
        else:
            wanted = [parse_any(text) for text in ask.objects]
            memberships += _take_out(store, namespace, wanted)
    swept = store.sweep()
    store.scrub()
    return {
        "namespaces": namespaces,
        "memberships": memberships,
        "objects": swept.objects,
        "bytes": swept.bytes,
    }


def named(store: ObjectStore, ask: Erase) -> list[str]:
    """The namespaces of `store` that the order takes. What is public is nobody's to erase."""
    found = {each for path in ask.namespaces for each in store.list_namespaces(path)}
    return sorted(each for each in found if ask.takes(each) and not path_covers(PUBLIC, each))


def _take_out(store: ObjectStore, namespace: str, wanted: list[ObjectId]) -> int:
    gone = {id for id in wanted if store.has_many((namespace,), [id])[0]}
    for id in list(gone):
        if isinstance(id, BlockId):
            content = _content(store, namespace, id)
            if content is not None and not _is_shared(store, namespace, content, gone):
                gone.add(content)
    for name, id in store.list_heads(namespace).items():
        if id in gone:
            store.set_head(namespace, name, None, id)
    return store.remove_membership(namespace, sorted(gone, key=str))


def _content(store: ObjectStore, namespace: str, block: BlockId) -> ObjectId | None:
    """What `block` is a block of; None if it cannot be read: then it goes all the same."""
    try:
        record = decode_record(ContextBlock, store.get((namespace,), block))
    except HuginnError:
        return None
    return record.source.object


def _is_shared(store: ObjectStore, namespace: str, content: ObjectId, gone: set[ObjectId]) -> bool:
    """Whether a block that stays has the same content."""
    return any(
        isinstance(member, BlockId)
        and member not in gone
        and _content(store, namespace, member) == content
        for member in store.list_members(namespace)
    )


def traces(store: ObjectStore, ask: Erase, fingerprint: Callable[[str], str]) -> list[str]:
    """What of `ask` is there still; nothing, once it was carried out. Its `objects` are here
    fingerprints of ids, which is what is kept of them."""
    spaces = named(store, ask)
    if ask.objects is None:
        return [f"namespace {each}" for each in spaces]
    gone = set(ask.objects)
    return [
        f"an object of namespace {each}"
        for each in spaces
        for member in store.list_members(each)
        if fingerprint(str(member)) in gone
    ]
