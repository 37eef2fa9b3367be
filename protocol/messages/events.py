"""Asked of the events room: what happened, and turns that know of it.

Sources and sessions lie in namespaces and are called by a name there; what does not exist and what
lies outside the caller's view are one answer (NotVisible). A turn is begun, renewed while its
answer streams, and finished or abandoned; marks move with the beginning of a turn and nothing else.
"""

from __future__ import annotations

from typing import Final, Literal

from protocol.blocks import Role
from protocol.ids import ContextId, ContractId, SequenceId, SourceId
from protocol.messages import Empty, Operation
from protocol.messages.ropes import NewBlock
from protocol.messages.sources import (
    EVENTS_MAX,
    AddSource,
    Appended,
    AppendedEvent,
    AppendEvents,
    EventPage,
    Follow,
    Gap,
    KindRow,
    Kinds,
    ListSources,
    NewEvent,
    ReadEvents,
    RegisterKind,
    RemoveSource,
    SourceRow,
    Sources,
    StreamItem,
)
from protocol.record import Record

# The messages about sources are of the same room, so they are named here too.
__all__ = [
    "EVENTS_MAX",
    "AddSource",
    "AppendEvents",
    "Appended",
    "AppendedEvent",
    "EventPage",
    "Follow",
    "Gap",
    "KindRow",
    "Kinds",
    "ListSources",
    "NewEvent",
    "ReadEvents",
    "RegisterKind",
    "RemoveSource",
    "SourceRow",
    "Sources",
    "StreamItem",
]

# The reason of the Conflict for a turn's key that came with another input before.
KEY_REUSED: Final = "key_reused"
TERMS_BYTES: Final = 32
# Why an answer ended: by itself, or for want of room or time.
Finish = Literal["stop", "length"]
# What a turn may be noted with: a response's parameters, 16 pairs of metadata among them.
NOTE_BYTES_MAX: Final = 64 * 1024


# -- sessions ------------------------------------------------------------------------------------


class OpenSession(Record):
    """Make a session in `namespace`, or give again the one at `place`.

    `place` is where a transport's conversation happens (`matrix:!room:host`): one session for each,
    made on first use. `scope` are names of sources (None: all that the principal may observe). From
    `now`, the session is unaware of what lies in the logs already; from `beginning`, its first turn
    says what does. For who may not read the namespace nobody else has a session at `place`, and its
    own, once it has a turn, is followed by another.
    """

    namespace: str
    persona: str
    since: Literal["beginning", "now"]
    scope: list[str] | None = None
    place: str | None = None


class AskSession(Record):
    """Ask about, or remove, the session `id`."""

    namespace: str
    id: str


class ListSessions(Record):
    namespace: str


class Mark(Record):
    """The newest entry of a source that a lineage has seen."""

    source: SourceId
    seq: int


class SessionRow(Record):
    """One session. `head` is its newest turn; `turns` counts all. Times are Unix nanoseconds.
    `injected`, `gaps` and `dropped` count events since it was made: told, seen as gaps, and left
    to a count by the render budget (EVT-14)."""

    namespace: str
    id: str
    persona: str
    created_ns: int
    used_ns: int
    turns: int
    marks: list[Mark]
    injected: int
    gaps: int
    dropped: int
    scope: list[str] | None = None
    place: str | None = None
    head: str | None = None


class Sessions(Record):
    sessions: list[SessionRow]


class TurnRow(Record):
    """One turn, as it is listed. `state`: `open` (a lease holds it), `finished`, `unfinished`
    (abandoned, or its lease ran out). `sequence` and `context` where its answer is kept."""

    id: str
    number: int
    state: Literal["open", "finished", "unfinished"]
    began_ns: int
    injected: int
    reminders: list[str]
    parent: str | None = None
    response: str | None = None
    sequence: SequenceId | None = None
    context: ContextId | None = None


class Turns(Record):
    """A session and its turns, oldest first, at most the newest 1,000."""

    session: SessionRow
    turns: list[TurnRow]


class Preview(Record):
    """`assemble_prompt_context`: what a turn that began now would be told. Moves nothing.
    `parent`: as of that turn instead of the newest."""

    namespace: str
    session: str
    parent: str | None = None
    tokens_max: int | None = None


class Previewed(Record):
    """`text` is the reminder as it reads, empty when there is nothing new. `tokens` of the content;
    `events` it stands for, of which `folded` are only counted."""

    text: str
    tokens: int
    events: int
    folded: int
    gaps: list[Gap]
    marks: list[Mark]


# -- turns ---------------------------------------------------------------------------------------


class BeginTurn(Record):
    """Begin a turn of `session`.

    Exactly one of `history` (all messages, as a client that keeps its own history resends them) and
    `input` (only what is new: the session has the rest). `parent` is the turn to continue (None:
    the newest; with `history` always the newest); `parent_response` names it by its response,
    and then `session` may be left out. `key`: a turn with a key that the session has seen is not
    begun again, unless it was left unfinished: what became of it is answered. It came with the same
    input and parent then, and the same `terms`, a digest (TERMS_BYTES) of what else decides the
    answer and only the transport knows: else Conflict, its reason KEY_REUSED. `wait_ns_max`: how
    long to wait for a turn that is open on the same parent, before Conflict. A session that has
    turns, or that another opened, is there for those alone who may read the namespace.
    """

    namespace: str
    response: str
    wait_ns_max: int
    session: str | None = None
    history: list[NewBlock] | None = None
    input: list[NewBlock] | None = None
    parent: str | None = None
    parent_response: str | None = None
    key: str | None = None
    tokens_max: int | None = None
    terms: bytes | None = None


