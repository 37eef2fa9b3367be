"""Sequences and assemblies: what a context is, and what it is for one model.

A `ContextSequence` is model-neutral: a rope of blocks. A `ContextAssembly` adds everything that
decides the tokens: contracts for model, tokenizer, template, separators, budget, tools and media,
and the reference transform. `ContextId` is the assembly's ObjectId: change any part and it changes
(ASM-1). Contracts are registered records, named by their own ids.
"""

from __future__ import annotations

from typing import Final, Literal

from protocol.ids import ContextId, ContractId, NodeId, SequenceId, TransformId
from protocol.record import Identified, encode_record


class ModelContract(Identified):
    """Which network: the digest of the whole weights file, and the shape that serving depends on.

    `window_tokens` is the sliding window of local layers (0: none)."""

    ID = ContractId

    v: Literal[1]
    kind: Literal["model"]
    name: str
    architecture: str
    weights_digest: bytes
    layers: int
    window_tokens: int
    instruct: bool


class SequenceContract(Identified):
    """The node format and block schema that a sequence's root is to be read with."""

    ID = ContractId

    v: Literal[1]
    kind: Literal["sequence"]
    node_format: str
    block_schema: str


class Template(Identified):
    """A conversation template: the grammar's name and version, and its headers as text."""

    ID = ContractId

    v: Literal[1]
    kind: Literal["template"]
    name: str
    version: int
    headers: dict[str, str]


class SeparatorGrammar(Identified):
    """What stands between blocks: between turns, between parts of one turn, around fences."""

    ID = ContractId

    v: Literal[1]
    kind: Literal["separator"]
    name: str
    version: int
    separators: dict[str, str]


class ToolEncoding(Identified):
    """How tool calls, results and declarations are written as content."""

    ID = ContractId

    v: Literal[1]
    kind: Literal["tools"]
    name: str
    version: int


class MediaEncoding(Identified):
    """How images and audio are written: `text-only` refuses them."""

    ID = ContractId

    v: Literal[1]
    kind: Literal["media"]
    name: str
    version: int


class BudgetPolicy(Identified):
    """What happens when a context is longer than `tokens_max` (ASM-7).

    `refuse`: an error with both numbers. `drop-oldest-turns`: whole turns go, oldest first, but
    never trusted system blocks nor the last `keep_turns` turns; what went is in the result.
    """

    ID = ContractId

    v: Literal[1]
    kind: Literal["budget"]
    policy: Literal["refuse", "drop-oldest-turns"]
    tokens_max: int
    keep_turns: int


class Transform(Identified):
    """A reference transform as an object: its name, its specification's text and the digest of
    its test vectors (ASM-4)."""

    ID = TransformId

    v: Literal[1]
    name: str
    specification: str
    vectors_digest: bytes


class ContextSequence(Identified):
    """A model-neutral sequence of blocks: a contract and the root of a rope."""

    ID = SequenceId

    sequence_contract: ContractId
    root: NodeId


class ContextAssembly(Identified):
    """Everything that decides the tokens of a context. Its id is the ContextId."""

    ID = ContextId

    format_version: Literal[1]
    sequence: SequenceId
    model_contract: ContractId
    tokenizer_contract: ContractId
    conversation_template: ContractId
    separator_grammar: ContractId
    budget_policy: ContractId
    tool_encoding: ContractId
    media_encoding: ContractId
    reference_transform: TransformId


# What the root authority signs, before the payload, to register a contract.
REGISTRATION_CONTEXT: Final = b"huginn.registration/1\0"

SEQUENCE_CONTRACT: Final = SequenceContract(
    v=1, kind="sequence", node_format="huginn.rope/1", block_schema="huginn.block/1"
)
SEQUENCE_CONTRACT_ID: Final = ContractId.of(encode_record(SEQUENCE_CONTRACT))
TEXT_ONLY: Final = MediaEncoding(v=1, kind="media", name="text-only", version=1)


def sequence_of(root: NodeId) -> ContextSequence:
    """The sequence whose blocks are the rope under `root`, in the format of this build."""
    return ContextSequence(sequence_contract=SEQUENCE_CONTRACT_ID, root=root)
