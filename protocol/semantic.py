"""Semantic ids: equality of meaning under a registered contract, never in place of identity.

A SemanticId says that two texts are one thing under a contract, such as the same file with other
line ends. It is minted only by the contract's pinned canonicalizer, and a block that names one
also binds the exact object that was rendered (ASM-9): what the model reads is always the object.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final, Literal

from protocol.blocks import Source
from protocol.errors import ContentError
from protocol.ids import ContractId, framed_digest
from protocol.record import Identified, object_id


class SemanticContract(Identified):
    """Which texts are the same: the name and version of a canonicalizer that this build pins."""

    ID = ContractId

    v: Literal[1]
    kind: Literal["semantic"]
    canonicalizer: str


def _plain_text(text: str) -> str:
    lines = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip(" \t") for line in lines).rstrip("\n")


# Pinned: a change of rule is a new name. `plain-text/1`: NFC, LF line ends, no trailing blanks.
CANONICALIZERS: Final[dict[str, Callable[[str], str]]] = {"plain-text/1": _plain_text}


def mint(contract: SemanticContract, text: str) -> bytes:
    """The 32-byte semantic id of `text`; raises ContentError if no such canonicalizer is pinned."""
    canonicalize = CANONICALIZERS.get(contract.canonicalizer)
    if canonicalize is None:
        known = ", ".join(sorted(CANONICALIZERS))
        raise ContentError(f"no canonicalizer {contract.canonicalizer!r} is pinned; known: {known}")
    body = object_id(contract).digest + canonicalize(text).encode("utf-8")
    return framed_digest("huginn.semantic/1", body)


def check_source(source: Source, text: str, contracts: dict[ContractId, SemanticContract]) -> None:
    """Refuse a source whose semantic id its registered contract would not mint for `text`.

    Raises ContentError: no contract named, contract not registered, or another id minted.
    """
    if source.semantic is None and source.contract is None:
        return
    contract = contracts.get(source.contract) if source.contract is not None else None
    if source.semantic is None or contract is None:
        raise ContentError(
            "a semantic id stands with the registered contract that minted it: "
            f"contract {source.contract} is not registered"
        )
    if mint(contract, text) != source.semantic:
        raise ContentError(
            f"the semantic id is not what {contract.canonicalizer} mints for the object rendered"
        )
