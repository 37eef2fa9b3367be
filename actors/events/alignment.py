"""Reminders back in their places in a history that a client resends without them.

A reminder stands at an *anchor*: before a message of the client's (the user's message of its turn),
or, where a turn brought no message of a user's, after the last message that there was. An anchor is
a position in the client's messages and the id of the message there. When the history comes again:

1. an anchor whose message is at its position is held there (these are in order by themselves);
2. between two that are held, the others are found by content, as many as can be in their order, and
   of equal messages the earliest;
3. reminders of anchors that are not found stand at the anchor of the newest turn, in their order.

So where a client only appends, every reminder stays where it was, and the newest turn's stands
after all that was there: its prompt continues the one before. Pure functions.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from actors.events.reminder import is_reminder
from protocol.blocks import BlockType, Role
from protocol.errors import ContentError
from protocol.ids import BlockId, TextId
from protocol.messages.ropes import NewBlock
from protocol.record import encode_record

_NOT_FOUND: Final = -1
# Pairs of equal messages up to which the longest alignment is looked for: about a second.
_PAIRS_MAX: Final = 1_000_000


class Anchor(NamedTuple):
    """The message with that id at `position` of the client's messages; `after` it, or before."""

    position: int
    message: BlockId
    after: bool


class Seen(NamedTuple):
    """A history as it was: how many messages, and the digest of their ids."""

    messages: int
    digest: bytes


def block_id(block: NewBlock) -> BlockId:
    return BlockId.of(encode_record(block.block))


def seen(messages: Sequence[BlockId]) -> Seen:
    """What tells this history from others."""
    joined = b"".join(message.digest for message in messages)
    return Seen(len(messages), hashlib.sha256(joined).digest())


def fresh_from(messages: Sequence[BlockId], before: Seen | None) -> int:
    """Where what is new begins: after the history that the turn before had, if this one begins
    with it; else nothing is known to be old."""
    if before is None or len(messages) < before.messages:
        return 0
    return before.messages if seen(messages[: before.messages]) == before else 0


def check_messages(blocks: Sequence[NewBlock]) -> None:
    """Raises ContentError for no messages, for a block that only this room makes, and for one
    whose content is not what it names."""
    if not blocks:
        raise ContentError("a turn begins with at least one message")
    if any(is_reminder(block) for block in blocks):
        raise ContentError("reminders of events are made here: send the conversation without them")
    for block in blocks:
        content = TextId.of(block.content)
        if block.block.source.object != content:
            raise ContentError(
                f"a block names {block.block.source.object}, its content is {content}"
            )


def newest_anchor(
    blocks: Sequence[NewBlock], messages: Sequence[BlockId], fresh: int, offset: int = 0
) -> Anchor:
    """Where the newest turn's reminder stands: before the last message of a user's from `fresh` on,
    or after all. `offset` messages stand before these in the conversation."""
    for index in range(len(blocks) - 1, fresh - 1, -1):
        block = blocks[index].block
        if block.role is Role.USER and block.type is BlockType.USER_TURN:
            return Anchor(offset + index, messages[index], after=False)
    last = len(blocks) - 1
    return Anchor(offset + last, messages[last], after=True)


def realign(anchors: Sequence[Anchor], messages: Sequence[BlockId]) -> list[Anchor | None]:
    """Each anchor where `messages` hold it, or None. Anchors come in the order of positions;
    several may be at one message."""
    places = sorted({(anchor.position, anchor.message) for anchor in anchors})
    held = dict(zip(places, _hold(places, messages), strict=True))
    found: list[Anchor | None] = []
    for anchor in anchors:
        position = held[anchor.position, anchor.message]
        found.append(None if position == _NOT_FOUND else anchor._replace(position=position))
    return found


def _hold(places: Sequence[tuple[int, BlockId]], messages: Sequence[BlockId]) -> list[int]:
    held = [
        position if position < len(messages) and messages[position] == message else _NOT_FOUND
        for position, message in places
    ]
    start, low = 0, 0
    for end in [*(i for i, at in enumerate(held) if at != _NOT_FOUND), len(held)]:
        high = held[end] if end < len(held) else len(messages)
        if start < end:
            wanted = [message for _, message in places[start:end]]
            held[start:end] = [
                at if at == _NOT_FOUND else low + at for at in _in_order(wanted, messages[low:high])
            ]
        start, low = end + 1, high + 1
    return held


def _in_order(wanted: Sequence[BlockId], messages: Sequence[BlockId]) -> list[int]:
    """A longest common subsequence, each of `wanted` by its index in `messages`: by Hunt and
    Szymanski, where the sequences that end earliest are kept."""
    positions: dict[BlockId, list[int]] = defaultdict(list)
    for index, message in enumerate(messages):
        positions[message].append(index)
    if sum(len(positions.get(message, ())) for message in wanted) > _PAIRS_MAX:
        return _earliest(wanted, positions)
    ends: list[int] = []
    links: list[tuple[int, int, int]] = []  # (wanted, position, the link before)
    heads: list[int] = []
    for index, message in enumerate(wanted):
        # From the last to the first, so that one of `wanted` is used once.
        for position in reversed(positions.get(message, ())):
            length = bisect_left(ends, position)
            link = (index, position, heads[length - 1] if length else _NOT_FOUND)
            if length == len(ends):
                ends.append(position)
                heads.append(len(links))
            elif position < ends[length]:
                ends[length] = position
                heads[length] = len(links)
            else:
                continue
            links.append(link)
    held = [_NOT_FOUND] * len(wanted)
    at = heads[-1] if heads else _NOT_FOUND
    while at != _NOT_FOUND:
        index, position, at = links[at]
        held[index] = position
    return held


def _earliest(wanted: Sequence[BlockId], positions: Mapping[BlockId, Sequence[int]]) -> list[int]:
    """Each of `wanted` at its first place after the one before: in order, if not the most."""
    held: list[int] = []
    low = 0
    for message in wanted:
        there = positions.get(message, ())
        index = bisect_left(there, low)
        held.append(there[index] if index < len(there) else _NOT_FOUND)
        low = max(low, held[-1] + 1)
    return held


def woven(
    blocks: Sequence[NewBlock], reminders: Mapping[Anchor, Sequence[NewBlock]]
) -> list[NewBlock]:
    """`blocks` with reminders at their anchors; positions count from the first of `blocks`."""
    before: dict[int, list[NewBlock]] = defaultdict(list)
    after: dict[int, list[NewBlock]] = defaultdict(list)
    for anchor, told in reminders.items():
        (after if anchor.after else before)[anchor.position] += told
    conversation: list[NewBlock] = []
    for index, block in enumerate(blocks):
        conversation += before.get(index, ())
        conversation.append(block)
        conversation += after.get(index, ())
    return conversation
