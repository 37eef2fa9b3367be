"""Semantic ids: minted by a pinned rule, one per meaning, and never without their contract."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.blocks import Source
from protocol.errors import ContentError
from protocol.ids import ContractId, TextId, framed_digest
from protocol.record import encode_record, object_id
from protocol.semantic import CANONICALIZERS, SemanticContract, check_source, mint

PLAIN = SemanticContract(v=1, kind="semantic", canonicalizer="plain-text/1")
PLAIN_ID = ContractId.of(encode_record(PLAIN))
CONTRACTS = {PLAIN_ID: PLAIN}


def source(text: str, semantic: bytes | None, contract: ContractId | None) -> Source:
    return Source(object=TextId.of(text.encode()), semantic=semantic, contract=contract)


@pytest.mark.req("ASM-9")
def test_the_rule_that_is_pinned() -> None:
    """Frozen: another answer to any of these is another canonicalizer, under another name."""
    canonical = CANONICALIZERS["plain-text/1"]
    for text, plain in {
        "": "",
        "a\n": "a",
        "a \t\r\nb\r\rc\n\n\n": "a\nb\n\nc",
        "  a": "  a",
        "e\u0301": "é",
        "a\u00a0": "a\u00a0",
        "a\x0b": "a\x0b",
        "\n\na": "\n\na",
        " \n \n": "",
    }.items():
        assert canonical(text) == plain, repr(text)
    assert mint(PLAIN, "a\nb") == bytes.fromhex(
        "e264159cf555d7c640f040c23cd0461a07eca9b31c52d3245a6d86dd6a782edb"
    )


lines = st.lists(st.text(alphabet="ab é\u00e9e\u0301日\t", max_size=5), max_size=5)


@pytest.mark.req("ASM-9")
@given(
    lines,
    st.lists(st.tuples(st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["", " ", "\t "]))),
)
def test_line_ends_and_trailing_blanks_mean_nothing(
    parts: list[str], ends: list[tuple[str, str]]
) -> None:
    plain = "\n".join(parts)
    dressed = ""
    for index, part in enumerate(parts):
        end, blanks = ends[index % len(ends)] if ends else ("\n", "")
        dressed += unicodedata.normalize("NFD", part) + blanks + end
    assert mint(PLAIN, dressed) == mint(PLAIN, plain)


@given(st.text(max_size=20), st.text(max_size=20))
def test_texts_are_one_exactly_when_their_canonical_forms_are(a: str, b: str) -> None:
    canonical = CANONICALIZERS["plain-text/1"]
    assert (mint(PLAIN, a) == mint(PLAIN, b)) == (canonical(a) == canonical(b))
    assert canonical(canonical(a)) == canonical(a)


@pytest.mark.req("ASM-9")
def test_an_id_is_of_its_contract() -> None:
    body = object_id(PLAIN).digest + b"x"
    assert mint(PLAIN, "x") == framed_digest("huginn.semantic/1", body)
    unpinned = SemanticContract(v=1, kind="semantic", canonicalizer="plain-text/2")
    with pytest.raises(ContentError, match="no canonicalizer 'plain-text/2' is pinned; known: pl"):
        mint(unpinned, "x")


@pytest.mark.req("ASM-9")
def test_a_source_is_checked_against_its_registered_contract() -> None:
    minted = mint(PLAIN, "a")
    check_source(source("a", None, None), "a", {})
    check_source(source("a", minted, PLAIN_ID), "a", CONTRACTS)
    check_source(source("a\r\n", minted, PLAIN_ID), "a\r\n", CONTRACTS)
    with pytest.raises(ContentError, match="not what plain-text/1 mints"):
        check_source(source("b", minted, PLAIN_ID), "b", CONTRACTS)
    for contract in (PLAIN_ID, ContractId(b"c" * 32)):
        with pytest.raises(ContentError, match="is not registered"):
            check_source(source("a", minted, contract), "a", {})
    with pytest.raises(ContentError, match="is not registered"):
        check_source(source("a", minted, ContractId(b"c" * 32)), "a", CONTRACTS)
