"""Remembered tokens: a fold that tokenizes only the blocks that it has not met in their place.

A block's tokens depend on the block, the tokenizer and grammar contracts, and the state before it,
and on nothing else. That is the key; the value is what `Grammar.step` gave. It is memory, not
another transform: dropping it changes time and nothing else (I-DERIVED).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from protocol.blocks import ContextBlock
from protocol.errors import ContentError
from protocol.grammar import BlockTokens, Grammar, State
from protocol.ids import BlockId, ContractId
from protocol.record import Identified, encode_record

# A remembered id is a shared int behind an 8-byte pointer: 16 million are 128 MiB.
TOKENS_MAX: Final = 16_000_000

# A profile has a handful of them, a process one profile.
_GRAMMARS_MAX: Final = 256
_GRAMMAR_TO_CONTRACTS: Final[dict[int, tuple[Grammar, Contracts]]] = {}

Load = Callable[[int], tuple[ContextBlock, str]]
# Of the tokenizer, the template, the separator grammar and the tool encoding.
Contracts = tuple[ContractId, ContractId, ContractId, ContractId]
# The number of the contracts, the state before the block, the digest of the block's id.
Key = tuple[int, State, bytes]


class BlockTokenCache:
    """At most `items_max` blocks' tokens and `tokens_max` tokens in all, least recently used first
    out. Raises ContentError for a bound below one."""

    def __init__(self, items_max: int, tokens_max: int = TOKENS_MAX) -> None:
        if items_max < 1 or tokens_max < 1:
            raise ContentError(
                f"a cache remembers at least one block of one token, not {items_max} of "
                f"{tokens_max}"
            )
        self._items_max = items_max
        self._tokens_max = tokens_max
        self._tokens = 0
        # Keys are looked up once a block: a number and bytes hash in C, ids would in Python.
        self._numbers: dict[Contracts, int] = {}
        self._items: OrderedDict[Key, tuple[BlockTokens, State]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def tokens(self) -> int:
        """How many tokens are remembered, over all blocks."""
        return self._tokens

    def fold(self, grammar: Grammar, ids: Sequence[BlockId], load: Load) -> list[BlockTokens]:
        """The tokens of each block of the sequence, as `protocol.transform.fold` gives them.

        `load(index)` gives a block and its text; it is called for blocks that are not remembered.
        Raises what `load` and the grammar's step raise.
        """
        step = self.stepper(grammar, ids, load)
        state = grammar.initial()
        stream = []
        for index in range(len(ids)):
            tokens, state = step(state, index)
            stream.append(tokens)
        return stream

    def stepper(
        self, grammar: Grammar, ids: Sequence[BlockId], load: Load
    ) -> Callable[[State, int], tuple[BlockTokens, State]]:
        """One step of that fold, at any state: what `protocol.budget.within_budget` takes."""
        number = self._number(grammar)
        items = self._items

        def step(state: State, index: int) -> tuple[BlockTokens, State]:
            key = (number, state, ids[index].digest)
            found = items.get(key)
            if found is None:
                found = grammar.step(state, *load(index))
                self._remember(key, found)
            else:
                items.move_to_end(key)
            return found

        return step

    def _number(self, grammar: Grammar) -> int:
        return self._numbers.setdefault(contracts_of(grammar), len(self._numbers))

    def _remember(self, key: Key, found: tuple[BlockTokens, State]) -> None:
        self._items[key] = found
        self._tokens += _count(found[0])
        while len(self._items) > self._items_max or self._tokens > self._tokens_max:
            _, (tokens, _) = self._items.popitem(last=False)
            self._tokens -= _count(tokens)


def contracts_of(grammar: Grammar) -> Contracts:
    """The ids of everything but block and state that decides a block's tokens."""
    # By the object: a grammar cannot change, and is kept here so that no other takes its place.
    found = _GRAMMAR_TO_CONTRACTS.get(id(grammar))
    if found is None or found[0] is not grammar:
        found = (
            grammar,
            (
                _contract(grammar.tokenizer.contract),
                _contract(grammar.template),
                _contract(grammar.separator),
                _contract(grammar.tools),
            ),
        )
        if len(_GRAMMAR_TO_CONTRACTS) < _GRAMMARS_MAX:
            _GRAMMAR_TO_CONTRACTS[id(grammar)] = found
    return found[1]


def _contract(record: Identified) -> ContractId:
    return ContractId.of(encode_record(record))


def _count(tokens: BlockTokens) -> int:
    return len(tokens.head) + len(tokens.content)
