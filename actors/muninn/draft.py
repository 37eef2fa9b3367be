"""Changes to one index that belong together, before they are made.

What is reported and what is read back from the log on a rebuild go through the same steps here:
that is why the two give the same index.
"""

from __future__ import annotations

import msgspec

from actors.muninn.evidence import EvidenceLog, Examined, Kept, kept
from actors.muninn.guard import Guard, Step, lose_inputs, witness
from actors.muninn.index import Header, Index, Row, Suspicion
from protocol.ids import InvocationId
from store.tables import Append, Change, LogHead


class Draft:
    """On top of `index` and `header`. `changes` are to be made as one transaction; `at_ns` is what
    is written down as its time."""

    def __init__(
        self, index: Index, log: EvidenceLog, header: Header, at_ns: int | None = None
    ) -> None:
        self._index = index
        self._log = log
        self._at_ns = at_ns
        self._guards: dict[InvocationId, Guard] = {}
        # Evidence that came first in this draft, and may not be in the log yet.
        self._firsts: dict[InvocationId, bytes] = {}
        self.header = header
        self.changes: list[Change] = []
        self.appended: list[int] = []  # what each Append among the changes has to give back
        self.suspects: set[InvocationId] = set()

    def guard(self, key: InvocationId) -> Guard | None:
        """As it will be. Raises CorruptObject, StoreFault."""
        return self._guards.get(key) or self._index.guard(key)

    def preview(self, entry: Examined | InvocationId) -> Step | None:
        """What `entry` would do; None: inputs are gone of what is not known."""
        if isinstance(entry, Examined):
            return witness(self.guard(entry.key), entry, self.header.seq + 1)
        guard = self.guard(entry)
        return None if guard is None else lose_inputs(guard)

    def append(self, entry: Examined | InvocationId, step: Step) -> None:
        """Take `step`, with its entry in the log."""
        at_ns = self._at_ns
        if isinstance(entry, Examined):
            written = kept(entry, at_ns)
        else:
            written = Kept(v=1, key=entry, at_ns=at_ns)
        self.write(written)
        self.take(entry, step)

    def write(self, entry: Kept) -> None:
        """Add `entry` to the log."""
        change: Append = self._log.append(entry)
        self.move(self._log.after(LogHead(self.header.seq, self.header.digest), change))
        self.changes.append(change)
        self.appended.append(self.header.seq)

    def move(self, head: LogHead) -> None:
        """The index knows the log up to `head` now."""
        self.header = msgspec.structs.replace(self.header, seq=head.seq, digest=head.digest)

    def take(self, entry: Examined | InvocationId, step: Step) -> None:
        """Take `step` for an entry that is in the log."""
        key = entry.key if isinstance(entry, Examined) else entry
        before = self.guard(key)
        self._guards[key] = step.guard
        self.changes.append(self._index.put_guard(key, step.guard))
        if before is None:
            self.header = msgspec.structs.replace(self.header, guards=self.header.guards + 1)
        if step.guard.state != "active":
            self.changes += self._index.drop_row(key)
        if not isinstance(entry, Examined):
            return
        if before is None:
            self._firsts[key] = entry.signed
        if step.guard.state == "active":
            self.refresh(entry, step)
        elif before is not None and before.state != "quarantined":
            self._suspect(entry, before)

    def refresh(self, entry: Examined, step: Step) -> None:
        """Make active evidence resident, as the most recently used, if the guard knows it."""
        if step.guard.state == "active" and entry.id.digest in step.guard.evidence:
            row = Row(invocation=entry.invocation, evidence=entry.signed, origin=entry.origin)
            self.changes += self._index.renew_row(entry.key, row)

    def _suspect(self, entry: Examined, before: Guard) -> None:
        first = self._firsts.get(entry.key)
        if first is None:
            found = self._log.read(before.seq)
            first = None if found is None else found.evidence
        sides = [entry.signed] if first is None else [first, entry.signed]
        suspicion = Suspicion(invocation=entry.invocation, evidence=sides)
        self.changes.append(self._index.put_suspicion(entry.key, suspicion))
        self.suspects.add(entry.key)
        self.header = msgspec.structs.replace(self.header, suspects=self.header.suspects + 1)
