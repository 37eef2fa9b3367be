"""Objects: immutable bytes under their own id, visible by membership; and heads that name them.

`ObjectStore` is the contract; the SQLite store and the in-memory one pass the same suite. Bytes
are kept once, whoever put them: below the interface an object is (kind prefix, digest). Above it,
an object is in a namespace or it is not, and knowing an id gives nothing (I-VIEW).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Protocol

from protocol.errors import Conflict, ContentError, LimitExceeded, NotVisible
from protocol.ids import PREFIX_TO_KIND, ObjectId
from protocol.limits import RECORD_BYTES_MAX

# The namespaces that a reader may see. Never a bare string: that would be a view of its letters.
View = frozenset[str] | tuple[str, ...]

# Characters of a namespace or of a head's name: paths of a few segments are far shorter.
NAME_CHARS_MAX: Final = 512


@dataclass(frozen=True)
class StoreStats:
    """How much is kept: counts, and `bytes` of bodies (each counted once)."""

    objects: int
    bytes: int
    memberships: int
    namespaces: int
    heads: int


@dataclass(frozen=True)
class Swept:
    """What a sweep took away."""

    objects: int
    bytes: int


class ObjectStore(Protocol):
    """Objects in namespaces. Every method is safe from any thread.

    - A namespace or a head's name is 1 to 512 characters (ContentError). It begins to exist when
      something is put there.
    - What a writing method was given is durable when it returns, or when its future resolves.
      Writes take effect in the order in which they were asked for; a read sees every write that was
      acknowledged before it.
    - An id is recomputed from the bytes before every store and after every read (ID-5): bytes that
      do not hash to it raise CorruptObject, and are neither stored nor given.
    - Reads take a view. An object outside it and an object that does not exist are one answer,
      NotVisible with the same message (or False), down the same code path. An empty view sees
      nothing.
    - After `close`, or after the disk has failed, everything raises StoreFault.
    """

    def put_many(self, namespace: str, objects: Sequence[tuple[ObjectId, bytes]]) -> None:
        """Stores the objects, all or none, and makes them members of `namespace`. Idempotent.

        Raises CorruptObject if a body does not hash to its id, ContentError if a body is not
        `bytes` or an id's kind is unknown, LimitExceeded for a body over 16 MiB.
        """

    def put_many_soon(
        self, namespace: str, objects: Sequence[tuple[ObjectId, bytes]]
    ) -> Future[None]:
        """`put_many` that does not wait: the future resolves when the objects are durable."""

    def get(self, view: View, id: ObjectId) -> bytes:
        """The body of `id`. Raises NotVisible, or CorruptObject for damaged bytes."""

    def get_many(self, view: View, ids: Sequence[ObjectId]) -> list[bytes]:
        """The bodies of `ids`, in their order, from one snapshot; raises as `get` does."""

    def has_many(self, view: View, ids: Sequence[ObjectId]) -> list[bool]:
        """For each of `ids`, whether it is in the view. Bodies are not read."""

    def list_namespaces(self, root: str) -> list[str]:
        """`root` and the namespaces below it (`root/…`), those where anything was ever put, in
        the order of their names (by code point)."""

    def list_members(self, namespace: str) -> list[ObjectId]:
        """Every object of `namespace`, in the order of (kind prefix, digest)."""

    def remove_membership(self, namespace: str, ids: Sequence[ObjectId]) -> int:
        """Takes the objects out of `namespace`, all or none; how many of them were in it.

        Raises Conflict if a head of the namespace names one of them. Bytes stay until `sweep`.
        """

    def drop_namespace(self, namespace: str) -> int:
        """Takes all heads and objects out of `namespace`; how many objects were in it."""

    def sweep(self) -> Swept:
        """Erases the bytes of objects that are in no namespace, from disk and log.

        Safe beside everything else: a put that runs at the same time keeps its objects, because an
        object and its membership are stored in one transaction. A read that runs at the same time
        gives the object or NotVisible.
        """

    def scrub(self) -> None:
        """Leaves nothing of what was swept or taken out on disk; after `sweep`. May take long;
        writers wait meanwhile. Raises StoreFault if that could not be done: ask again."""

    def set_head(
        self, namespace: str, name: str, id: ObjectId | None, expected: ObjectId | None
    ) -> None:
        """Makes the head `name` refer to `id` (None: to nothing), if it refers to `expected`.

        Raises Conflict with details `expected` and `found` (id texts, or None) if it does not, and
        NotVisible if `id` is not in the namespace: a head always finds its object.
        """

    def set_head_soon(
        self, namespace: str, name: str, id: ObjectId | None, expected: ObjectId | None
    ) -> Future[None]:
        """`set_head` that does not wait. Puts that were asked for before it come before it."""

    def get_head(self, namespace: str, name: str) -> ObjectId | None:
        """What the head refers to, or None if there is no such head."""

    def list_heads(self, namespace: str, prefix: str = "") -> dict[str, ObjectId]:
        """The heads whose names begin with `prefix`, in the order of their names' code points."""

    def stats(self) -> StoreStats:
        """Counts and bytes."""

    def close(self) -> None:
        """Finishes what was asked for and gives up the store. Twice is once."""


def check_name(name: str) -> str:
    """`name`, if it may name a namespace or a head; raises ContentError."""
    if type(name) is not str or not 0 < len(name) <= NAME_CHARS_MAX:
        raise ContentError(f"a namespace or head name is 1 to {NAME_CHARS_MAX} characters of text")
    if not name.isprintable():
        raise ContentError(f"a namespace or head name is printable text, and {name!r:.80} is not")
    return name


def check_view(view: View) -> View:
    """`view`, if it is one; raises ContentError."""
    if not isinstance(view, frozenset | tuple):
        raise ContentError(f"a view is a frozenset or tuple of names, not a {type(view).__name__}")
    for name in view:
        check_name(name)
    return view


def check_ids(ids: Sequence[ObjectId]) -> None:
    """Raises ContentError unless each is an id of a known kind."""
    for id in ids:
        if not isinstance(id, ObjectId) or PREFIX_TO_KIND.get(id.PREFIX) is not type(id):
            raise ContentError(f"a {type(id).__name__} is not an id of a known kind")


def check_objects(objects: Sequence[tuple[ObjectId, bytes]]) -> None:
    """Raises as `ObjectStore.put_many` says; hashes every body."""
    check_ids([id for id, _ in objects])
    for id, body in objects:
        if type(body) is not bytes:
            raise ContentError(f"the body of {id} is a {type(body).__name__}, not bytes")
        if len(body) > RECORD_BYTES_MAX:
            raise LimitExceeded(
                f"{id} has {len(body)} bytes, at most {RECORD_BYTES_MAX}: store it in chunks",
                bytes=len(body),
                bytes_max=RECORD_BYTES_MAX,
            )
        id.check(body)


def not_visible(id: ObjectId) -> NotVisible:
    """The one answer for an object that is unknown or outside the view."""
    return NotVisible(f"there is no {id} in the namespaces that you can read", id=str(id))


def head_conflict(
    namespace: str, name: str, expected: ObjectId | None, found: ObjectId | None
) -> Conflict:
    """What a compare-and-set of a head raises when it finds another value."""
    was, now = (None if id is None else str(id) for id in (expected, found))
    return Conflict(
        f"the head {name} of {namespace} refers to {now or 'nothing'}, not to {was or 'nothing'}: "
        "read it again and build on what it says",
        expected=was,
        found=now,
    )
