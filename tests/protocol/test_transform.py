"""The reference transform is frozen, the same everywhere, and checks every alternate (ASM-2, 4)."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cbor
from protocol.assembly import ContextAssembly, ContextSequence, Transform
from protocol.blocks import ContextBlock
from protocol.errors import ContentError
from protocol.grammar import BlockTokens, State
from protocol.grammars import GRAMMARS, grammar
from protocol.grammars.gemma_instruct import GemmaInstruct
from protocol.ids import BlockId, ContractId, SequenceId
from protocol.record import decode_record, encode_record, object_id
from protocol.rope import Entry, build
from protocol.tokenizer import Tokenizer
from protocol.tokens import TokenIds, pack
from protocol.transform import (
    REFERENCE,
    REFERENCE_ID,
    VECTORS_DIGEST,
    Mismatch,
    VerifiedAlternate,
    fold,
    fold_to_state,
)
from tests import default_gemma, transform_vectors
from tests.block_samples import Pair, conversations, model, user
from tests.fake_tokenizer import CONTROL, FakeTokenizer

_ROOT = Path(__file__).parent.parent.parent


@pytest.mark.req("ASM-4")
def test_the_transform_pins_its_specification_and_its_vectors() -> None:
    assert hashlib.sha256(transform_vectors.PATH.read_bytes()).digest() == VECTORS_DIGEST
    assert object_id(REFERENCE) == REFERENCE_ID
    assert decode_record(Transform, encode_record(REFERENCE)) == REFERENCE
    changed = Transform(
        v=1, name=REFERENCE.name, specification=REFERENCE.specification, vectors_digest=b"x" * 32
    )
    assert object_id(changed) != REFERENCE_ID


def _frozen(key: str, tokenizer: Tokenizer) -> None:
    kept = transform_vectors.read()
    made = transform_vectors.vectors({key: tokenizer})
    for name in GRAMMARS:
        for title, ids in made[name][key].items():
            assert ids == kept[name][key][title], f"{name}, {title}"
        assert made[name][key].keys() == kept[name][key].keys()


@pytest.mark.req("ASM-4")
def test_the_vectors_over_bytes() -> None:
    _frozen("bytes", FakeTokenizer())


@pytest.mark.model
@pytest.mark.req("ASM-4")
def test_the_vectors_over_the_real_vocabulary() -> None:
    _frozen("gemma-3", default_gemma.tokenizer())


@pytest.mark.parametrize("name", GRAMMARS)
@given(pairs=conversations, at=st.integers(0, 8))
def test_a_prefix_of_blocks_has_a_prefix_of_tokens(name: str, pairs: list[Pair], at: int) -> None:
    built = grammar(name, FakeTokenizer())
    assert fold(built, pairs)[:at] == fold(built, pairs[:at])


_ASSEMBLE = """
import sys
from protocol.assembly import ContextAssembly
from protocol.blocks import ContextBlock
from protocol.cbor import decode
from protocol.grammars import GRAMMARS, grammar
from protocol.record import decode_record, encode_record, object_id
from protocol.tokens import pack
from protocol.transform import REFERENCE_ID, fold
from tests.fake_tokenizer import FakeTokenizer
for written, blocks in decode(sys.stdin.buffer.read()):
    assembly = decode_record(ContextAssembly, written)
    assert assembly.reference_transform == REFERENCE_ID
    [built] = [
        found
        for found in (grammar(name, FakeTokenizer()) for name in GRAMMARS)
        if assembly.conversation_template.digest == object_id(found.template).digest
    ]
    pairs = [(decode_record(ContextBlock, block), text) for block, text in blocks]
    print(object_id(assembly), encode_record(assembly).hex())
    print(*(pack(tokens.ids).hex() for tokens in fold(built, pairs)))
