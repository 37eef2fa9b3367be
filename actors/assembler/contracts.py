"""The contracts that assemblies name, per runtime profile, and their registration.

An assembly may name only registered contracts: records that the root authority has signed. The
room registers what its profiles bring when it starts, and a budget policy when it is first asked
for; the signature is checked here, whoever relayed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from actors.assembler.cache import contracts_of
from protocol.assembly import (
    REGISTRATION_CONTEXT,
    SEQUENCE_CONTRACT,
    TEXT_ONLY,
    BudgetPolicy,
    ContextAssembly,
    ModelContract,
)
from protocol.errors import AuthorityError, ContentError, EncodingError, RecordError
from protocol.grammar import Grammar
from protocol.ids import ContractId, ObjectId
from protocol.messages.authority import Registration, RegistrationPayload
from protocol.messages.ropes import AssemblyFields
from protocol.record import Identified, decode_record, encode_record, object_id
from protocol.signing import unpack_signed, verify
from protocol.transform import REFERENCE, REFERENCE_ID

_REGISTRATION_BYTES_MAX: Final = 4096


@dataclass(frozen=True)
class ProfileContracts:
    """What one runtime profile brings: its model, its own grammar, and the others that its
    tokenizer can also be read with (`grammars`, by name)."""

    name: str
    model: ModelContract
    grammar: Grammar
    grammars: Mapping[str, Grammar]

    @cached_property
    def piece_bytes_max(self) -> int:
        """The longest token of the vocabulary, in bytes: so many a text has at most for each."""
        tokenizer = self.grammar.tokenizer
        tokens = range(tokenizer.contract.vocabulary_tokens)
        return max(1, *(len(tokenizer.piece(token)) for token in tokens))

    def grammar_named(self, template: str | None) -> Grammar:
        """The grammar of that name, the profile's own for None; raises ContentError."""
        if template is None:
            return self.grammar
        found = self.grammars.get(template)
        if found is None:
            known = ", ".join(sorted(self.grammars))
            raise ContentError(f"no template {template!r:.60} for {self.name}: there are {known}")
        return found

    def fields(self, grammar: Grammar, policy: BudgetPolicy) -> AssemblyFields:
        """Everything of an assembly but its sequence."""
        tokenizer, template, separator, tools = contracts_of(grammar)
        return AssemblyFields(
            model_contract=self._model_contract,
            tokenizer_contract=tokenizer,
            conversation_template=template,
            separator_grammar=separator,
            budget_policy=contract_id(policy),
            tool_encoding=tools,
            media_encoding=_TEXT_ONLY_ID,
            reference_transform=REFERENCE_ID,
        )

    @cached_property
    def _model_contract(self) -> ContractId:
        return contract_id(self.model)

    def grammar_of(self, assembly: ContextAssembly) -> Grammar | None:
        """The grammar under which `assembly` was made, if it is one of this profile's."""
        if assembly.model_contract != object_id(self.model):
            return None
        for grammar in self.grammars.values():
            if (
                object_id(grammar.template) == assembly.conversation_template
                and object_id(grammar.separator) == assembly.separator_grammar
                and object_id(grammar.tools) == assembly.tool_encoding
                and object_id(grammar.tokenizer.contract) == assembly.tokenizer_contract
                and assembly.reference_transform == REFERENCE_ID
            ):
                return grammar
        return None

    def records(self) -> list[Identified]:
        """Every contract that an assembly under this profile may name, budgets aside."""
        records: list[Identified] = [self.model, SEQUENCE_CONTRACT, TEXT_ONLY, REFERENCE]
        for grammar in self.grammars.values():
            records += [grammar.tokenizer.contract, grammar.template, grammar.separator]
            records.append(grammar.tools)
        return records


def contract_id(record: Identified) -> ContractId:
    return ContractId.of(encode_record(record))


_TEXT_ONLY_ID: Final = contract_id(TEXT_ONLY)


class Registry:
    """The contracts that are registered, each proved by the root authority's signature."""

    def __init__(self, anchors: frozenset[bytes]) -> None:
        self._anchors = anchors
        self._admitted: set[ObjectId] = set()

    def __contains__(self, contract: ObjectId) -> bool:
        return contract in self._admitted

    def admit(self, record: Identified, registration: Registration) -> None:
        """Take `record` as registered. Raises AuthorityError (step `registration`) unless an
        anchor signed exactly its id."""
        contract = object_id(record)
        try:
            payload, signature = unpack_signed(
                registration.signed, size_max=_REGISTRATION_BYTES_MAX
            )
            registered = decode_record(RegistrationPayload, payload)
        except (EncodingError, RecordError) as error:
            raise AuthorityError("registration", f"not a registration: {error}") from error
        if not any(
            verify(anchor, REGISTRATION_CONTEXT + payload, signature) for anchor in self._anchors
        ):
            raise AuthorityError("registration", f"no anchor signed the registration of {contract}")
        if registered.id != str(contract):
            raise AuthorityError("registration", f"a registration of another than {contract}")
        self._admitted.add(contract)
