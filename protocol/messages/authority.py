"""Asked of the authority room: who is a principal, and what has been revoked."""

from __future__ import annotations

from typing import Final, Literal

from protocol.ids import CapabilityId
from protocol.messages import Empty, Operation
from protocol.messages.erasure import ASKED, ORDER
from protocol.record import Record


class Enroll(Record):
    """Make, or give again, the principal `name` with this public key. Idempotent by both.

    `namespace` is the path that it may use; `domain` its computation-sharing domain; `rights` the
    rights on that path; `profiles` the runtime profiles that it may compute with. `administers`
    adds a second handle, on everything, with the rights to grant, revoke and operate but none to
    read. `telemetry` names domains beside its own of whose reuse the principal may be told.
    Conflict if the name is taken by another key; ContentError for the namespace or the domain
    `public`, which nobody has.
    """

    name: str
    public_key: bytes
    namespace: str
    domain: str
    rights: list[str]
    profiles: list[str]
    administers: bool
    lifetime_ns: int
    telemetry: list[str] | None = None


class Enrolled(Record):
    """`chain`: signed capabilities, root first, the last one's audience the principal's key.
    `admin_chain` is the second handle of one who administers."""

    name: str
    chain: list[bytes]
    admin_chain: list[bytes] | None = None


class PrincipalRow(Record):
    """What is listed of a principal. Never a key or a chain that could be used."""

    name: str
    public_key: bytes
    namespace: str
    domain: str
    rights: list[str]
    revoked: bool


class Principals(Record):
    """Every principal that the caller administers, in the order of first enrolment."""

    principals: list[PrincipalRow]


class Revoke(Record):
    """Revoke a principal by name: every handle below its root handle falls with it. Answered when
    every room that runs knows it, or says which does not. What else was revoked is not for one who
    administers a part."""

    name: str


class Revoked(Record):
    """It is revoked, for good. `waiting`: rooms that run and could not be told of it yet (None:
    there are none). They are told as soon as they take a message, and may admit the old handle, or
    go on with a stream under it, until then."""

    waiting: list[str] | None = None


class Revocations(Record):
    """The authority's epoch and every capability id (32 bytes) revoked so far, sorted.

    Sent to each room after each change, and acknowledged before the change is: so a revocation
    holds for the next message, wherever it goes. A room that cannot take it is named in the answer.
    """

    epoch: int
    revoked: list[bytes]


class RegisterContract(Record):
    """Register a contract, so that assemblies may name it: its id's text, and its encoding."""

    id: str
    body: bytes


class Registration(Record):
    """One registered contract. `signed` is [payload, signature] by the root authority over the
    context `huginn.registration/1` and the encoded `RegistrationPayload`."""

    signed: bytes


class RegistrationPayload(Record):
    """What the authority signs. `epoch` is its own at that time; `registered_ns` is Unix time."""

    v: Literal[1]
    id: str
    epoch: int
    registered_ns: int


class HandOut(Record):
    """Put on record that the caller gave out the handle `chain`, which lies below its own."""

    chain: list[bytes]


class HandedRow(Record):
    """One handle on record: what its last link says, of how many `links` it is, and whether any
    of them is `revoked`. Times are Unix ns."""

    id: CapabilityId
    audience: bytes
    resource: str
    rights: list[str]
    nbf_ns: int
    exp_ns: int
    links: int
    revoked: bool


class HandedOut(Record):
    """Every handle on record below the caller's own, in the order of telling."""

    handles: list[HandedRow]


class TakeBack(Record):
    """Revoke a handle below the caller's own, and so all below it: by its `id` if it is on
    record, or whole, as `chain`."""

    id: CapabilityId | None = None
    chain: list[bytes] | None = None


class TakenBack(Record):
    """The handle `id` holds no more, nor does any below it. What else was revoked, and how often,
    is not the caller's to know. `waiting` as in `Revoked`."""

    id: CapabilityId
    waiting: list[str] | None = None


class Refusal(Record):
    """One message or request that a room did not admit. `step`: the step of verification that
    refused it; `op`: what it asked for. `principal`: the key that the root of its chain names, as
    far as that could be read; it is proven only where `step` is one after the signatures."""

    step: str
    op: str
    request_id: str
    at_ns: int
    principal: bytes | None = None


class Refused(Record):
    """What a room refused since it said so last. `counted`: by step, how many are not told one by
    one, because they came faster than that. Only rooms say this."""

    refusals: list[Refusal]
    counted: dict[str, int]


class AskAudit(Record):
    """Entries of the audit log above number `after`, at most `limit` (1 to 1000); the last ones
    where `after` is left out. For those who operate the whole installation."""

    limit: int
    after: int | None = None


class AuditRow(Record):
    """One entry as it lies in the log: `digest` covers `body`, its number and `previous`, the
    digest of the entry before."""

    seq: int
    previous: bytes
    digest: bytes
    body: bytes


class AuditPage(Record):
    """Entries in order, and where the log ends: the number and digest of its last entry."""

    rows: list[AuditRow]
    head_seq: int
    head_digest: bytes


OPERATIONS: Final[dict[str, Operation]] = {
    "enroll": Operation(Enroll, Enrolled, "grant"),
    "principals": Operation(Empty, Principals, "grant"),
    "revoke": Operation(Revoke, Revoked, "revoke"),
    "current": Operation(Empty, Revocations, "operate"),
    "register": Operation(RegisterContract, Registration, "operate"),
    # Under any handle: whoever has one can give out less of it, and must be able to take that back.
    "hand_out": Operation(HandOut, HandedRow, None),
    "handed_out": Operation(Empty, HandedOut, None),
    "take_back": Operation(TakeBack, TakenBack, None),
    "refused": Operation(Refused, Empty, "operate"),
    "audit": Operation(AskAudit, AuditPage, "operate"),
    **ASKED,
}
# Every room takes these from the authority.
NOTICE: Final[dict[str, Operation]] = {
    "revocations": Operation(Revocations, Empty, "operate"),
    **ORDER,
}
