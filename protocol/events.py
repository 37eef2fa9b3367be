"""Events: what happened, typed, signed by its source, each naming the one before it.

An `Event` is entry `seq` of its source's log, counted from 1 without a gap. `prev` is the EventId
of the entry before, so an id stands for the whole log up to there. `hlc` is a hybrid clock, Unix
nanoseconds that only grow along a source: it orders events of different sources and is no
measurement. A source is its public key, and its name is a label.

On the wire and in the store an entry is `[payload, signature]`: the signature over
`huginn.event/1`, a zero byte and the payload as received, the EventId of the payload alone.

The taxonomy is closed for what is emitted here and open for what is read: a source of a later
version may have kinds that this one does not know. `namespace.Name` is a kind of somebody's own.
`before` and `after` are the stages of a transition (the HTTP API calls them `from` and `to`).

Sources: EVT-1, EVT-2; LLM_CONTEXT_FROM_EVENTS.md, which says 30 pipeline events and names these 27.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, cast

from protocol import cbor
from protocol.errors import (
    AuthorityError,
    ContentError,
    EncodingError,
    LimitExceeded,
    RecordError,
)
from protocol.ids import EventId, SourceId
from protocol.limits import (
    ENTRY_BYTES_MAX,
    EVENT_BYTES_MAX,
    STAGE_CHARS_MAX,
    SUBJECT_CHARS_MAX,
)
from protocol.record import Identified, decode_record, encode_record, object_id
from protocol.resource import NAME_CHARS_MAX, check_path
from protocol.signing import Signer, is_public_key, pack_signed, unpack_signed, verify

# What a source signs, before the payload.
EVENT_CONTEXT: Final = b"huginn.event/1\0"
# A branch, a commit, a story id: names. A reason may be as long as an event.
_NAME_CHARS_MAX: Final = 1024
_KIND_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")


class SourceKey(Identified):
    """The key of a source, 32 bytes of Ed25519; its id is the source's."""

    ID = SourceId

    v: Literal[1]
    public_key: bytes

    def __post_init__(self) -> None:
        if not is_public_key(self.public_key):
            raise RecordError("a source's key is the 32 bytes of an Ed25519 public key")


class Event(Identified):
    """Entry `seq` (from 1) of `source`. `prev` is absent at 1 alone. `body` is the kind's payload,
    a map of values of the record encoding."""

    ID = EventId

    v: Literal[1]
    source: SourceId
    seq: int
    hlc: int
    kind: str
    subject: str
    # Values of `cbor.Value`, which is recursive: a record's field types may not be.
    body: dict[str, Any]
    prev: EventId | None = None
    before: str | None = None
    after: str | None = None

    def __post_init__(self) -> None:
        if self.seq < 1 or self.hlc < 1:
            raise RecordError(f"seq and hlc count from 1, not {self.seq} and {self.hlc}")
        if (self.prev is None) != (self.seq == 1):
            raise RecordError(
                f"event {self.seq} {'lacks' if self.seq > 1 else 'has'} the id of an entry before "
                "it: the first has none, and every other names it"
            )
        try:
            custom_namespace(self.kind)
            _check_labels(self.subject, self.before, self.after)
        except (ContentError, LimitExceeded) as error:
            raise RecordError(str(error)) from error


class Category(str, Enum):
    """What an event is of: a story's way through the pipeline, an agent's life, the rest."""

    PIPELINE = "pipeline"
    EXECUTION = "execution"
    INFRA = "infra"


class Field(NamedTuple):
    """One field of a payload: `kind` is `str` (1 … `most` characters; None: as an event allows) or
    `int` (at least `least`)."""

    name: str
    kind: type[str] | type[int]
    required: bool = True
    least: int = 0
    most: int | None = _NAME_CHARS_MAX


class Kind(NamedTuple):
    """One kind of the taxonomy. `staged`: whether it may carry the stages of a transition."""

    category: Category
    fields: tuple[Field, ...]
    staged: bool


