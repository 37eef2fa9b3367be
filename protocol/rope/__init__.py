"""The persistent sequence: a Merkle rope over block ids, with one tree for each sequence.

`build` makes a tree, `Rope` reads and edits one, `check` verifies a whole one; `prove_*` and
`verify_*` carry statements about one, `diff` and `reasons` compare two. Pure functions: a node
comes from a source that the caller gives, and a result names the nodes that are new.
"""

from protocol.rope.build import Edit, build
from protocol.rope.check import Checked, check
from protocol.rope.diff import Diff, Run, diff
from protocol.rope.node import EMPTY_BYTES, EMPTY_ID, Entry
from protocol.rope.proof import (
    Included,
    InclusionProof,
    PrefixProof,
    prove_inclusion,
    prove_prefix,
    verify_inclusion,
    verify_prefix,
)
from protocol.rope.read import NodeSource
from protocol.rope.reason import BlockLoader, Reason, reasons
from protocol.rope.tree import Rope, prefix_id

__all__ = [
    "EMPTY_BYTES",
    "EMPTY_ID",
    "BlockLoader",
    "Checked",
    "Diff",
    "Edit",
    "Entry",
    "Included",
    "InclusionProof",
    "NodeSource",
    "PrefixProof",
    "Reason",
    "Rope",
    "Run",
    "build",
    "check",
    "diff",
    "prefix_id",
    "prove_inclusion",
    "prove_prefix",
    "reasons",
    "verify_inclusion",
    "verify_prefix",
]
