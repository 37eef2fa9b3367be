"""Turns as they are kept, and which way they go.

    open ──finish──► finished            a lease holds an open turn; it is renewed while the answer
      │                                  streams, and a turn whose lease ran out has crashed
      └──abandon, or continued───► unfinished

A turn carries everything that its beginning decided, so that beginning one is one row: the reminder
that it was first to tell, where every reminder then stood, and the marks before and after. What is
new in its conversation stays in the row until the answer is kept in the ropes room with it; from
then on the row names the stored sequence.
"""

from __future__ import annotations

from typing import Final, Literal

from actors.events.alignment import Anchor, Seen
from protocol.errors import Conflict
from protocol.ids import BlockId, ContextId, NodeId, SequenceId
from protocol.messages.events import Finish, Gap, Mark, TurnRow, TurnUsage
from protocol.messages.ropes import NewBlock
from protocol.record import Record

State = Literal["open", "finished", "unfinished"]
Step = Literal["renew", "finish", "abandon", "continue"]

# What is not here may not happen. `continue`: another turn builds on one whose lease ran out.
STEPS: Final[dict[tuple[State, Step], State]] = {
    ("open", "renew"): "open",
    ("open", "finish"): "finished",
    ("open", "abandon"): "unfinished",
    ("open", "continue"): "unfinished",
    ("finished", "finish"): "finished",
    ("finished", "abandon"): "finished",
    ("finished", "continue"): "finished",
    ("unfinished", "abandon"): "unfinished",
    ("unfinished", "continue"): "unfinished",
}


class Kept(Record):
    """A conversation as the ropes room has it: `blocks` of them, reminders too."""

    root: NodeId
    sequence: SequenceId
    blocks: int


class Placed(Record):
    """The reminder of turn `turn` stands at this anchor, from the turn that says so onwards."""

    turn: int
    position: int
    message: BlockId
    after: bool

    @property
    def anchor(self) -> Anchor:
        return Anchor(self.position, self.message, self.after)

    @classmethod
    def at(cls, turn: int, anchor: Anchor) -> Placed:
        return cls(turn=turn, position=anchor.position, message=anchor.message, after=anchor.after)


class Turn(Record):
    """Turn `number` (from 1) of a session.

    `reminder` is what it is the first to tell; `placed` the anchors that changed with it. The
    conversation that it asked about is the first `keep` blocks of `base` and then `tail`; once
    finished it is `kept`, whose last block is the answer. `messages` are the client's in it,
    without the answer; `history` is what it resent, if it did. `lease_ns` as of the beginning.
    `begun_by`: the holder that began it (`scope.holder`). `asked` is the digest of what came with
    its `key` (`replays`), and `finish` and `usage` are what was told with the answer.
    """

    v: Literal[1]
    id: str
    number: int
    state: State
    response: str
    began_ns: int
    lease_ns: int
    marks_before: list[Mark]
    marks_after: list[Mark]
    gaps: list[Gap]
    events: int
    folded: int
    placed: list[Placed]
    messages: int
    keep: int
    tail: list[NewBlock]
    parent: int | None = None
    key: str | None = None
    reminder: NewBlock | None = None
    history_digest: bytes | None = None
    base: Kept | None = None
    kept: Kept | None = None
    answer: BlockId | None = None
    context: ContextId | None = None
    note: bytes | None = None
    begun_by: bytes | None = None
    asked: bytes | None = None
    finish: Finish | None = None
    usage: TurnUsage | None = None

    @property
    def injected(self) -> int:
        """Events that are told whole."""
        return self.events - self.folded

    @property
    def history(self) -> Seen | None:
        """What the client resent; None for a turn that continued what is kept."""
        if self.history_digest is None:
            return None
        return Seen(self.messages, self.history_digest)

    @property
    def messages_after(self) -> int:
        """The client's messages that a turn on this one finds."""
        return self.messages + (self.state == "finished")


def step(turn: Turn, way: Step) -> State:
    """The state of `turn` after `way`; Conflict if it does not go there."""
    after = STEPS.get((turn.state, way))
    if after is None:
        raise Conflict(
            f"turn {turn.id} is {turn.state}: it cannot {way} any more; begin another turn",
            reason=f"turn_{turn.state}",
            turn=turn.id,
        )
    return after


def is_live(turn: Turn, lease_ns: int, now_ns: int) -> bool:
    """Whether somebody holds the turn, whose lease runs until `lease_ns`."""
    return turn.state == "open" and now_ns < lease_ns


def listed(turn: Turn, parent: str | None, *, live: bool) -> TurnRow:
    """The turn as it is shown, with the reminder that its prompt was the first to hold."""
    return TurnRow(
        id=turn.id,
        number=turn.number,
        # A lease that ran out is seen at once, not when somebody continues.
        state="unfinished" if turn.state == "open" and not live else turn.state,
        began_ns=turn.began_ns,
        injected=turn.injected,
        reminders=[] if turn.reminder is None else [turn.reminder.content.decode("utf-8")],
        parent=parent,
        response=turn.response,
        sequence=turn.kept.sequence if turn.kept else None,
        context=turn.context,
    )
