"""The object store on SQLite: small bodies in rows, large ones in files beside the database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

import apsw

from protocol.errors import Conflict, CorruptObject, StoreFault
from protocol.ids import PREFIX_TO_KIND, ObjectId
from store import objects as contract
from store.blobs import BlobFiles
from store.files import UNFINISHED
from store.objects import StoreStats, Swept, View, check_ids, check_name, check_view
from store.sqlite import Database

# Bodies up to this many bytes lie in rows; above it a file costs less than the copies that the
# write-ahead log makes. Measured: the two meet between 100 KB and 1 MB.
INLINE_BYTES_MAX: Final = 256 * 1024
# Object rows that one submission of a sweep looks at: bounds how long others wait for the writer.
SWEEP_ROWS: Final = 5_000
# Files that one submission of a sweep removes, for the same reason: each costs a sync or two.
SWEEP_FILES: Final = 100

_PUT: Final = """
INSERT INTO objects (kind, digest, bytes, body) VALUES (?, ?, ?, ?)
ON CONFLICT (kind, digest) DO UPDATE SET bytes = excluded.bytes, body = excluded.body
WHERE body IS NOT excluded.body OR bytes IS NOT excluded.bytes
"""
_JOIN: Final = """
INSERT OR IGNORE INTO members (namespace, object)
SELECT n.number, o.number FROM namespaces n, objects o
WHERE n.name = ? AND o.kind = ? AND o.digest = ?
"""
_VISIBLE: Final = """
SELECT o.body, o.bytes FROM objects o WHERE o.kind = ?1 AND o.digest = ?2 AND EXISTS (
  SELECT 1 FROM members m WHERE m.object = o.number AND m.namespace IN (
    SELECT n.number FROM namespaces n WHERE n.name IN (SELECT value FROM json_each(?3))))
"""
_HAS: Final = """
SELECT wanted.key FROM json_each(?1) wanted
JOIN objects o ON o.kind = wanted.value ->> 0 AND o.digest = unhex(wanted.value ->> 1)
WHERE EXISTS (
  SELECT 1 FROM members m WHERE m.object = o.number AND m.namespace IN (
    SELECT n.number FROM namespaces n WHERE n.name IN (SELECT value FROM json_each(?2))))
"""
_BELOW: Final = "SELECT name FROM namespaces WHERE name = ? OR (name >= ? AND name < ?)"
_MEMBERS: Final = """
SELECT o.kind, o.digest FROM members m JOIN objects o ON o.number = m.object
WHERE m.namespace = (SELECT number FROM namespaces WHERE name = ?) ORDER BY o.kind, o.digest
"""
_LEAVE: Final = """
DELETE FROM members WHERE namespace = (SELECT number FROM namespaces WHERE name = ?)
AND object = (SELECT number FROM objects WHERE kind = ? AND digest = ?) RETURNING 1
"""
_HEAD: Final = """
SELECT o.kind, o.digest FROM heads h JOIN objects o ON o.number = h.object
WHERE h.namespace = (SELECT number FROM namespaces WHERE name = ?) AND h.name = ?
"""
_HEADS: Final = """
SELECT h.name, o.kind, o.digest FROM heads h JOIN objects o ON o.number = h.object
WHERE h.namespace = (SELECT number FROM namespaces WHERE name = ?1)
AND substr(h.name, 1, length(?2)) = ?2 ORDER BY h.name
"""
_SET_HEAD: Final = """
INSERT OR REPLACE INTO heads (namespace, name, object)
SELECT n.number, ?2, o.number FROM namespaces n
JOIN members m ON m.namespace = n.number JOIN objects o ON o.number = m.object
WHERE n.name = ?1 AND o.kind = ?3 AND o.digest = ?4 RETURNING 1
"""
_DROP_HEAD: Final = """
DELETE FROM heads WHERE namespace = (SELECT number FROM namespaces WHERE name = ?) AND name = ?
"""
_SWEEP: Final = """
DELETE FROM objects WHERE number > ?1 AND number <= ?1 + ?2
AND NOT EXISTS (SELECT 1 FROM members m WHERE m.object = objects.number)
RETURNING bytes
"""
_IN_FILE: Final = "SELECT 1 FROM objects WHERE digest = ? AND body IS NULL"
_ORPHANS: Final = """
SELECT count(*) FROM objects o WHERE NOT EXISTS (SELECT 1 FROM members m WHERE m.object = o.number)
"""
_STATS: Final = """
SELECT (SELECT count(*) FROM objects), (SELECT coalesce(sum(bytes), 0) FROM objects),
(SELECT count(*) FROM members), (SELECT count(*) FROM namespaces), (SELECT count(*) FROM heads)
"""


def id_of(kind: object, digest: object) -> ObjectId:
    """The id that a row's `kind` and `digest` make; raises CorruptObject for an unknown kind."""
    found = PREFIX_TO_KIND.get(str(kind))
    if found is None or not isinstance(digest, bytes):
        raise CorruptObject(f"a row names an object of the unknown kind {kind!r}")
    return found(digest)


