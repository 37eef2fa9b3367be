"""Executing derivations again: equal to a plain loop, and honest where that cannot be done."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from actors.assembler.contracts import contract_id
from actors.cli.asked import Failure
from actors.experiment.recheck import Asked, Done, Rechecker, derivation_of, recheck
from actors.experiment.recompute import block_of, spelled_prompt
from actors.worker.chain import chains
from actors.worker.pages import state_digest
from actors.worker.schedule import Advance, advances
from protocol.assembly import BudgetPolicy, ContextAssembly, sequence_of
from protocol.derivation import Derivation, DerivationInvocation, Parameters
from protocol.families import advancing, assembling, generating
from protocol.generation import generation_parameters
from protocol.grammars.gemma_instruct import GemmaInstruct
from protocol.ids import BlockId, ChainId, ContextId, PageId, ProfileId, SequenceId, TokensId
from protocol.messages.worker import GREEDY
from protocol.record import encode_record, object_id
from protocol.rope.build import build
from protocol.rope.node import Entry
from protocol.tokens import pack
from tests.bare_worker import bare_answer
from tests.installations import tiny_home
from tests.model_fixtures import open_tiny, tiny

Json = dict[str, Any]


def block(role: str, type: str, content: str, **more: Any) -> Json:
    shown = {"role": role, "type": type, "content": content, "rendering": {}, "trust": True}
    made = {**shown, "name": None, **more}
    return {**made, "block_id": str(object_id(block_of(made)))}


TALK = [
    block("user", "user turn", "Which river?"),
    block("model", "model turn", "The Seine."),
    block("user", "user turn", "And the sea?"),
]
PROFILE = ProfileId.of(encode_record(tiny()[1]))
BUDGET = BudgetPolicy(v=1, kind="budget", policy="refuse", tokens_max=100, keep_turns=0)
BUDGET_ID = contract_id(BUDGET)


@pytest.fixture(scope="module")
def backend() -> Iterator[Any]:
    opened = open_tiny()
    yield opened
    opened.close()


@pytest.fixture
def rechecker(backend: Any) -> Rechecker:
    return Rechecker(backend, tiny()[1])


def fed(backend: Any, *, opened: bool = True) -> list[Advance]:
    blocks, texts = [block_of(each) for each in TALK], [each["content"] for each in TALK]
    segments, opener = spelled_prompt(GemmaInstruct(backend.tokenizer), blocks, texts)
    end = pack(opener) if opened else b""
    return list(advances(segments, end, chunk_tokens=backend.chunk_tokens))


def advance(backend: Any, index: int, *, opened: bool = True) -> DerivationInvocation:
    """The invocation of one advance of the talk."""
    pieces = fed(backend, opened=opened)
    names = chains(PROFILE, pieces)
    previous = names[index - 1] if index else None
    return advancing(PROFILE, previous, TokensId.of(pack(pieces[index].ids)))


def assembly(rechecker: Rechecker) -> ContextAssembly:
    entries = [
        Entry(BlockId.of(encode_record(block_of(each))), len(each["content"].encode()))
        for each in TALK
    ]
    sequence = SequenceId.of(encode_record(sequence_of(build(entries).root)))
    contracts = rechecker._contracts
    return contracts.fields(contracts.grammar, BUDGET).over(sequence)


def outcomes(
    rechecker: Rechecker, *invocations: DerivationInvocation, parameters: Parameters | None = None
) -> list[Done]:
    asked = [Asked(place, each, parameters) for place, each in enumerate(invocations)]
    found = {done.place: done for done in rechecker.done(TALK, asked)}
    return [found[place] for place in range(len(invocations))]


def made(done: Done) -> Derivation:
    assert done.derivation is not None, done.why
    return done.derivation


@pytest.mark.req("DRV-4", "KV-2")
def test_advances_of_a_prompt_and_of_a_settled_talk(backend: Any, rechecker: Rechecker) -> None:
    invocations = [advance(backend, 2), advance(backend, 0), advance(backend, 2, opened=False)]
    found = outcomes(rechecker, *invocations)
    for invocation, done in zip(invocations, found, strict=True):
        assert made(done).invocation == invocation
    names = chains(PROFILE, fed(backend))
    assert made(found[0]).outputs[0].id == str(names[2])
    assert len({made(done).outputs[1].id for done in found}) == 3
    # The same another time, by itself.
    assert made(outcomes(rechecker, invocations[0])[0]) == made(found[0])


@pytest.mark.req("DRV-4", "KV-2")
def test_an_advance_is_compared_only_where_it_starts_from_the_same_pages(
    backend: Any, rechecker: Rechecker
) -> None:
    pure = [advance(backend, index) for index in range(3)]
    pages = [PageId.parse(made(done).outputs[1].id) for done in outcomes(rechecker, *pure)]
    names = chains(PROFILE, fed(backend))

    def bound(index: int, before: list[PageId]) -> DerivationInvocation:
        tokens = TokensId.of(pack(fed(backend)[index].ids))
        previous = names[index - 1] if index else None
        return advancing(PROFILE, previous, tokens, snapshot=state_digest(before))

    found = outcomes(
        rechecker,
        *(bound(index, pages[:index]) for index in range(3)),
        bound(2, [pages[0], PageId.of(b"another")]),
        bound(0, pages[:1]),
        pure[1],
    )
    for index, done in enumerate(found[:3]):
        assert made(done).invocation == bound(index, pages[:index])
        assert made(done).outputs[1].id == str(pages[index])
    assert [(each.why, each.derivation, each.tokens) for each in found[3:5]] == [
        ("incomparable", None, 0)
    ] * 2
    # What is promised of no snapshot is compared whatever else is asked.
    assert made(found[5]).outputs[1].id == str(pages[1])


@pytest.mark.req("DRV-4", "ASM-2")
def test_an_assembly_is_folded_again(rechecker: Rechecker, backend: Any) -> None:
    whole = assembly(rechecker)
    (done,) = outcomes(rechecker, assembling(whole))
    stream = [token for piece in fed(backend, opened=False) for token in piece.ids]
    outputs = {output.label: output.id for output in made(done).outputs}
    assert outputs == {
        "context": str(ContextId.of(encode_record(whole))),
        "stream": str(TokensId.of(pack(stream))),
    }


@pytest.mark.req("DRV-4", "KV-9")
def test_an_answer_is_generated_again(backend: Any, rechecker: Rechecker) -> None:
    grammar = GemmaInstruct(backend.tokenizer)
    parameters = generation_parameters(
        GREEDY,
        tokens_max=6,
        stop_ids=grammar.stop_ids,
        stop_texts=grammar.stop_texts,
        stops=[],
        deliver_trim=False,
    )
    state = chains(PROFILE, fed(backend))[-1]
    (done,) = outcomes(rechecker, generating(PROFILE, state, parameters, 0), parameters=parameters)
    blocks, texts = [block_of(each) for each in TALK], [each["content"] for each in TALK]
    bare = bare_answer(
        backend,
        *spelled_prompt(grammar, blocks, texts),
        tokens_max=6,
        stop_ids=grammar.stop_ids,
        chunk_tokens=backend.chunk_tokens,
    )
    assert made(done).outputs[0].id == str(TokensId.of(pack(bare.ids)))


@pytest.mark.req("DRV-4")
def test_what_is_not_in_the_context_is_expired_and_what_cannot_be_told_skipped(
    backend: Any, rechecker: Rechecker
) -> None:
    elsewhere = advancing(PROFILE, ChainId.of(b"x"), TokensId.of(pack((5,))))
    other = structs.replace(advance(backend, 0), runtime_profile=ProfileId.of(b"other"))
    sequence = structs.replace(assembly(rechecker), sequence=SequenceId.of(b"another"))
    foreign = structs.replace(assembly(rechecker), model_contract=BUDGET_ID)
    stops = generation_parameters(
        GREEDY, tokens_max=6, stop_ids=[], stop_texts=[], stops=["x"], deliver_trim=False
    )
    state = chains(PROFILE, fed(backend))[-1]
    found = outcomes(
        rechecker,
        elsewhere,
        other,
        assembling(sequence),
        assembling(foreign),
        generating(PROFILE, state, stops, 0),
        generating(PROFILE, ChainId.of(b"x"), stops, 0),
        parameters=stops,
    )
    assert [done.why for done in found] == [
        "expired",
        "skipped",
        "expired",
        "skipped",
        "skipped",
        "expired",
    ]
    # A block that is more than its text makes the whole context one that cannot be told.
    kept_as_tokens = [{**TALK[0], "block_id": TALK[1]["block_id"]}, *TALK[1:]]
    (done,) = rechecker.done(kept_as_tokens, [Asked(0, advance(backend, 0), None)])
    assert done.why == "skipped"


def entry(invocation: DerivationInvocation) -> Json:
    encoded = base64.b64encode(encode_record(invocation)).decode()
    return {"invocation": encoded, "context_id": "ctx:a", "parameters": None}


@pytest.mark.req("DRV-4")
def test_another_process_says_the_same(tmp_path: Path, backend: Any, rechecker: Rechecker) -> None:
    invocations = [advance(backend, 1), assembling(assembly(rechecker))]
    lines = list(
        recheck(
            "tiny-gemma",
            tiny_home(tmp_path / "home"),
            {"ctx:a": TALK},
            [entry(each) for each in invocations],
        )
    )
    assert sorted(line["entry"] for line in lines) == [0, 1]
    for line in lines:
        here = made(outcomes(rechecker, *invocations)[line["entry"]])
        assert derivation_of(entry(invocations[line["entry"]]), line["outputs"]) == here


def test_a_process_that_fails_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="ended with status"):
        list(recheck("tiny-gemma", tmp_path, {}, []))


def test_nothing_asked_is_nothing_done(rechecker: Rechecker) -> None:
    nothing: Sequence[Asked] = []
    assert list(rechecker.done(TALK, nothing)) == []
