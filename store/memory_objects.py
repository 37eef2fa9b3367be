"""The object store in memory: the contract's plain model, and the fake that tests give to rooms.

Where the contract leaves room, it is stricter than the one on disk: it accepts only plain lists
and tuples, keeps copies of its own, and gives a new copy at every read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import RLock
from typing import TypeVar

from protocol.errors import Conflict, ContentError, StoreFault
from protocol.ids import ObjectId
from store.objects import (
    StoreStats,
    Swept,
    View,
    check_ids,
    check_name,
    check_objects,
    check_view,
    head_conflict,
    not_visible,
)

T = TypeVar("T")


def resolved(work: Callable[[], T]) -> Future[T]:
    """A future that already holds what `work` returned or raised."""
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
    return future


def _plain(values: Sequence[T]) -> Sequence[T]:
    if type(values) is not list and type(values) is not tuple:
        raise ContentError(f"a batch is a list or a tuple, not a {type(values).__name__}")
    return values


class MemoryObjectStore:
    """`ObjectStore` in memory."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._bodies: dict[ObjectId, bytearray] = {}
        self._members: dict[str, set[ObjectId]] = {}
        self._heads: dict[str, dict[str, ObjectId]] = {}
        self._closed = False

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFault("the store is closed")

    def put_many(self, namespace: str, objects: Sequence[tuple[ObjectId, bytes]]) -> None:
        self.put_many_soon(namespace, objects).result()

    def put_many_soon(
        self, namespace: str, objects: Sequence[tuple[ObjectId, bytes]]
    ) -> Future[None]:
        self._check_open()
        check_name(namespace)
        check_objects(_plain(objects))

        def put() -> None:
            with self._lock:
                members = self._members.setdefault(namespace, set())
                for id, body in objects:
                    self._bodies[id] = bytearray(body)
                    members.add(id)

        return resolved(put)

    def _sees(self, view: View, id: ObjectId) -> bool:
        return any(id in self._members.get(name, ()) for name in view)

    def get(self, view: View, id: ObjectId) -> bytes:
        return self.get_many(view, (id,))[0]

    def get_many(self, view: View, ids: Sequence[ObjectId]) -> list[bytes]:
        self._check_open()
        check_view(view)
        check_ids(_plain(ids))
        with self._lock:
            for id in ids:
                if not self._sees(view, id):
                    raise not_visible(id)
            return [id.check(bytes(self._bodies[id])) for id in ids]

    def has_many(self, view: View, ids: Sequence[ObjectId]) -> list[bool]:
        self._check_open()
        check_view(view)
        check_ids(_plain(ids))
        with self._lock:
            return [self._sees(view, id) for id in ids]

    def list_namespaces(self, root: str) -> list[str]:
        self._check_open()
        below = check_name(root) + "/"
        with self._lock:
            names = set(self._members)
        return sorted(name for name in names if name == root or name.startswith(below))

    def list_members(self, namespace: str) -> list[ObjectId]:
        self._check_open()
        with self._lock:
            members = self._members.get(check_name(namespace), set())
            return sorted(members, key=lambda id: (id.PREFIX, id.digest))

    def remove_membership(self, namespace: str, ids: Sequence[ObjectId]) -> int:
        self._check_open()
        check_name(namespace)
        check_ids(_plain(ids))
        with self._lock:
            named = set(self._heads.get(namespace, {}).values())
            members = self._members.get(namespace, set())
            for id in ids:
                if id in named:
                    raise Conflict(f"a head of {namespace} names {id}: move the head first")
            leaving = members.intersection(ids)
            members -= leaving
            return len(leaving)

    def drop_namespace(self, namespace: str) -> int:
        self._check_open()
        with self._lock:
            self._heads.pop(check_name(namespace), None)
            return len(self._members.pop(namespace, set()))

    def sweep(self) -> Swept:
        self._check_open()
        with self._lock:
            held = set().union(*self._members.values())
            gone = [id for id in self._bodies if id not in held]
            return Swept(len(gone), sum(len(self._bodies.pop(id)) for id in gone))

    def scrub(self) -> None:
        self._check_open()

    def set_head(
        self, namespace: str, name: str, id: ObjectId | None, expected: ObjectId | None
    ) -> None:
        self.set_head_soon(namespace, name, id, expected).result()

    def set_head_soon(
        self, namespace: str, name: str, id: ObjectId | None, expected: ObjectId | None
    ) -> Future[None]:
        self._check_open()
        check_name(namespace)
        check_name(name)
        check_ids([given for given in (id, expected) if given is not None])

        def set_head() -> None:
            with self._lock:
                heads = self._heads.setdefault(namespace, {})
                found = heads.get(name)
                if found != expected:
                    raise head_conflict(namespace, name, expected, found)
                if id is None:
                    heads.pop(name, None)
                elif self._sees((namespace,), id):
                    heads[name] = id
                else:
                    raise not_visible(id)

        return resolved(set_head)

    def get_head(self, namespace: str, name: str) -> ObjectId | None:
        self._check_open()
        with self._lock:
            return self._heads.get(check_name(namespace), {}).get(check_name(name))

    def list_heads(self, namespace: str, prefix: str = "") -> dict[str, ObjectId]:
        self._check_open()
        with self._lock:
            heads = self._heads.get(check_name(namespace), {})
            return {name: heads[name] for name in sorted(heads) if name.startswith(prefix)}

    def stats(self) -> StoreStats:
        self._check_open()
        with self._lock:
            return StoreStats(
                objects=len(self._bodies),
                bytes=sum(map(len, self._bodies.values())),
                memberships=sum(map(len, self._members.values())),
                namespaces=len(self._members),
                heads=sum(map(len, self._heads.values())),
            )

    def close(self) -> None:
        self._closed = True