class TurnUsage(Record):
    """What an answer came to in tokens, as it was told: `reused_tokens` of the prompt are 0 where
    that was not for the one who was told (AUT-7)."""

    prompt_tokens: int
    output_tokens: int
    reused_tokens: int


class BegunTurn(Record):
    """The turn, and `blocks`, the whole conversation with every reminder in its place.

    The turn is open until `lease_ns` (Unix time), and is to be renewed before. `reminders` counts
    the blocks that are reminders, `injected` the events that this turn tells first. `answer`: the
    turn was finished before, under the same key, with this text; nothing is open then. What else
    was told of it comes with it: `response`, why it ended (`finish`), its `usage`, whose reuse is
    for the holder alone that began it, and the `context` that it answered; the last three are
    absent for a turn that was kept without them.
    """

    session: str
    turn: str
    blocks: list[NewBlock]
    lease_ns: int
    reminders: int
    injected: int
    gaps: list[Gap]
    answer: str | None = None
    response: str | None = None
    finish: Finish | None = None
    usage: TurnUsage | None = None
    context: ContextId | None = None


class RenewTurn(Record):
    """Hold the turn for longer; Conflict if its lease ran out and another turn continued it. To
    this and what follows, turns of others are there for those alone who may read the namespace."""

    namespace: str
    session: str
    turn: str


class Renewed(Record):
    lease_ns: int


class OutputBlock(Record):
    """What the model gave: text, and where ids are kept, the packed ids that were generated under
    `tokenizer`. The block is minted by the events room: `exact-tokens` with ids, else text."""

    text: str
    role: Role
    ids: bytes | None = None
    tokenizer: ContractId | None = None


class FinishTurn(Record):
    """Keep the answer; durable when answered, before the client hears its end. Idempotent.

    `note` is given back with the response (`AskResponse`) and means nothing here: at most
    NOTE_BYTES_MAX, and no content, which is the ropes room's. `finish` and `usage` are what is told
    of the answer, for when its key comes again.
    """

    namespace: str
    session: str
    turn: str
    answer: OutputBlock
    context: ContextId | None = None
    note: bytes | None = None
    finish: Finish | None = None
    usage: TurnUsage | None = None


class FinishedTurn(Record):
    """`blocks`: the conversation with its answer, as the next turn will find it; none for one who
    may not read the namespace. `sequence`: the same, as it is kept."""

    sequence: SequenceId
    blocks: list[NewBlock]


class AbandonTurn(Record):
    """Give the turn up: it stays in its lineage, unfinished, and the next turn on it carries its
    reminder. Does nothing to a turn that is finished."""

    namespace: str
    session: str
    turn: str


class AskResponse(Record):
    """Ask which finished turn has the answer called `response`, in a session of `namespace`; or
    forget that name: the turn stays in its lineage, and nothing finds it by the response any more.
    NotVisible for a response that is unknown, forgotten, or of a turn that is not finished."""

    namespace: str
    response: str


class ResponseRow(Record):
    """The turn that a response belongs to, and the note that it was finished with."""

    session: str
    turn: TurnRow
    note: bytes | None = None


class EventsStatus(Record):
    """For the operator. Counters never reset while the room lives: `produced`, `delivered`,
    `dropped`, `refilled`, `gaps`, `injected`, by name."""

    sources: int
    sessions: int
    subscribers: int
    counters: dict[str, int]


OPERATIONS: Final[dict[str, Operation]] = {
    "add_source": Operation(AddSource, SourceRow, "emit"),
    "remove_source": Operation(RemoveSource, Empty, "erase"),
    "sources": Operation(ListSources, Sources, "observe"),
    "append": Operation(AppendEvents, Appended, "emit"),
    "read": Operation(ReadEvents, EventPage, "observe"),
    "follow": Operation(Follow, StreamItem, "observe", streams=True),
    "register_kind": Operation(RegisterKind, KindRow, "emit"),
    "kinds": Operation(ListSources, Kinds, "observe"),
    "open_session": Operation(OpenSession, SessionRow, "generate"),
    "sessions": Operation(ListSessions, Sessions, "observe"),
    "turns": Operation(AskSession, Turns, "observe"),
    "remove_session": Operation(AskSession, Empty, "erase"),
    "preview": Operation(Preview, Previewed, "observe"),
    "begin_turn": Operation(BeginTurn, BegunTurn, "generate"),
    "renew_turn": Operation(RenewTurn, Renewed, "generate"),
    "finish_turn": Operation(FinishTurn, FinishedTurn, "generate"),
    "abandon_turn": Operation(AbandonTurn, Empty, "generate"),
    "response": Operation(AskResponse, ResponseRow, "observe"),
    "forget_response": Operation(AskResponse, Empty, "generate"),
    "status": Operation(Empty, EventsStatus, "operate"),
}
