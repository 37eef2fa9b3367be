"""One source's log as one reader knows it: a set of signed entries that only grows.

What is known of a source is a set of entries by id, and to learn more is to take the union, so it
does not matter in which order entries come, or how often (EVT-2). Of that set the log proper is the
dense part: numbers 1 … head, each naming the one before it. What came too early is parked until the
numbers before it are there; there is a bound to it, and `missing` says what to ask for.

Two entries for one number, both signed, are equivocation: the source wrote two histories. The first
that was accepted stays, the other is given back as evidence, and from then on the log stands still,
because whatever follows belongs to one of two stories. Nothing is ever merged.

    offer(entry) → accepted    the next of the log; what was parked behind it follows in the answer
                 → known       held already, in the log or parked
                 → parked      valid, and waits for numbers before it (or the log stands still)
                 → full        valid, and there was no room to park it: ask again later
                 → forked      valid, for a number that another entry has: evidence
                 → unlinked    the next number, and it names another entry as the one before it
                 → backwards   the next number, and its time is not after the one before it
                 → forgotten   for a number that is kept no longer: cannot be compared
                 → foreign     signed for another source
                 → unsigned    the source did not sign it
                 → malformed   not an entry
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from protocol.errors import AuthorityError, EncodingError, RecordError
from protocol.events import Event, open_entry
from protocol.ids import EventId
from protocol.limits import PARKED_BYTES_MAX, PARKED_MAX


class Verdict(str, Enum):
    """What became of an entry: see the module's table."""

    ACCEPTED = "accepted"
    KNOWN = "known"
    PARKED = "parked"
    FULL = "full"
    FORKED = "forked"
    UNLINKED = "unlinked"
    BACKWARDS = "backwards"
    FORGOTTEN = "forgotten"
    FOREIGN = "foreign"
    UNSIGNED = "unsigned"
    MALFORMED = "malformed"


# The source did sign such an entry, and an honest one never would: it is kept as evidence.
EVIDENCE: Final = frozenset({Verdict.FORKED, Verdict.UNLINKED, Verdict.BACKWARDS})


class Entry(NamedTuple):
    """An event with its id and the bytes in which it was signed."""

    id: EventId
    event: Event
    body: bytes


class Outcome(NamedTuple):
    """A verdict on `entry` (None: the bytes were refused before there was one), and why."""

    verdict: Verdict
    entry: Entry | None
    reason: str = ""


class Position(NamedTuple):
    """Where a log ends: the newest number (0: none yet), its entry's id and its time."""

    seq: int
    id: EventId | None
    hlc: int


START: Final = Position(0, None, 0)


class MissingRange(NamedTuple):
    """Numbers `first` … `last` are to be asked for."""

    first: int
    last: int


