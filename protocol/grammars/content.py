"""From a block's rendered text to ids that can only be content.

Every grammar turns content into ids here, so the check that no control or structural id is among
them (I-NO-FORGERY) stands in one place, whatever a tokenizer promises.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.blocks import ContextBlock, Role
from protocol.errors import ProfileFault
from protocol.grammars.fence import looks_like_tag
from protocol.grammars.rendering import is_fenced
from protocol.record import object_id
from protocol.tokenizer import Tokenizer, check_outside_ids
from protocol.tokens import TokenIds, unpack


def content_ids(tokenizer: Tokenizer, text: str) -> TokenIds:
    """The ids of `text` as content. Raises ProfileFault if the tokenizer made a denied id."""
    ids = tokenizer.encode(text)
    if not tokenizer.deny.isdisjoint(ids):
        raise ProfileFault(
            "the tokenizer made a control or structural token of content: it does not keep its "
            "contract, and nothing was assembled"
        )
    return ids


def exact_ids(
    block: ContextBlock, tokenizer: Tokenizer, forges: Callable[[str], bool]
) -> TokenIds | None:
    """The ids that an `exact-tokens` block keeps, or None where its text is to be used (ASM-6).

    They are used for a trusted answer of the model, under the tokenizer that they were generated
    with, and only if their text holds no look-alike of a fence and nothing that `forges` sees.
    Raises ContentError for ids that content may not hold.
    """
    kept = block.representation
    if kept.tokens is None:
        return None
    if block.role is not Role.MODEL or is_fenced(block):
        return None
    if kept.tokenizer != object_id(tokenizer.contract):
        return None
    ids = check_outside_ids(unpack(kept.tokens), tokenizer)
    text = tokenizer.decode(ids).decode("utf-8", "replace")
    return None if looks_like_tag(text) or forges(text) else ids