# When it happened, by the source's own clock, in Unix seconds. Every kind may say it; `hlc` orders.
AT_FIELD: Final = "at_s"
_AT: Final = Field(AT_FIELD, int, required=False)
_REASON: Final = (Field("reason", str, most=None),)
_BRANCH: Final = (Field("feature_branch", str), Field("commits_ahead", int, least=1))

_PIPELINE: Final[dict[str, tuple[Field, ...]]] = {
    "DepsMet": (),
    "GatesStarted": (),
    "GatesPassed": _BRANCH,
    "GatesFailed": _REASON,
    # As GatesPassed, where the source says it.
    "QaSkipped": tuple(field._replace(required=False) for field in _BRANCH),
    "MergeSucceeded": (Field("merge_commit", str),),
    "MergeFailed": _REASON,
    "MergeFailedFinal": _REASON,
    "Accepted": (),
    "Block": _REASON,
    "Unblock": (),
    "Abandon": (),
    "Supersede": (Field("by", str),),
    "ReviewHold": _REASON,
    "ReviewHoldCleared": (),
    "Reject": _REASON,
    "Triage": (),
    "Close": (),
    "Demote": (),
    "Freeze": (),
    "Unfreeze": (),
    "MergemasterAttempted": (),
    "FixupRequested": (),
    "ReQueuedForQa": (),
    "MergeAborted": (),
    "HotfixRequested": (),
    "MergeRetryStarted": (),
}
_EXECUTION: Final = (
    "SpawnRequested",
    "SpawnedSuccessfully",
    "Heartbeat",
    "HitRateLimit",
    "Exited",
    "Stopped",
    "Reset",
)
# By name: whether it tells of a change from one state to another.
_INFRA: Final = {"ProjectAdopted": False, "Rebuilt": False, "GatewayHealthChanged": True}

KINDS: Final[dict[str, Kind]] = {
    **{n: Kind(Category.PIPELINE, (*fields, _AT), True) for n, fields in _PIPELINE.items()},
    **{name: Kind(Category.EXECUTION, (_AT,), False) for name in _EXECUTION},
    **{name: Kind(Category.INFRA, (_AT,), staged) for name, staged in _INFRA.items()},
}


def custom_namespace(kind: str) -> str | None:
    """The namespace of a custom kind, `namespace.Name`; None for a kind without one.

    Raises ContentError for what cannot name a kind: a name is an upper-case letter and up to 63
    letters and digits.
    """
    namespace, dot, name = kind.rpartition(".")
    try:
        if len(kind) > NAME_CHARS_MAX or not _KIND_NAME.fullmatch(name):
            raise RecordError("its name is A-Z, then at most 63 of A-Z a-z 0-9")
        if dot:
            check_path(namespace)
    except RecordError as error:
        raise ContentError(f"{kind!r:.80} cannot name a kind of event: {error}") from error
    return namespace if dot else None


def check_event(
    kind: str, body: Mapping[str, object], before: str | None, after: str | None
) -> None:
    """Raises ContentError, naming the kind, the field and the rule, unless an event of `kind` may
    be emitted with this payload and these stages. The payload of a custom kind is only checked to
    be values of the record encoding: its schema is looked at where it is registered.
    """
    namespace = custom_namespace(kind)
    _check_labels("", before, after)
    if (before is None) != (after is None):
        raise ContentError(f"{kind}: a transition has both stages, `from` and `to`, or neither")
    try:
        cbor.encode(cast("cbor.Value", dict(body)), size_max=EVENT_BYTES_MAX)
    except EncodingError as error:
        raise ContentError(f"{kind}: its body cannot be encoded: {error}") from error
    if namespace is not None:
        return
    known = KINDS.get(kind)
    if known is None:
        raise ContentError(
            f"{kind} is not a kind of event: use one of the taxonomy, or register your own as "
            "`namespace.Name`"
        )
    if before is not None and not known.staged:
        raise ContentError(f"{kind} is no transition: it has no stages `from` and `to`")
    _check_payload(kind, known.fields, body)


