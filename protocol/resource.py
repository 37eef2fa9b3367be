"""What a handle is for: typed resources, and the closed vocabulary of rights.

A resource is a kind and a name. One covers another when both are the same, when it is `all`, or
when both are namespaces and the other's path begins with its path, segment by segment: `team/a`
covers `team/a/b`, never `team/ab`. There are no globs, no `.` or `..`, no empty segments and no
upper case in a path: a segment is made of a few ASCII characters and begins with a letter or a
digit, so a path has one spelling.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from protocol.errors import ContentError, RecordError
from protocol.ids import SequenceId, parse_any
from protocol.record import Record

NAME_CHARS_MAX: Final = 255
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+=:-]*(?:/[A-Za-z0-9][A-Za-z0-9._@+=:-]*)*")
_PATH: Final = re.compile(r"[a-z0-9][a-z0-9._@+=-]*(?:/[a-z0-9][a-z0-9._@+=-]*)*")


class Right(str, Enum):
    """What may be done. Closed: an unknown right makes the whole capability unreadable."""

    READ = "read"
    WRITE = "write"
    ASSEMBLE = "assemble"
    ADVANCE = "advance"
    GENERATE = "generate"
    COMPILE = "compile"
    EMIT = "emit"
    OBSERVE = "observe"
    TELEMETRY = "telemetry"
    GRANT = "grant"
    REVOKE = "revoke"
    ERASE = "erase"
    OPERATE = "operate"


class ResourceKind(str, Enum):
    """What a handle may be for. Only `all` stands without a name. Closed, as rights are."""

    ALL = "all"
    NAMESPACE = "namespace"
    OBJECT = "object"
    SEQUENCE = "sequence"
    SESSION = "session"
    SOURCE = "source"
    PROFILE = "profile"
    DOMAIN = "domain"
    SERVICE = "service"


def check_name(name: str) -> None:
    """Raises RecordError unless `name` is 1 to 255 characters of segments joined by `/`."""
    if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise RecordError(
            f"{name!r:.80} is not a name: 1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 . _ @ + = : - in "
            "segments joined by '/', each beginning with a letter or digit"
        )


def check_path(path: str) -> None:
    """Raises RecordError unless `path` is a namespace path: a name in lower case without `:`."""
    if len(path) > NAME_CHARS_MAX or not _PATH.fullmatch(path):
        raise RecordError(
            f"{path!r:.80} is not a namespace path: 1 to {NAME_CHARS_MAX} of a-z 0-9 . _ @ + = - "
            "in segments joined by '/', each beginning with a letter or digit"
        )


def path_covers(path: str, other: str) -> bool:
    """Whether namespace `other` is `path` or lies below it."""
    return other == path or other.startswith(path + "/")


class Resource(Record):
    """One resource. `name` is absent for `all`, a path for a namespace, an id's text for an
    object or a sequence, and a name otherwise; anything else raises RecordError."""

    kind: ResourceKind
    name: str | None = None

    def __post_init__(self) -> None:
        if (self.name is None) != (self.kind is ResourceKind.ALL):
            raise RecordError("a resource has a name, except 'all', which has none")
        if self.name is None:
            return
        try:
            match self.kind:
                case ResourceKind.NAMESPACE:
                    check_path(self.name)
                case ResourceKind.OBJECT:
                    parse_any(self.name)
                case ResourceKind.SEQUENCE:
                    SequenceId.parse(self.name)
                case _:
                    check_name(self.name)
        except ContentError as error:
            raise RecordError(f"a resource of kind {self.kind.value}: {error}") from error

    def covers(self, other: Resource) -> bool:
        """Whether everything in `other` is in this resource."""
        if self.kind is ResourceKind.ALL:
            return True
        if self.name is None or other.name is None or self.kind is not other.kind:
            return False
        if self.kind is ResourceKind.NAMESPACE:
            return path_covers(self.name, other.name)
        return self.name == other.name

    def __str__(self) -> str:
        return self.kind.value if self.name is None else f"{self.kind.value} {self.name}"


ALL: Final = Resource(kind=ResourceKind.ALL)
