from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cbor
from protocol.errors import (
    AuthorityError,
    ContentError,
    EncodingError,
    LimitExceeded,
    RecordError,
)
from protocol.events import (
    EVENT_CONTEXT,
    KINDS,
    Category,
    Event,
    SourceKey,
    check_event,
    custom_namespace,
    event_id,
    next_hlc,
    open_entry,
    read_entry,
    sign_event,
    source_id,
)
from protocol.ids import EventId, SourceId
from protocol.limits import ENTRY_BYTES_MAX, EVENT_BYTES_MAX, SUBJECT_CHARS_MAX
from protocol.record import encode_record
from protocol.signing import pack_signed
from tests.event_logs import SIGNER, SIGNERS, SOURCE, chain, entry_after, position

# The seed's own lists, word for word.
PIPELINE = [
    "DepsMet",
    "GatesStarted",
    "GatesPassed",
    "GatesFailed",
    "QaSkipped",
    "MergeSucceeded",
    "MergeFailed",
    "MergeFailedFinal",
    "Accepted",
    "Block",
    "Unblock",
    "Abandon",
    "Supersede",
    "ReviewHold",
    "ReviewHoldCleared",
    "Reject",
    "Triage",
    "Close",
    "Demote",
    "Freeze",
    "Unfreeze",
    "MergemasterAttempted",
    "FixupRequested",
    "ReQueuedForQa",
    "MergeAborted",
    "HotfixRequested",
    "MergeRetryStarted",
]
EXECUTION = [
    "SpawnRequested",
    "SpawnedSuccessfully",
    "Heartbeat",
    "HitRateLimit",
    "Exited",
    "Stopped",
    "Reset",
]
INFRA = ["ProjectAdopted", "Rebuilt", "GatewayHealthChanged"]
GOOD: dict[str, dict[str, Any]] = {
    "GatesPassed": {"feature_branch": "f/1122", "commits_ahead": 1},
    "GatesFailed": {"reason": "red"},
    "QaSkipped": {},
    "MergeSucceeded": {"merge_commit": "0123abcd"},
    "MergeFailed": {"reason": "conflict"},
    "MergeFailedFinal": {"reason": "conflict"},
    "Block": {"reason": "waits"},
    "Supersede": {"by": "1123"},
    "ReviewHold": {"reason": "look"},
    "Reject": {"reason": "no"},
}


@pytest.mark.req("EVT-1")
def test_the_taxonomy_is_the_one_that_was_named() -> None:
    by_category = {
        category: [name for name, kind in KINDS.items() if kind.category is category]
        for category in Category
    }
    assert by_category == {
        Category.PIPELINE: PIPELINE,
        Category.EXECUTION: EXECUTION,
        Category.INFRA: INFRA,
    }
    assert (len(PIPELINE), len(EXECUTION), len(INFRA)) == (27, 7, 3)


@pytest.mark.req("EVT-1")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_takes_its_payload_and_no_other(kind: str) -> None:
    body = GOOD.get(kind, {})
    check_event(kind, body, None, None)
    check_event(kind, {**body, "at_s": 1_780_000_000}, None, None)
    with pytest.raises(ContentError, match=f"{kind}: unknown field 'colour'"):
        check_event(kind, {**body, "colour": "red"}, None, None)
    for field in body:
        missing = {name: value for name, value in body.items() if name != field}
        with pytest.raises(ContentError, match=f"{kind}: the field `{field}` is missing"):
            check_event(kind, missing, None, None)
        wrongs: list[object] = [None, b"x", [], True, -1, ""]
        for wrong in wrongs:
            with pytest.raises(ContentError, match=f"{kind}: `{field}` is"):
                check_event(kind, {**body, field: wrong}, None, None)
    if kind in EXECUTION:
        with pytest.raises(ContentError, match=f"{kind} is no transition"):
            check_event(kind, body, "Coding", "Done")
    elif kind in PIPELINE:
        check_event(kind, body, "Coding", "Done")


@pytest.mark.parametrize(
    ("kind", "body", "before", "after", "message"),
    [
        ("GatesPassed", {"feature_branch": "f", "commits_ahead": 0}, None, None, "at least 1"),
        ("QaSkipped", {"commits_ahead": 0}, None, None, "at least 1"),
        ("MergeSucceeded", {"merge_commit": "x" * 1025}, None, None, "1 to 1024 characters"),
        ("DepsMet", {"at_s": -1}, None, None, "at least 0"),
        ("DepsMet", {"at_s": "now"}, None, None, "an integer, not a str"),
        ("DepsMet", {}, "Backlog", None, "both stages"),
        ("DepsMet", {}, None, "Coding", "both stages"),
        ("DepsMet", {}, "", "Coding", "1 to 255 characters"),
        ("DepsMet", {}, "x" * 256, "Coding", "1 to 255 characters"),
        ("StoryMerged", {}, None, None, "not a kind of event"),
        ("EventStreamGap", {}, None, None, "not a kind of event"),
        ("depsMet", {}, None, None, "cannot name a kind"),
        ("", {}, None, None, "cannot name a kind"),
        ("team/a.", {}, None, None, "cannot name a kind"),
        (".Deployed", {}, None, None, "cannot name a kind"),
        ("Team.Deployed", {}, None, None, "cannot name a kind"),
        ("team/../a.Deployed", {}, None, None, "cannot name a kind"),
        ("a" * 250 + ".Deployed", {}, None, None, "cannot name a kind"),
        ("team.Deployed", {"share": 0.5}, None, None, "rule type"),
        ("team.Deployed", {"at": datetime(2026, 1, 1, tzinfo=UTC)}, None, None, "rule type"),
        ("team.Deployed", {"n": 2**63}, None, None, "rule range"),
        ("team.Deployed", {"text": "x" * EVENT_BYTES_MAX}, None, None, "rule size"),
    ],
)
@pytest.mark.req("EVT-1")
def test_what_may_not_be_emitted(
    kind: str, body: dict[str, Any], before: str | None, after: str | None, message: str
) -> None:
    with pytest.raises(ContentError, match=message):
        check_event(kind, body, before, after)