def _check_payload(kind: str, fields: tuple[Field, ...], body: Mapping[str, object]) -> None:
    unknown = sorted(body.keys() - {field.name for field in fields})
    if unknown:
        known = ", ".join(field.name for field in fields)
        raise ContentError(f"{kind}: unknown field {unknown[0]!r:.80}; it has: {known}")
    for field in fields:
        if field.name not in body:
            if field.required:
                raise ContentError(f"{kind}: the field `{field.name}` is missing")
            continue
        value = body[field.name]
        # A bool is an int to Python, and not here.
        if type(value) is not field.kind:
            wanted = "text" if field.kind is str else "an integer"
            raise ContentError(
                f"{kind}: `{field.name}` is {wanted}, not a {type(value).__name__}: {value!r:.40}"
            )
        if isinstance(value, int) and value < field.least:
            raise ContentError(f"{kind}: `{field.name}` is at least {field.least}, not {value}")
        if isinstance(value, str) and not 1 <= len(value) <= (field.most or EVENT_BYTES_MAX):
            most = field.most or EVENT_BYTES_MAX
            raise ContentError(
                f"{kind}: `{field.name}` is 1 to {most} characters, not {len(value)}"
            )


def _check_labels(subject: str, before: str | None, after: str | None) -> None:
    if len(subject) > SUBJECT_CHARS_MAX:
        raise LimitExceeded(
            f"a subject of {len(subject)} characters, at most {SUBJECT_CHARS_MAX} are allowed"
        )
    for stage in (before, after):
        if stage is not None and not 1 <= len(stage) <= STAGE_CHARS_MAX:
            raise ContentError(f"a stage is 1 to {STAGE_CHARS_MAX} characters, not {len(stage)}")


def next_hlc(last: int, wall_ns: int) -> int:
    """The hybrid time of an event now, after one at `last` (0: none): the wall clock's, unless that
    stands still or goes back."""
    return max(wall_ns, last + 1)


@lru_cache(maxsize=1024)
def source_id(public_key: bytes) -> SourceId:
    """The source whose key this is; raises RecordError for what is no public key."""
    return cast("SourceId", object_id(SourceKey(v=1, public_key=public_key)))


def event_id(event: Event) -> EventId:
    return cast("EventId", object_id(event))


def sign_event(event: Event, signer: Signer) -> bytes:
    """The entry of `event`, signed by its source.

    Raises AuthorityError with step `source` for another source's key, LimitExceeded for an event
    over EVENT_BYTES_MAX, EncodingError for a body that the record encoding does not hold.
    """
    if event.source != source_id(signer.public):
        raise AuthorityError("source", f"{event.source} is not the source of this key")
    payload = encode_record(event)
    if len(payload) > EVENT_BYTES_MAX:
        raise LimitExceeded(
            f"an event of {len(payload)} bytes, at most {EVENT_BYTES_MAX} are allowed: "
            "keep the long part elsewhere and name it"
        )
    return pack_signed(signer, EVENT_CONTEXT, payload)


def open_entry(entry: bytes, public_key: bytes) -> tuple[EventId, Event]:
    """The event in `entry`, which the source with `public_key` did sign, and its id.

    Raises EncodingError or RecordError for bytes that are no entry, AuthorityError with step
    `source` for an entry of another source, with step `signature` for one that was not signed.
    """
    payload, signature = unpack_signed(entry, size_max=ENTRY_BYTES_MAX)
    event = decode_record(Event, payload, size_max=EVENT_BYTES_MAX)
    if event.source != source_id(public_key):
        raise AuthorityError("source", f"an entry of {event.source}, not of the source asked for")
    if not verify(public_key, EVENT_CONTEXT + payload, signature):
        raise AuthorityError(
            "signature", f"{event.source} did not sign this entry for number {event.seq}"
        )
    return EventId.of(payload), event


def read_entry(entry: bytes) -> tuple[EventId, Event]:
    """As `open_entry`, of an entry whose signature was verified when it was stored."""
    payload, _ = unpack_signed(entry, size_max=ENTRY_BYTES_MAX)
    return EventId.of(payload), decode_record(Event, payload, size_max=EVENT_BYTES_MAX)
