"""Events as clients give and get them.

An event is shown decoded, and beside that as the bytes in which its source signed it (`entry`,
base64), so that whoever gets it can verify it. Stages of a transition are `from` and `to` here.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from protocol import cbor
from protocol.errors import ContentError
from protocol.events import Event, read_entry
from protocol.ids import EventId
from protocol.messages.events import Gap, NewEvent

Json = dict[str, Any]
# What a gap is called in a stream, as its event name and its type.
GAP: Final = "EventStreamGap"


class EventFields(msgspec.Struct, kw_only=True, rename={"before": "from", "after": "to"}):
    """One event to append. Null is absent."""

    kind: str
    subject: str
    body: dict[str, Any] | None = None
    before: str | None = None
    after: str | None = None


def new_event(fields: EventFields) -> NewEvent:
    """The event to append; ContentError, naming the place, for a number that is no integer."""
    body = fields.body or {}
    _refuse_floats(body, "body")
    return NewEvent(
        kind=fields.kind,
        subject=fields.subject,
        body=cbor.encode(body),
        before=fields.before,
        after=fields.after,
    )


def entry_json(source: str, entry: bytes) -> Json:
    """An entry as it is shown; `source` is the name that the reader has for it."""
    id, event = read_entry(entry)
    return event_json(source, id, event, entry)


def event_json(source: str, id: EventId, event: Event, entry: bytes) -> Json:
    return {
        "source": source,
        "source_id": str(event.source),
        "seq": event.seq,
        "id": str(id),
        "hlc": event.hlc,
        "kind": event.kind,
        "subject": event.subject,
        "from": event.before,
        "to": event.after,
        "body": event.body,
        "prev": None if event.prev is None else str(event.prev),
        "entry": base64.b64encode(entry).decode("ascii"),
    }


def gap_json(source: str, gap: Gap) -> Json:
    """Entries that are not here. With the cause `overrun` the reader was too slow, and what the log
    still has of them follows; with `retention` they are gone."""
    return {
        "type": GAP,
        "source": source,
        "source_id": str(gap.source),
        "from": gap.first,
        "to": gap.last,
        "count": gap.count,
        "cause": gap.cause,
    }


def _refuse_floats(value: Any, path: str) -> None:
    if isinstance(value, float):
        raise ContentError(
            f"{path}: {value!r} is not an integer: write it as a decimal string", param=path
        )
    if isinstance(value, dict):
        for name, each in value.items():
            _refuse_floats(each, f"{path}.{name:.40}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            _refuse_floats(each, f"{path}[{index}]")