"""


def _assembly(name: str, pairs: list[Pair]) -> ContextAssembly:
    built = grammar(name, FakeTokenizer())
    entries = [Entry(BlockId(object_id(block).digest), len(text)) for block, text in pairs]
    contract = ContractId(object_id(built.tools).digest)
    sequence = ContextSequence(sequence_contract=contract, root=build(entries).root)
    return ContextAssembly(
        format_version=1,
        sequence=SequenceId(object_id(sequence).digest),
        model_contract=contract,
        tokenizer_contract=ContractId(object_id(built.tokenizer.contract).digest),
        conversation_template=ContractId(object_id(built.template).digest),
        separator_grammar=ContractId(object_id(built.separator).digest),
        budget_policy=contract,
        tool_encoding=contract,
        media_encoding=contract,
        reference_transform=REFERENCE_ID,
    )


@pytest.mark.req("ASM-2")
def test_two_processes_give_the_same_bytes_from_the_same_assembly() -> None:
    """With other hash seeds, so that nothing hangs on the order of a set; and with ours."""
    work: list[cbor.Value] = []
    expected = ""
    for name in GRAMMARS:
        for pairs in transform_vectors.conversations(FakeTokenizer()).values():
            assembly = _assembly(name, pairs)
            blocks: list[cbor.Value] = [[encode_record(block), text] for block, text in pairs]
            work.append([encode_record(assembly), blocks])
            stream = fold(grammar(name, FakeTokenizer()), pairs)
            expected += f"{object_id(assembly)} {encode_record(assembly).hex()}\n"
            expected += " ".join(pack(tokens.ids).hex() for tokens in stream) + "\n"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", _ASSEMBLE],
            cwd=_ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(_ROOT), "PATH": ""},
            input=cbor.encode(work),
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode() == expected


class _Swapped(FakeTokenizer):
    """The same contract, another library: right, until it meets the text that it gets wrong."""

    calls = 0
    wrong: str | None = None

    def encode(self, text: str) -> TokenIds:
        self.calls += 1
        ids = super().encode(text)
        return ids[:-1] if self.wrong and self.wrong in text else ids


class _Counted(FakeTokenizer):
    calls = 0

    def encode(self, text: str) -> TokenIds:
        self.calls += 1
        return super().encode(text)


def _pair(items_max: int = 100) -> tuple[_Counted, _Swapped, VerifiedAlternate]:
    right, other = _Counted(), _Swapped()
    reference, alternate = GemmaInstruct(right), GemmaInstruct(other)
    right.calls = other.calls = 0
    return right, other, VerifiedAlternate(reference, alternate, items_max=items_max)


def _run(verified: VerifiedAlternate, pairs: list[Pair]) -> list[BlockTokens]:
    state, stream = verified.reference.initial(), []
    for block, text in pairs:
        tokens, state = verified.step(state, block, text)
        stream.append(tokens)
    return stream


@pytest.mark.req("ASM-4")
def test_an_alternate_runs_alone_once_its_output_was_compared() -> None:
    right, other, verified = _pair()
    pairs = [user("a"), model("b"), user("c")]
    first = _run(verified, pairs)
    assert (right.calls, other.calls) == (3, 3)
    assert _run(verified, pairs) == first == fold(GemmaInstruct(FakeTokenizer()), pairs)
    assert (right.calls, other.calls) == (3, 6)
    assert verified.enabled


@pytest.mark.req("ASM-4")
def test_a_mismatch_gives_the_references_result_evidence_and_no_second_chance() -> None:
    right, other, verified = _pair()
    other.wrong = "bad"
    pairs = [user("good"), model("bad"), user("good")]
    expected = fold(GemmaInstruct(FakeTokenizer()), pairs)
    assert _run(verified, pairs) == expected
    assert not verified.enabled
    assert verified.evidence == [
        Mismatch(
            grammar="gemma3-it",
            tokenizer=ContractId(object_id(right.contract).digest),
            block=BlockId(object_id(pairs[1][0]).digest),
            turn="user",
            last="part",
            reference=pack(expected[1].ids),
            alternate=pack(expected[1].ids[:-1]),
        )
    ]
    calls = other.calls
    assert _run(verified, pairs) == expected
    assert other.calls == calls
    assert len(verified.evidence) == 1


@pytest.mark.req("ASM-4")
def test_an_output_that_changes_after_it_was_verified_is_not_used() -> None:
    _, other, verified = _pair()
    pairs = [user("a")]
    first = _run(verified, pairs)
    other.wrong = "a"
    assert _run(verified, pairs) == first
    assert not verified.enabled


@pytest.mark.req("ASM-4")
def test_an_alternate_that_raises_or_gives_no_ids_is_disabled() -> None:
    class Broken(GemmaInstruct):
        def step(self, state: State, block: ContextBlock, text: str) -> tuple[BlockTokens, State]:
            if text == "raise":
                raise OSError("library lost")
            tokens, after = super().step(state, block, text)
            return BlockTokens(tokens.head, (*tokens.content, -1)), after

    for text, failure in (("raise", "OSError: library lost"), ("ids", "ContentError")):
        reference = GemmaInstruct(FakeTokenizer())
        verified = VerifiedAlternate(reference, Broken(FakeTokenizer()), items_max=1)
        assert _run(verified, [user(text)]) == fold(reference, [user(text)])
        assert verified.evidence[0].alternate is None
        assert failure in (verified.evidence[0].failure or "")


def test_the_references_own_refusal_is_the_callers_and_no_mismatch() -> None:
    _, _, verified = _pair()
    block, text = user("x")
    denied = pack((CONTROL["bos"],))
    bad = transform_vectors._exact(FakeTokenizer(), "ab")[0]
    assert bad.representation.tokens is not None
    refused = decode_record(
        ContextBlock, encode_record(bad).replace(bad.representation.tokens, denied + denied)
    )
    with pytest.raises(ContentError, match="control or structural"):
        verified.step(State("user", "part"), refused, "ab")
    assert verified.enabled
    assert verified.step(verified.reference.initial(), block, text)


def test_another_text_for_a_known_block_is_compared_anew() -> None:
    right, _, verified = _pair()
    block, _ = user("a")
    state = verified.reference.initial()
    assert verified.step(state, block, "a") != verified.step(state, block, "b")
    assert right.calls == 2
    assert verified.enabled


def test_what_is_remembered_is_bounded() -> None:
    right, _, verified = _pair(items_max=2)
    pairs = [user(text) for text in "abc"]
    for _ in range(2):
        for block, text in pairs:
            verified.step(verified.reference.initial(), block, text)
    assert right.calls == 6
    verified.step(verified.reference.initial(), *pairs[2])
    assert right.calls == 6


def test_an_alternate_of_another_contract_is_refused() -> None:
    reference = GemmaInstruct(FakeTokenizer())
    with pytest.raises(ContentError, match="another tokenizer contract"):
        VerifiedAlternate(reference, GemmaInstruct(FakeTokenizer(discipline="x/1")), items_max=1)
    with pytest.raises(ContentError, match="another name"):
        VerifiedAlternate(reference, grammar("gemma3-transcript", FakeTokenizer()), items_max=1)
    with pytest.raises(ContentError, match="at least one"):
        VerifiedAlternate(reference, reference, items_max=0)


@given(conversations)
def test_the_opener_follows_from_the_state_alone(pairs: list[Pair]) -> None:
    for name in GRAMMARS:
        built = grammar(name, FakeTokenizer())
        stream, state = fold_to_state(built, pairs)
        assert stream == fold(built, pairs)
        assert built.opener(state) == built.step(state, *model("x"))[0].head
