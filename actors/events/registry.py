"""Which sources there are, where, and under whose key. Names are labels, keys are identity.

A source is called by its name in its namespace, and from a namespace above by the path between:
`team/builds` from `home` is `builds` in `home/team`. What does not exist and what lies outside the
caller's view are one answer. Of a removed source a line stays, so that a session which had not read
it whole can be told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

from actors.events.kinds import may
from actors.events.ports import Remote, SourceKeys
from actors.events.scope import ScopedSource
from actors.room import Call
from protocol.errors import Conflict, ContentError, FeedRefused, LimitExceeded, NotVisible
from protocol.ids import SourceId
from protocol.record import Record, decode_record, encode_record
from protocol.resource import Right, path_covers
from store.events import EventLogs
from store.tables import Delete, Put, Tables

# In one namespace. So many removed ones are remembered of each, and of all together.
SOURCES_MAX: Final = 256
REMOVED_MAX: Final = 1024
REMOVED_TOTAL_MAX: Final = 16_384
NO_SOURCE: Final = "no such source in this view"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
SOURCES: Final = "sources"
REMOVED: Final = "removed-sources"


class KnownSource(Record):
    """One source as kept. `key_name` for a local one; `url` and `api_key_file` for a remote."""

    namespace: str
    name: str
    id: SourceId
    public_key: bytes
    key_name: str | None = None
    url: str | None = None
    api_key_file: str | None = None

    @property
    def is_local(self) -> bool:
        return self.url is None

    def remote(self) -> Remote:
        """Where a remote source is."""
        return Remote(self.url or "", self.api_key_file or "", self.namespace)


class RemovedSource(Record):
    """What is remembered of a source that is no more: where it was and its last number."""

    namespace: str
    name: str
    id: SourceId
    head: int


class SourceRegistry:
    """The sources in a table of `tables`, whose logs are `logs`."""

    def __init__(
        self,
        tables: Tables,
        logs: EventLogs,
        *,
        sources_max: int = SOURCES_MAX,
        removed_max: int = REMOVED_MAX,
        removed_total_max: int = REMOVED_TOTAL_MAX,
    ) -> None:
        self._tables = tables
        self._sources_max = sources_max
        self._removed_max = removed_max
        self._removed_total_max = removed_total_max
        self._logs = logs
        rows = (decode_record(KnownSource, row) for _, row in tables.keyed(SOURCES).items())
        self._by_place = {(row.namespace, row.name): row for row in rows}
        self._by_id = {row.id: row for row in self._by_place.values()}
        # By the key of the row, the oldest first.
        self._gone = {
            key: decode_record(RemovedSource, row) for key, row in tables.keyed(REMOVED).items()
        }

    def __len__(self) -> int:
        return len(self._by_place)

    def all(self) -> list[KnownSource]:
        """Every source there is, for the room itself."""
        return list(self._by_place.values())

    def by_id(self, source: SourceId) -> KnownSource | None:
        return self._by_id.get(source)

    def at(self, namespace: str, name: str) -> KnownSource | None:
        """The source called `name` in `namespace` itself."""
        return self._by_place.get((namespace, name))

    def find(self, call: Call, right: Right, namespace: str, name: str) -> KnownSource:
        """The source that `name` names in or below `namespace`; NotVisible unless `call` may do
        `right` there."""
        path, slash, last = name.rpartition("/")
        place = f"{namespace}/{path}" if slash else namespace
        found = self._by_place.get((place, last))
        if found is None or not may(call, right, place):
            raise NotVisible(NO_SOURCE)
        return found

    def visible(self, call: Call, namespace: str) -> list[KnownSource]:
        """The sources at or below `namespace` that `call` may observe, by namespace and name."""
        found = [
            row
            for row in self._by_place.values()
            if path_covers(namespace, row.namespace) and may(call, Right.OBSERVE, row.namespace)
        ]
        return sorted(found, key=lambda row: (row.namespace, row.name))

    def in_scope(
        self, call: Call, namespace: str, names: Sequence[str] | None
    ) -> list[ScopedSource]:
        """As `Scopes.in_scope`: those that are, and those that were."""
        found = [self._scoped(row) for row in self.visible(call, namespace)]
        found += self._removed(call, namespace, {each.id for each in found})
        if names is None:
            return found
        wanted = set(names)
        return [each for each in found if each.label(namespace) in wanted]

    def check_free(self, call: Call, row: KnownSource) -> None:
        """Raises if the source with this key is here already: one key is one source, with one log.

        Where the caller may observe that source it is told which (Conflict). Else FeedRefused: it
        cannot be followed there, and not why, nor by whom. That much has to be told, because the
        log that is here was fetched with another's API key: it is not shared.
        """
        there = self._by_id.get(row.id)
        if there is None:
            return
        if may(call, Right.OBSERVE, there.namespace):
            raise Conflict(
                f"the source with this key is here already: {there.name} in {there.namespace}"
            )
        raise FeedRefused(f"this source cannot be followed for {row.namespace}")

    def keep(self, row: KnownSource) -> None:
        """Adds a source; durable when it returns. Raises ContentError for a name that is none,
        LimitExceeded for one too many."""
        if not _NAME.fullmatch(row.name):
            raise ContentError(
                f"{row.name!r:.80} cannot name a source: 1 to 63 of a-z 0-9 . _ - and a letter or "
                "digit first",
                param="name",
            )
        there = sum(1 for namespace, _ in self._by_place if namespace == row.namespace)
        if there >= self._sources_max:
            raise LimitExceeded(
                f"{row.namespace} has {there} sources, which is as many as may be: remove one"
            )
        self._tables.keyed(SOURCES).put(_key(row), encode_record(row))
        self._by_place[row.namespace, row.name] = row
        self._by_id[row.id] = row

    def forget(self, row: KnownSource, head: int) -> None:
        """Removes a source whose last number was `head`, and remembers that it was."""
        gone = RemovedSource(namespace=row.namespace, name=row.name, id=row.id, head=head)
        # By the namespace too: where one key's source is removed says nothing of another place.
        key = row.namespace.encode() + b"\0" + row.id.digest
        kept = {**self._gone, key: gone}
        surplus = self._surplus(kept, row.namespace)
        self._tables.apply(
            [
                Delete(SOURCES, _key(row)),
                Put(REMOVED, key, encode_record(gone)),
                *(Delete(REMOVED, old) for old in surplus),
            ]
        )
        self._gone = {old: each for old, each in kept.items() if old not in surplus}
        del self._by_place[row.namespace, row.name]
        del self._by_id[row.id]

    def _surplus(self, kept: dict[bytes, RemovedSource], namespace: str) -> set[bytes]:
        """The keys of the oldest removed ones that are too many: of `namespace`, and of all."""
        here = [key for key, each in kept.items() if each.namespace == namespace]
        surplus = set(here[: max(0, len(here) - self._removed_max)])
        rest = [key for key in kept if key not in surplus]
        return surplus.union(rest[: max(0, len(rest) - self._removed_total_max)])

    def finish_removals(self, keys: SourceKeys) -> list[SourceId]:
        """Destroys the keys and drops the logs of sources that are no more, whose removal broke off
        after the row had gone; whose logs went. Raises StoreFault."""
        keys.keep_only({row.key_name for row in self.all() if row.key_name is not None})
        left = sorted(self._logs.ranges().keys() - self._by_id.keys())
        for source in left:
            self._logs.drop(source)
        return left

    def drop_removed(self, takes: Callable[[str], bool]) -> list[SourceId]:
        """Forget that there were sources in the namespaces that `takes` says; which these were."""
        gone = {key: row for key, row in self._gone.items() if takes(row.namespace)}
        self._tables.apply([Delete(REMOVED, key) for key in gone])
        for key in gone:
            del self._gone[key]
        return [row.id for row in gone.values()]

    def _scoped(self, row: KnownSource) -> ScopedSource:
        kept = self._logs.range(row.id)
        return ScopedSource(row.id, row.namespace, row.name, kept.first, kept.head)

    def _removed(
        self, call: Call, namespace: str, there: Collection[SourceId]
    ) -> list[ScopedSource]:
        """Those that were, each once. A remote source that was removed and is followed again, in
        the same view (`there`), has its log again."""
        found: dict[SourceId, RemovedSource] = {}
        for row in self._gone.values():
            if (
                row.id not in there
                and path_covers(namespace, row.namespace)
                and may(call, Right.OBSERVE, row.namespace)
                and (row.id not in found or found[row.id].head < row.head)
            ):
                found[row.id] = row
        return [
            ScopedSource(row.id, row.namespace, row.name, row.head + 1, row.head)
            for row in found.values()
        ]


def label(row: KnownSource, namespace: str) -> str:
    """The source's name as it is called from `namespace`."""
    return ScopedSource(row.id, row.namespace, row.name, 1, 0).label(namespace)


def _key(row: KnownSource) -> bytes:
    return f"{row.namespace}\0{row.name}".encode()