def test_a_custom_kind_takes_any_values() -> None:
    check_event("team/a.Deployed", {"deep": [{"n": None, "b": b"\0"}], "share": "0.5"}, "a", "b")
    assert custom_namespace("team/a.b.Deployed") == "team/a.b"
    assert custom_namespace("MergeSucceeded") is None


def test_a_reason_may_be_as_long_as_an_event() -> None:
    text = "é" * (1024 * 1024 - 1024)
    check_event("Reject", {"reason": text}, None, None)
    long = entry_after(kind="Reject", body={"reason": text})
    assert open_entry(long.body, SIGNER.public) == (long.id, long.event)
    assert len(long.body) <= ENTRY_BYTES_MAX
    with pytest.raises(LimitExceeded, match="at most 2097152"):
        entry_after(kind="x.Y", body={"reason": "x" * EVENT_BYTES_MAX})


def test_the_ids_are_the_documented_ones() -> None:
    def framed(tag: bytes, body: bytes) -> bytes:
        head = bytes((len(tag),)) + tag + len(body).to_bytes(8, "big")
        return hashlib.sha256(head + body).digest()

    key = cbor.encode({"v": 1, "public_key": SIGNER.public})
    assert SourceId(framed(b"huginn.source/1", key)) == SOURCE
    (entry,) = chain(1)
    parts = cbor.decode(entry.body)
    assert isinstance(parts, list)
    payload, signature = parts
    assert isinstance(payload, bytes)
    assert entry.id == event_id(entry.event) == EventId(framed(b"huginn.event/1", payload))
    assert signature == SIGNER.sign(b"huginn.event/1\0" + payload)
    assert payload == encode_record(entry.event)
    assert read_entry(entry.body) == open_entry(entry.body, SIGNER.public)


@pytest.mark.req("EVT-2")
def test_an_entry_is_its_sources_alone() -> None:
    (entry,) = chain(1)
    with pytest.raises(AuthorityError) as foreign:
        open_entry(entry.body, SIGNERS[1].public)
    assert foreign.value.step == "source"
    with pytest.raises(AuthorityError) as mine:
        sign_event(entry.event, SIGNERS[1])
    assert mine.value.step == "source"
    # Signed by another key, in the source's name; and under another context.
    payload = encode_record(entry.event)
    for forged in (
        pack_signed(SIGNERS[1], EVENT_CONTEXT, payload),
        pack_signed(SIGNER, b"huginn.evidence/1\0", payload),
    ):
        with pytest.raises(AuthorityError) as unsigned:
            open_entry(forged, SIGNER.public)
        assert unsigned.value.step == "signature"


@pytest.mark.req("EVT-2")
def test_no_byte_of_an_entry_can_change() -> None:
    (entry,) = chain(1)
    for at in range(len(entry.body)):
        changed = bytearray(entry.body)
        changed[at] ^= 1
        with pytest.raises((EncodingError, RecordError, AuthorityError)):
            open_entry(bytes(changed), SIGNER.public)


@pytest.mark.parametrize(
    "fields",
    [
        {"seq": 0, "prev": None},
        {"hlc": 0},
        {"prev": None},
        {"seq": 1},
        {"kind": "lower"},
        {"subject": "x" * (SUBJECT_CHARS_MAX + 1)},
        {"before": ""},
        {"after": "x" * 256},
    ],
)
def test_records_that_are_no_events(fields: dict[str, Any]) -> None:
    first, second = chain(2)
    good = {name: getattr(second.event, name) for name in second.event.__struct_fields__}
    assert Event(**good) == second.event
    with pytest.raises(RecordError):
        Event(**{**good, **fields})
    assert first.event.prev is None


@pytest.mark.parametrize("key", [b"", b"x" * 31, bytes(32), b"\x01" + bytes(31), b"\xff" * 32])
def test_a_source_is_a_public_key(key: bytes) -> None:
    with pytest.raises(RecordError, match="public key"):
        SourceKey(v=1, public_key=key)
    with pytest.raises(RecordError, match="public key"):
        source_id(key)


@pytest.mark.req("EVT-10")
@given(st.lists(st.integers(-(10**18), 10**19 // 2), min_size=1, max_size=40))
def test_hybrid_time_only_grows_and_is_never_before_the_wall(walls: list[int]) -> None:
    last = 0
    for wall_ns in walls:
        now = next_hlc(last, wall_ns)
        assert now > last
        assert now >= wall_ns
        assert now == max(wall_ns, last + 1)
        last = now


def test_a_kind_of_a_later_version_can_be_read() -> None:
    entry = entry_after(position(chain(1)[0]), kind="StoryStaged", body={"new": 1})
    assert open_entry(entry.body, SIGNER.public)[1].kind == "StoryStaged"
