"""Kinds of events: the taxonomy, and kinds of somebody's own with a schema for their body.

A custom kind is called by the namespace in which it was registered, `team/a.Deployed`, so two
teams' kinds never collide. It is registered once: what was emitted under it stays what it was. For
an emitter it exists if the emitter may emit in that namespace; any other is an unknown kind.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

from actors.events.schema import BodySchema
from actors.room import Call
from protocol.cbor import Value
from protocol.errors import (
    Conflict,
    ContentError,
    LimitExceeded,
    NotVisible,
    RecordError,
    Unavailable,
)
from protocol.events import check_event, custom_namespace
from protocol.messages.events import KindRow, Kinds, ListSources, RegisterKind
from protocol.resource import Resource, ResourceKind, Right, path_covers
from store.tables import KEY_BYTES_MAX, Tables

KINDS: Final = "kinds"
# In one namespace, and in all together.
KINDS_MAX: Final = 1024
KINDS_TOTAL_MAX: Final = 16_384
COMPILED_MAX: Final = 256


class KindRegistry:
    """The custom kinds, in a table of `tables`, at most `kinds_max` of a namespace, so that what
    others register is nothing to it; and `total_max`, for the memory of it all. `compiled_max`
    schemas are kept ready."""

    def __init__(
        self,
        tables: Tables,
        *,
        kinds_max: int = KINDS_MAX,
        total_max: int = KINDS_TOTAL_MAX,
        compiled_max: int = COMPILED_MAX,
    ) -> None:
        self._table = tables.keyed(KINDS)
        self._kinds_max = kinds_max
        self._total_max = total_max
        self._counts = Counter(_namespace(key) for key, _ in self._table.items())
        self._compiled_max = compiled_max
        self._compiled: OrderedDict[str, BodySchema] = OrderedDict()

    async def register(self, call: Call, ask: RegisterKind) -> KindRow:
        """Keeps the kind. Raises NotVisible outside the caller's view, ContentError for a kind
        that is not called by `ask.namespace` or a schema that is none, Conflict for another,
        LimitExceeded where the namespace has all that it may, Unavailable where the installation
        does."""
        if not may(call, Right.EMIT, ask.namespace):
            raise NotVisible("no such namespace in this view")
        if custom_namespace(ask.kind) != ask.namespace:
            raise ContentError(
                f"a kind of {ask.namespace} is called '{ask.namespace}.Name', not {ask.kind!r:.80}"
            )
        BodySchema(ask.schema)
        kept = self._table.get(ask.kind.encode())
        if kept is None:
            if self._counts[ask.namespace] >= self._kinds_max:
                raise LimitExceeded(
                    f"{ask.namespace} has {self._kinds_max} kinds, which is as many as may be"
                )
            if self._counts.total() >= self._total_max:
                raise Unavailable("this installation keeps no more kinds of events")
            self._table.put(ask.kind.encode(), ask.schema)
            self._counts[ask.namespace] += 1
        elif kept != ask.schema:
            raise Conflict(
                f"{ask.kind} was registered with another schema: what is emitted under it stays "
                "what it is; register a new kind"
            )
        return KindRow(kind=ask.kind, schema=ask.schema)

    async def list(self, call: Call, ask: ListSources) -> Kinds:
        """The kinds registered at or below `ask.namespace` that the caller may observe."""
        rows = []
        # A kind is called by its namespace, so whatever lies below begins as it does.
        begin = ask.namespace.encode()[:KEY_BYTES_MAX]
        for key, schema in sorted(self._table.items(begin)):
            namespace = _namespace(key)
            if path_covers(ask.namespace, namespace) and may(call, Right.OBSERVE, namespace):
                rows.append(KindRow(kind=key.decode(), schema=schema))
        return Kinds(kinds=rows)

    def erase(self, takes: Callable[[str], bool]) -> int:
        """Erase the kinds of the namespaces that `takes` says; how many."""
        gone = [key for key, _ in self._table.items() if takes(_namespace(key))]
        for key in gone:
            self._compiled.pop(key.decode(), None)
            self._table.delete(key)
            self._counts[_namespace(key)] -= 1
        # What is erased leaves no name behind.
        self._counts = +self._counts
        return len(gone)

    def check(
        self,
        call: Call,
        kind: str,
        body: dict[str, Value],
        before: str | None,
        after: str | None,
    ) -> None:
        """Raises ContentError unless `call` may emit an event of `kind` that says this."""
        check_event(kind, body, before, after)
        namespace = custom_namespace(kind)
        if namespace is not None:
            self._schema(call, kind, namespace).check(kind, body)

    def _schema(self, call: Call, kind: str, namespace: str) -> BodySchema:
        kept = self._table.get(kind.encode()) if may(call, Right.EMIT, namespace) else None
        if kept is None:
            raise ContentError(
                f"{kind} is not registered: register it with the JSON Schema of its body first"
            )
        schema = self._compiled.pop(kind, None) or BodySchema(kept)
        self._compiled[kind] = schema
        if len(self._compiled) > self._compiled_max:
            self._compiled.popitem(last=False)
        return schema


def _namespace(key: bytes) -> str:
    """The namespace in which the kind that is kept under `key` was registered."""
    return custom_namespace(key.decode()) or ""


def may(call: Call, right: Right, namespace: str) -> bool:
    """Whether `call` may do `right` in `namespace`. A text that is no path is no namespace."""
    try:
        wanted = Resource(kind=ResourceKind.NAMESPACE, name=namespace)
    except RecordError:
        return False
    return call.handle.permits(right, wanted)
