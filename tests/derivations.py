"""Derivations for tests: advances of an imagined profile, evidence of them, and broken tables."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from actors.muninn.evidence import Examined, examine
from protocol.assembly import ContextAssembly
from protocol.derivation import Derivation, DerivationInvocation, ExecutionClass, attest, numbered
from protocol.errors import DiskFull, StoreFault
from protocol.families import GENERATE_FAMILY, NO_PARAMETERS, advanced
from protocol.ids import (
    ChainId,
    ContractId,
    PageId,
    ParametersId,
    ProfileId,
    SequenceId,
    StateId,
    TokensId,
)
from protocol.record import encode_record
from protocol.signing import Signer
from protocol.tokens import pack
from protocol.transform import REFERENCE_ID
from store.memory_tables import MemoryTables
from store.tables import Change

ASSEMBLER, WORKER, STRANGER, SEALER = (Signer(bytes([n]) * 32) for n in (11, 12, 13, 14))
EXECUTORS = frozenset((ASSEMBLER.public, WORKER.public))
PROFILE = ProfileId.of(b"profile")


def contract(name: str) -> ContractId:
    return ContractId.of(name.encode())


def advance(number: int, *, page: int = 0, snapshot: StateId | None = None) -> Derivation:
    """The advance `number` of a chain. Another `page` is another result of the same invocation, a
    `snapshot` what it started from."""
    return advanced(
        PROFILE,
        ChainId.of(b"%d" % (number - 1)) if number else None,
        TokensId.of(pack((number,))),
        ChainId.of(b"%d" % number),
        [PageId.of(b"%d %d" % (number, page))],
        snapshot=snapshot,
    )


def assembly(number: int) -> ContextAssembly:
    return ContextAssembly(
        format_version=1,
        sequence=SequenceId.of(b"%d" % number),
        model_contract=contract("model"),
        tokenizer_contract=contract("tokenizer"),
        conversation_template=contract("template"),
        separator_grammar=contract("separator"),
        budget_policy=contract("budget"),
        tool_encoding=contract("tools"),
        media_encoding=contract("media"),
        reference_transform=REFERENCE_ID,
    )


def generation(*, seed: int | None = 7, **changes: Any) -> DerivationInvocation:
    """A generation that claims to be pure."""
    fields: dict[str, Any] = {
        "format_version": 1,
        "execution_class": ExecutionClass.PURE,
        "transform": min(GENERATE_FAMILY.transforms),
        "transform_contract": ContractId.of(encode_record(GENERATE_FAMILY.takes)),
        "inputs": numbered([("state", ChainId.of(b"state"))]),
        "parameters": ParametersId.of(encode_record(NO_PARAMETERS)),
        "output_contract": ContractId.of(encode_record(GENERATE_FAMILY.gives)),
        "runtime_profile": PROFILE,
        "seed": seed,
        **changes,
    }
    return DerivationInvocation(**fields)


def signed(derivation: Derivation, signer: Signer = WORKER, **changes: Any) -> bytes:
    """Evidence of it for alice. Another `run` is another execution."""
    fields: dict[str, Any] = {
        "engine_build": "build 1",
        "authority_epoch": 0,
        "domain": "alice",
        "measurements": {"run": changes.pop("run", 0)},
        **changes,
    }
    return attest(signer, derivation, **fields)


def seen(derivation: Derivation, signer: Signer = WORKER, **changes: Any) -> Examined:
    """Such evidence, examined."""
    return examine(derivation.invocation, signed(derivation, signer, **changes), EXECUTORS)


class FailingTables(MemoryTables):
    """Tables on a disk that is full for writing, or gone, while `full` or `gone` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.gone = False

    def check_open(self) -> None:
        super().check_open()
        if self.gone:
            raise StoreFault("the disk is gone")

    def apply_soon(self, changes: Sequence[Change]) -> Future[list[int]]:
        self.check_open()
        if self.full:
            future: Future[list[int]] = Future()
            future.set_exception(DiskFull("the disk is full, nothing was stored"))
            return future
        return super().apply_soon(changes)
