"""The difference of two sequences, at the cost of what differs (SEQ-7).

What is the same at both ends is found first and left out, so the first run of the answer begins
exactly where the sequences part. What lies between is compared level by level from the top: nodes
that stand on both sides, at whatever position, are the same blocks and are never opened; the rest
is opened and compared one level down. Nodes read: those on the way to a change.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.rope.align import align
from protocol.rope.node import Entry, Slot, to_entry
from protocol.rope.read import Reader
from protocol.rope.tree import Rope
from protocol.rope.trim import Side, common_head, common_tail


class Run(NamedTuple):
    """From block `a` of the first and `b` of the second sequence on, `removed` gave way to
    `inserted`; one of the two may be empty, not both."""

    a: int
    b: int
    removed: tuple[Entry, ...]
    inserted: tuple[Entry, ...]


class Diff(NamedTuple):
    """The runs that turn the first sequence into the second, in order.

    `first` is the first block at which they differ (the same number on both sides, and the length
    of their common prefix), None if they are equal.
    """

    first: int | None
    runs: tuple[Run, ...]


class _Piece(NamedTuple):
    """A slot of one side: the block at which it starts, its level, its node's place."""

    slot: Slot
    start: int
    level: int
    last: bool


class _Gap(NamedTuple):
    """Where the sides are not known to be equal: first blocks, and the pieces from there on."""

    a: int
    b: int
    a_pieces: list[_Piece]
    b_pieces: list[_Piece]


class _Window(NamedTuple):
    """A side, and the blocks [start, stop) of it that are compared."""

    side: Side
    start: int
    stop: int

    def whole(self, piece: _Piece) -> bool:
        return self.start <= piece.start and piece.start + piece.slot.blocks <= self.stop

    def open(self, pieces: list[_Piece], level: int) -> list[_Piece]:
        """`pieces` with each node of `level` replaced by those of its slots that are in here."""
        opened = []
        for piece in pieces:
            if piece.level != level:
                opened.append(piece)
                continue
            node = self.side.reader.load(piece.slot, level - 1, last=piece.last)
            opened += self.within(node.slots, piece.start, level - 1, piece.last)
        return opened

    def within(self, slots: tuple[Slot, ...], at: int, level: int, last: bool) -> list[_Piece]:
        pieces: list[_Piece] = []
        if self.start == self.stop:
            return pieces
        for index, slot in enumerate(slots):
            if self.start < at + slot.blocks and at < self.stop:
                pieces.append(_Piece(slot, at, level, last and index + 1 == len(slots)))
            at += slot.blocks
        return pieces


def diff(a: Rope, b: Rope) -> Diff:
    """What turns the sequence `a` into `b`.

    The runs are few, not always the fewest: see `align`. Raises RopeError and CorruptObject for
    nodes that are not what they should be, and what the sources raise.
    """
    if a.root == b.root:
        return Diff(None, ())
    a_side, b_side = _side(a), _side(b)
    head = common_head(a_side, b_side)
    tail = common_tail(a_side, b_side, min(a.count, b.count) - head)
    a_window = _Window(a_side, head, a.count - tail)
    b_window = _Window(b_side, head, b.count - tail)
    gaps = [_Gap(head, head, _top_pieces(a_window), _top_pieces(b_window))]
    for level in range(max(a.top.level, b.top.level), 0, -1):
        gaps = [
            _Gap(
                gap.a,
                gap.b,
                a_window.open(gap.a_pieces, level),
                b_window.open(gap.b_pieces, level),
            )
            for whole in gaps
            for gap in _narrow(whole, level, a_window, b_window)
        ]
    runs = [_run(gap) for whole in gaps for gap in _narrow(whole, 0, a_window, b_window)]
    return Diff(head, tuple(runs))


def _side(rope: Rope) -> Side:
    return Side(rope.top, Reader(rope.source, kept={rope.root: rope.top}))


def _top_pieces(window: _Window) -> list[_Piece]:
    top = window.side.top
    return window.within(top.slots, 0, top.level, True)


def _narrow(gap: _Gap, level: int, a_window: _Window, b_window: _Window) -> list[_Gap]:
    """What is left of `gap` between the pieces of `level` that both sides have."""
    narrowed = []
    x = y = 0
    a_at, b_at = gap.a, gap.b
    matches = align(_keys(gap.a_pieces, level, a_window), _keys(gap.b_pieces, level, b_window))
    for match in matches:
        narrowed.append(_Gap(a_at, b_at, gap.a_pieces[x : match.a], gap.b_pieces[y : match.b]))
        x, y = match.a + match.length, match.b + match.length
        blocks = sum(piece.slot.blocks for piece in gap.a_pieces[match.a : x])
        a_at = gap.a_pieces[match.a].start + blocks
        b_at = gap.b_pieces[match.b].start + blocks
    narrowed.append(_Gap(a_at, b_at, gap.a_pieces[x:], gap.b_pieces[y:]))
    return [gap for gap in narrowed if gap.a_pieces or gap.b_pieces]


def _keys(pieces: list[_Piece], level: int, window: _Window) -> list[object]:
    # A piece that reaches out of the window, or is not of this level yet, equals no other.
    return [
        piece.slot if piece.level == level and window.whole(piece) else object() for piece in pieces
    ]


def _run(gap: _Gap) -> Run:
    return Run(
        gap.a,
        gap.b,
        tuple(to_entry(piece.slot) for piece in gap.a_pieces),
        tuple(to_entry(piece.slot) for piece in gap.b_pieces),
    )
