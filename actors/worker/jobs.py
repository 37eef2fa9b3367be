"""Jobs: what the engine works on, for whom, and how it says what came of it.

    Job:  waiting → prefilling → decoding → ended
              ╰────────┴───────────┴─→ ended (cancelled, out of time, failed)

A job belongs to the engine's thread from the moment it is submitted, but for `cancelled`, which
any thread may set to true. What it posts arrives in the room's event loop, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from actors.worker.answer import Answer
from actors.worker.prompt import Prompt
from actors.worker.seats import Found
from protocol.errors import HuginnError
from protocol.ids import ContextId, PageId, StateId
from protocol.messages.worker import Item


class Owner(NamedTuple):
    """Who a job belongs to: nobody else can cancel it, and its prefix state is its domain's."""

    domain: str
    principal: bytes


class JobKey(NamedTuple):
    owner: Owner
    response: str


class DigestKnown(NamedTuple):
    """The state digest of the job's prompt; None if it will never be known. `pages`: then those of
    all its advances, in order."""

    digest: StateId | None
    pages: tuple[PageId, ...] = ()


class Withdrawn(NamedTuple):
    """Nothing is left in the public domain."""


class Forgotten(NamedTuple):
    """Nothing is left of these domains."""


class Settled(NamedTuple):
    """The settlement is over. `complete` if the whole of it is resident; `pages`: those of all its
    advances, in order, if they are known."""

    complete: bool
    pages: tuple[PageId, ...] = ()


Event = Item | HuginnError | DigestKnown | Settled | Withdrawn | Forgotten


@dataclass(slots=True, eq=False)
class Job:
    """One answer. Times are steady nanoseconds; `stream` is -1 until one is leased. `public`: how
    many of the prompt's first advances may be shared with everybody, none after a withdrawal."""

    key: JobKey
    prompt: Prompt
    answer: Answer
    context: ContextId | None
    queued_ns: int
    deadline_ns: int
    post: Callable[[Event], None]
    cancelled: bool = False
    stream: int = -1
    next_advance: int = 0
    reused_tokens: int = 0
    found: Found = field(default_factory=Found)
    advances_issued: int = 0
    decoded_tokens: int = 0
    started_ns: int = 0
    first_ns: int = 0
    public: int = field(init=False)

    def __post_init__(self) -> None:
        self.public = self.prompt.public

    @property
    def domain(self) -> str:
        return self.key.owner.domain

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt was fed."""
        return self.next_advance == len(self.prompt.advances)

    @property
    def fed(self) -> Sequence[int]:
        """Which advances of a prompt that is prefilled were fed for it, by index."""
        whole = len(self.prompt.advances)
        return range(whole - self.advances_issued, whole)


@dataclass(slots=True, eq=False)
class Settlement:
    """Advance a prompt without an answer, when nothing else is to be done. `fed`: which of its
    advances were fed for it, by index. `public` as in `Job`."""

    key: JobKey
    prompt: Prompt
    deadline_ns: int
    post: Callable[[Event], None]
    context: ContextId | None = None
    cancelled: bool = False
    fed: list[int] = field(default_factory=list)
    public: int = field(init=False)

    def __post_init__(self) -> None:
        self.public = self.prompt.public

    @property
    def domain(self) -> str:
        return self.key.owner.domain


@dataclass(slots=True, eq=False)
class Withdrawal:
    """A block is not public any more: forget all that is. Done before anything else."""

    post: Callable[[Event], None]


@dataclass(slots=True, eq=False)
class Oblivion:
    """End what runs for these domains, and forget all that was computed for them."""

    domains: frozenset[str]
    post: Callable[[Event], None]
