"""Grammars by name: `grammar(name, tokenizer)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.errors import ContentError
from protocol.grammar import Grammar
from protocol.grammars.gemma_instruct import GemmaInstruct
from protocol.grammars.gemma_transcript import GemmaTranscript
from protocol.tokenizer import Tokenizer

GRAMMARS: Final[dict[str, Callable[[Tokenizer], Grammar]]] = {
    GemmaInstruct.name: GemmaInstruct,
    GemmaTranscript.name: GemmaTranscript,
}


def grammar(name: str, tokenizer: Tokenizer) -> Grammar:
    """The grammar `name` over `tokenizer`.

    Raises ContentError for a name that is not registered, or a vocabulary that the grammar cannot
    be written in.
    """
    build = GRAMMARS.get(name)
    if build is None:
        raise ContentError(f"no grammar {name!r:.60}: there are {', '.join(sorted(GRAMMARS))}")
    return build(tokenizer)
