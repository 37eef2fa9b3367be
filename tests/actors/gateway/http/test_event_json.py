"""Events as JSON: both ways, and numbers that JSON has and a record has not."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from actors.gateway.http.event_json import EventFields, entry_json, gap_json, new_event
from protocol import cbor
from protocol.errors import ContentError, EncodingError
from protocol.events import open_entry
from protocol.messages.events import Gap
from tests.event_logs import SIGNER, SOURCE, chain, entry_after, position


def fields(**body: Any) -> EventFields:
    return EventFields(kind="team.K", subject="s", body=body)


def test_stages_are_from_and_to() -> None:
    text = b'{"kind": "Close", "subject": "7", "from": "a", "to": "b", "body": null}'
    event = new_event(msgspec.json.decode(text, type=EventFields))
    assert (event.kind, event.subject, event.before, event.after) == ("Close", "7", "a", "b")
    assert event.body == cbor.encode({})


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"n": 1.5}, "body.n"),
        ({"n": 1.0}, "body.n"),
        ({"a": {"b": [1, {"c": 0.1}]}}, r"body.a.b\[1\].c"),
    ],
)
def test_a_fraction_is_written_as_text(body: dict[str, Any], path: str) -> None:
    with pytest.raises(ContentError, match=f"^{path}: .* decimal string"):
        new_event(fields(**body))


def test_a_number_that_no_record_holds() -> None:
    with pytest.raises(EncodingError):
        new_event(fields(n=2**63))


def test_what_is_shown_can_be_verified() -> None:
    first = chain(1)[0]
    entry = entry_after(position(first), before="merge", after="done")
    shown = msgspec.json.decode(msgspec.json.encode(entry_json("builds", entry.body)))
    id, event = open_entry(base64.b64decode(shown.pop("entry")), SIGNER.public)
    assert shown == {
        "source": "builds",
        "source_id": str(SOURCE),
        "seq": 2,
        "id": str(id),
        "hlc": event.hlc,
        "kind": "MergeSucceeded",
        "subject": "1122",
        "from": "merge",
        "to": "done",
        "body": {"merge_commit": "0123abcd"},
        "prev": str(first.id),
    }


@pytest.mark.req("EVT-6")
def test_a_gap_says_what_and_why() -> None:
    gap = Gap(source=SOURCE, first=3, last=7, count=5, cause="overrun")
    assert gap_json("builds", gap) == {
        "type": "EventStreamGap",
        "source": "builds",
        "source_id": str(SOURCE),
        "from": 3,
        "to": 7,
        "count": 5,
        "cause": "overrun",
    }
