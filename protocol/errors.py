"""Every error that Huginn raises, in one tree. Yours and mine are different branches.

    HuginnError
    ├── RequestError                 yours: the request breaks a rule (HTTP 4xx, never retried)
    │   ├── EncodingError            bytes that are not the one encoding of a value
    │   ├── RecordError              a well-encoded value that is not the record asked for
    │   ├── RopeError                a tree that is not the one tree of its sequence
    │   ├── ContentError             content, tokens or parameters that a rule refuses
    │   ├── BudgetExceeded           more tokens than the budget or the context holds
    │   ├── LimitExceeded            a stated size, count or rate limit
    │   ├── NotVisible               unknown, or not yours: the two are one answer
    │   ├── Conflict                 the state you built on has moved
    │   ├── FeedRefused              another installation gives something else than its log
    │   └── AuthorityError           a handle or invocation that does not stand
    │       ├── CapabilityError      ... its chain fails one step of verification
    │       └── InvocationError      ... its use fails one step of verification
    └── FaultError                   mine: the request may be right (HTTP 5xx)
        ├── CorruptObject            stored bytes do not hash to their id
        ├── StoreFault               the disk or the database refused
        │   └── DiskFull             ... for want of room, and for nothing else
        ├── WorkerFault              a worker died, stopped or cannot load its model
        ├── ProfileFault             a profile or its weights are not what was pinned
        ├── FeedLost                 another installation is away, or broke off
        └── Unavailable              not now: draining, loading or full

An error crosses rooms as (code, message, details) and comes back as its own class: `to_map` and
`from_map`. A message names the thing, the rule, the numbers and the way out.
"""

from __future__ import annotations

from typing import ClassVar, Self

Detail = int | str | bool | None


class HuginnError(Exception):
    """Root of the tree. `details` holds what a program needs: integers, text, booleans."""

    code: ClassVar[str] = "error"
    # The details that every error of a class has, which `from_map` insists on.
    DETAILS: ClassVar[dict[str, type]] = {}

    def __init__(self, message: str, /, **details: Detail) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def to_map(self) -> dict[str, object]:
        """The error as a map that the record encoding carries between rooms."""
        return {"code": self.code, "message": self.message, "details": dict(self.details)}

    @classmethod
    def rebuild(cls, message: str, details: dict[str, Detail]) -> Self:
        """The error with that message and those details, past the arguments of its class."""
        error = cls.__new__(cls)
        HuginnError.__init__(error, message, **details)
        return error


class RequestError(HuginnError):
    code = "request"


class EncodingError(RequestError):
    """Bytes that are not the one encoding of a value.

    `rule` is the broken rule's short name, `offset` the byte at which it was broken (0-based).
    """

    code = "encoding"
    DETAILS: ClassVar[dict[str, type]] = {"rule": str, "offset": int}

    def __init__(self, rule: str, offset: int, explanation: str) -> None:
        super().__init__(f"byte {offset}: {explanation} (rule {rule})", rule=rule, offset=offset)

    @property
    def rule(self) -> str:
        return str(self.details["rule"])

    @property
    def offset(self) -> int:
        return int(self.details["offset"] or 0)


class RecordError(RequestError):
    code = "record"


class RopeError(RequestError):
    code = "rope"


class ContentError(RequestError):
    code = "content"


class BudgetExceeded(RequestError):
    code = "budget"


class LimitExceeded(RequestError):
    code = "limit"


class NotVisible(RequestError):
    """Unknown, or outside the caller's view. The two are the same answer, on purpose."""

    code = "not_visible"


class Conflict(RequestError):
    code = "conflict"


class FeedRefused(RequestError):
    """The other installation answered, and not with what was asked for: a person has to look."""

    code = "feed_refused"


class AuthorityError(RequestError):
    """`step` names the step of verification that refused (see authority verification order)."""

    code = "authority"
    DETAILS: ClassVar[dict[str, type]] = {"step": str}

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message, step=step)

    @property
    def step(self) -> str:
        return str(self.details.get("step"))


class CapabilityError(AuthorityError):
    code = "capability"


class InvocationError(AuthorityError):
    code = "invocation"


class FaultError(HuginnError):
    code = "fault"


class CorruptObject(FaultError):
    code = "corrupt"


class StoreFault(FaultError):
    code = "store"


class DiskFull(StoreFault):
    """There was no room on the disk, or in its user's quota. Nothing was stored, nothing is broken,
    and the same works once there is room."""

    code = "disk_full"


class WorkerFault(FaultError):
    code = "worker"


class ProfileFault(FaultError):
    code = "profile"


class FeedLost(FaultError):
    """The other installation cannot be reached, broke off, or is in trouble: try again later."""

    code = "feed_lost"


class Unavailable(FaultError):
    code = "unavailable"


def _tree(root: type[HuginnError]) -> dict[str, type[HuginnError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_tree(child))
    return found


CODE_TO_ERROR = _tree(HuginnError)


def from_map(value: object) -> HuginnError:
    """The error that `to_map` wrote; anything else becomes a `FaultError` that says so."""
    if isinstance(value, dict) and value.keys() == {"code", "message", "details"}:
        code, message, details = value["code"], value["message"], value["details"]
        kind = CODE_TO_ERROR.get(code) if isinstance(code, str) else None
        if kind and isinstance(message, str) and _fit(kind, details):
            # Past __init__: subclasses take other arguments than the ones that travel.
            return kind.rebuild(message, details)
    return FaultError(f"a room answered with something that is not an error record: {value!r:.80}")


def _fit(kind: type[HuginnError], details: object) -> bool:
    return (
        isinstance(details, dict)
        and all(isinstance(name, str) for name in details)
        and all(item is None or isinstance(item, (int, str)) for item in details.values())
        and all(type(details.get(name)) is needed for name, needed in kind.DETAILS.items())
    )
