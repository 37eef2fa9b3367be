"""What a turn's key stands for: what it first came with, and the answer that it is given again.

A request that is sent again is answered as it was. One with the same key that asks anything else
is a mistake of its client's: an answer to another question would look like one to this one, so it
is refused, as an append's is. What came with a key is its digest: the messages, the turn that it
continues, and the transport's own `terms`. The response's name and how long to wait are not: they
differ from try to try. Nor is anything that is decided here, such as the default model: what was
answered stays answered, whatever has changed since.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from actors.events.alignment import block_id, seen
from actors.events.turns import Turn
from protocol import cbor
from protocol.errors import Conflict
from protocol.messages.events import KEY_REUSED, BeginTurn, BegunTurn

_DOMAIN: Final = b"huginn.turn-asked/1\0"


def asked_digest(ask: BeginTurn) -> bytes | None:
    """The digest of what `ask` brings with its key; None without a key."""
    if ask.key is None:
        return None
    given = seen([block_id(block) for block in ask.history or ask.input or []])
    asked: list[cbor.Value] = [
        ask.history is not None,
        given.messages,
        given.digest,
        ask.parent,
        ask.parent_response,
        ask.tokens_max,
        ask.terms,
    ]
    return hashlib.sha256(_DOMAIN + cbor.encode(asked)).digest()


def check_asked(turn: Turn, ask: BeginTurn) -> None:
    """Raises Conflict unless `ask`, with the key of `turn`, brings what that was begun with. A turn
    that was kept before this was remembered is taken for the same."""
    if turn.asked is not None and turn.asked != asked_digest(ask):
        raise Conflict(
            "this key came with another input, or other parameters, before: take a new key for "
            "each turn",
            reason=KEY_REUSED,
            turn=turn.id,
        )


def told_again(begun: BegunTurn, turn: Turn, holder: bytes | None) -> BegunTurn:
    """`begun`, whose last block is the answer of `turn`, as `holder` is told it again: what was
    reused is for the one alone that it was told to, in whose domain it lay."""
    usage = turn.usage
    if usage is not None and holder != turn.begun_by:
        usage = msgspec.structs.replace(usage, reused_tokens=0)
    return msgspec.structs.replace(
        begun,
        blocks=begun.blocks[:-1],
        answer=begun.blocks[-1].content.decode("utf-8"),
        response=turn.response,
        finish=turn.finish,
        usage=usage,
        context=turn.context,
    )