class SourceLog:
    """What is known of the source with `public_key`, from `head` on.

    `id_at` gives the id of the kept entry with a number up to the head, None for one that is kept
    no longer. `stands_still`: there is evidence of equivocation from before. The accepted entries
    are the caller's to keep; if that fails, this object is ahead of what is kept, and is made anew.
    """

    def __init__(
        self,
        public_key: bytes,
        *,
        id_at: Callable[[int], EventId | None],
        head: Position = START,
        stands_still: bool = False,
        parked_max: int = PARKED_MAX,
        parked_bytes_max: int = PARKED_BYTES_MAX,
    ) -> None:
        self.head = head
        self.stands_still = stands_still
        self._public_key = public_key
        self._id_at = id_at
        self._parked_max = parked_max
        self._parked_bytes_max = parked_bytes_max
        # In the order in which they came: the first of two for one number is looked at first.
        self._parked: dict[EventId, Entry] = {}
        self._parked_bytes = 0

    @property
    def parked(self) -> int:
        """How many entries wait."""
        return len(self._parked)

    def missing(self) -> MissingRange | None:
        """What to ask for so that the first parked entry can follow; None if nothing lacks."""
        if not self._parked or self.stands_still:
            return None
        last = min(entry.event.seq for entry in self._parked.values()) - 1
        return MissingRange(self.head.seq + 1, last) if last > self.head.seq else None

    def offer(self, body: bytes) -> list[Outcome]:
        """What becomes of the entry in `body`, and then of each parked one that it lets go on, or
        that gives way to it.

        Never raises for what is in `body`.
        """
        try:
            id, event = open_entry(body, self._public_key)
        except AuthorityError as error:
            foreign = error.step == "source"
            verdict = Verdict.FOREIGN if foreign else Verdict.UNSIGNED
            return [Outcome(verdict, None, error.message)]
        except (EncodingError, RecordError) as error:
            return [Outcome(Verdict.MALFORMED, None, error.message)]
        entry = Entry(id, event, body)
        if event.seq <= self.head.seq:
            return [self._compared(entry)]
        if id in self._parked:
            return [Outcome(Verdict.KNOWN, entry)]
        if event.seq > self.head.seq + 1 or self.stands_still:
            return self._park(entry)
        outcome = self._next(entry)
        if outcome.verdict is not Verdict.ACCEPTED:
            return [outcome]
        return [outcome, *self._release()]

    def _compared(self, entry: Entry) -> Outcome:
        """An entry whose number is taken, beside the one that has it."""
        seq = entry.event.seq
        held = self.head.id if seq == self.head.seq else self._id_at(seq)
        if held is None:
            return Outcome(Verdict.FORGOTTEN, entry, f"entry {seq} is kept no longer")
        if held == entry.id:
            return Outcome(Verdict.KNOWN, entry)
        return self._forked(entry, held)

    def _forked(self, entry: Entry, held: EventId) -> Outcome:
        self.stands_still = True
        reason = (
            f"{entry.event.source} signed two entries for number {entry.event.seq}: {held}, which "
            f"stays, and {entry.id}"
        )
        return Outcome(Verdict.FORKED, entry, reason)

    def _next(self, entry: Entry) -> Outcome:
        """Accepts the entry with the next number, if it follows the head."""
        event, head = entry.event, self.head
        if event.prev != head.id:
            reason = f"entry {event.seq} follows {event.prev}, and entry {head.seq} is {head.id}"
            return Outcome(Verdict.UNLINKED, entry, reason)
        if event.hlc <= head.hlc:
            reason = f"entry {event.seq} is of {event.hlc} ns, entry {head.seq} of {head.hlc}"
            return Outcome(Verdict.BACKWARDS, entry, reason)
        self.head = Position(event.seq, entry.id, event.hlc)
        return Outcome(Verdict.ACCEPTED, entry)

    def _release(self) -> Iterator[Outcome]:
        """Goes on with what was parked, as far as it is dense."""
        while True:
            seq = self.head.seq + (0 if self.stands_still else 1)
            waiting = [each for each in self._parked.values() if each.event.seq <= seq]
            if not waiting:
                return
            for entry in waiting:
                self._unpark(entry)
                later = entry.event.seq > self.head.seq
                yield self._next(entry) if later else self._compared(entry)

    def _park(self, entry: Entry) -> list[Outcome]:
        """Keeps `entry` for later; the highest numbers give way when there is no room."""
        self._parked[entry.id] = entry
        self._parked_bytes += len(entry.body)
        gone: list[Outcome] = []
        while len(self._parked) > self._parked_max or self._parked_bytes > self._parked_bytes_max:
            last = max(self._parked.values(), key=lambda each: (each.event.seq, each.id))
            self._unpark(last)
            reason = f"{self._parked_max} entries and {self._parked_bytes_max} bytes may wait"
            gone.append(Outcome(Verdict.FULL, last, reason))
        if entry.id not in self._parked:
            return [gone.pop(), *gone]
        why = "the log stands still" if self.stands_still else "not all before it are here yet"
        return [Outcome(Verdict.PARKED, entry, why), *gone]

    def _unpark(self, entry: Entry) -> None:
        del self._parked[entry.id]
        self._parked_bytes -= len(entry.body)