def _sweep_rows(start: int, connection: apsw.Connection) -> list[int]:
    return [row[0] for row in connection.execute(_SWEEP, (start, SWEEP_ROWS))]


def _unnamed(found: Sequence[Path], connection: apsw.Connection) -> list[Path]:
    return [
        path
        for path in found
        if path.suffix == UNFINISHED
        or connection.execute(_IN_FILE, (bytes.fromhex(path.name),)).fetchone() is None
    ]


class SqliteObjectStore:
    """`ObjectStore` on `database` and `blobs`, both of which it owns and closes."""

    def __init__(self, database: Database, blobs: BlobFiles) -> None:
        self.database = database
        self.blobs = blobs

    def put_many(self, namespace: str, objects: Sequence[tuple[ObjectId, bytes]]) -> None:
        self.put_many_soon(namespace, objects).result()

    def put_many_soon(
        self, namespace: str, objects: Sequence[tuple[ObjectId, bytes]]
    ) -> Future[None]:
        check_name(namespace)
        rows = list(objects)
        contract.check_objects(rows)

        def put(connection: apsw.Connection) -> None:
            connection.execute("INSERT OR IGNORE INTO namespaces (name) VALUES (?)", (namespace,))
            for id, body in rows:
                inline = len(body) <= INLINE_BYTES_MAX
                if not inline:
                    self.blobs.put(id, body)
                row = (id.PREFIX, id.digest, len(body), body if inline else None)
                connection.execute(_PUT, row)
                connection.execute(_JOIN, (namespace, id.PREFIX, id.digest))

        return self.database.submit(put)

    def get(self, view: View, id: ObjectId) -> bytes:
        return self.get_many(view, (id,))[0]

    def get_many(self, view: View, ids: Sequence[ObjectId]) -> list[bytes]:
        names = json.dumps(sorted(check_view(view)))
        check_ids(ids)
        if not ids:
            return []

        def get(connection: apsw.Connection) -> list[tuple[bytes | None, int]]:
            found: list[tuple[bytes | None, int]] = []
            for id in ids:
                row = connection.execute(_VISIBLE, (id.PREFIX, id.digest, names)).fetchone()
                if row is None:
                    raise contract.not_visible(id)
                found.append((row[0], row[1]))
            return found

        rows = self.database.read(get)
        return [
            self._large(view, id) if body is None else id.check(body)
            for id, (body, _) in zip(ids, rows, strict=True)
        ]

    def _large(self, view: View, id: ObjectId) -> bytes:
        try:
            return self.blobs.get(id)
        except FileNotFoundError:
            # Erased since its row was read, or lost: the first is an answer, the second a fault.
            if not self.has_many(view, (id,))[0]:
                raise contract.not_visible(id) from None
            raise CorruptObject(f"the file of {id} is missing", id=str(id)) from None
        except OSError as error:
            raise StoreFault(f"the file of {id} cannot be read: {error}") from error

    def has_many(self, view: View, ids: Sequence[ObjectId]) -> list[bool]:
        names = json.dumps(sorted(check_view(view)))
        check_ids(ids)
        if not ids:
            return []
        wanted = json.dumps([(id.PREFIX, id.digest.hex()) for id in ids])
        found = self.database.read(
            lambda connection: {row[0] for row in connection.execute(_HAS, (wanted, names))}
        )
        return [index in found for index in range(len(ids))]

    def list_namespaces(self, root: str) -> list[str]:
        # "0" follows "/": the range from one to the other holds just what begins with `root/`.
        bindings = (check_name(root), root + "/", root + "0")
        rows = self.database.read(lambda connection: list(connection.execute(_BELOW, bindings)))
        return sorted(str(row[0]) for row in rows)

    def list_members(self, namespace: str) -> list[ObjectId]:
        bindings = (check_name(namespace),)
        rows = self.database.read(lambda connection: list(connection.execute(_MEMBERS, bindings)))
        return [id_of(kind, digest) for kind, digest in rows]

    def remove_membership(self, namespace: str, ids: Sequence[ObjectId]) -> int:
        check_name(namespace)
        check_ids(ids)

        def remove(connection: apsw.Connection) -> int:
            removed = 0
            for id in ids:
                try:
                    found = connection.execute(_LEAVE, (namespace, id.PREFIX, id.digest)).fetchall()
                except apsw.ConstraintError:
                    raise Conflict(
                        f"a head of {namespace} names {id}: move the head first"
                    ) from None
                removed += len(found)
            return removed

        return self.database.write(remove)

    def drop_namespace(self, namespace: str) -> int:
        check_name(namespace)

        def drop(connection: apsw.Connection) -> int:
            number = connection.execute(
                "SELECT number FROM namespaces WHERE name = ?", (namespace,)
            ).get
            connection.execute("DELETE FROM heads WHERE namespace = ?", (number,))
            connection.execute("DELETE FROM members WHERE namespace = ?", (number,))
            removed = connection.changes()
            connection.execute("DELETE FROM namespaces WHERE number = ?", (number,))
            return removed

        return self.database.write(drop)

    def sweep(self) -> Swept:
        last = self.database.read(
            lambda connection: (
                connection.execute("SELECT coalesce(max(number), 0) FROM objects").get
            )
        )
        count = size = 0
        for start in range(0, last, SWEEP_ROWS):
            sizes = self.database.write(partial(_sweep_rows, start))
            count += len(sizes)
            size += sum(sizes)
        self.remove_unnamed()
        self.database.checkpoint()
        return Swept(count, size)

    def unnamed(self) -> list[Path]:
        """The files that no row names, and those that a put began and did not end: of rows that
        were swept by somebody who died before the file went, and of puts that failed. The file of a
        put that is under way may be among them. Raises StoreFault."""
        # The files first: what got its row since then has one.
        found = self.blobs.written()
        return self.database.read(partial(_unnamed, found))

    def remove_unnamed(self) -> int:
        """Removes those files, but none that a put relies on; how many. Raises StoreFault."""
        found = self.unnamed()
        removed = 0
        for start in range(0, len(found), SWEEP_FILES):
            removed += self.database.write(
                partial(self._remove_unnamed, found[start : start + SWEEP_FILES])
            )
        return removed

    def _remove_unnamed(self, found: Sequence[Path], connection: apsw.Connection) -> int:
        """Runs on the writer's thread: no put is between its file and its row while this looks, and
        none is half way through its file."""
        return sum(self.blobs.remove(path) for path in _unnamed(found, connection))

    def set_head(
        self, namespace: str, name: str, id: ObjectId | None, expected: ObjectId | None
    ) -> None:
        self.set_head_soon(namespace, name, id, expected).result()

    def set_head_soon(
        self, namespace: str, name: str, id: ObjectId | None, expected: ObjectId | None
    ) -> Future[None]:
        check_name(namespace)
        check_name(name)
        check_ids([given for given in (id, expected) if given is not None])

        def set_head(connection: apsw.Connection) -> None:
            row = connection.execute(_HEAD, (namespace, name)).fetchone()
            found = None if row is None else id_of(*row)
            if found != expected:
                raise contract.head_conflict(namespace, name, expected, found)
            if id is None:
                connection.execute(_DROP_HEAD, (namespace, name))
            elif not list(connection.execute(_SET_HEAD, (namespace, name, id.PREFIX, id.digest))):
                raise contract.not_visible(id)

        return self.database.submit(set_head)

    def get_head(self, namespace: str, name: str) -> ObjectId | None:
        bindings = (check_name(namespace), check_name(name))
        row = self.database.read(lambda connection: connection.execute(_HEAD, bindings).fetchone())
        return None if row is None else id_of(*row)

    def list_heads(self, namespace: str, prefix: str = "") -> dict[str, ObjectId]:
        bindings = (check_name(namespace), prefix)
        rows = self.database.read(lambda connection: list(connection.execute(_HEADS, bindings)))
        return {name: id_of(kind, digest) for name, kind, digest in rows}

    def count_orphans(self) -> int:
        """How many objects no namespace has: a sweep would take them."""
        found: int = self.database.read(lambda connection: connection.execute(_ORPHANS).get)
        return found

    def stats(self) -> StoreStats:
        return self.database.read(lambda connection: StoreStats(*next(connection.execute(_STATS))))

    def scrub(self) -> None:
        self.database.scrub()

    def close(self) -> None:
        self.database.close()
