"""Statements of what is public: the assembler's, over exactly these segments, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from protocol import cbor
from protocol.errors import AuthorityError
from protocol.ids import BlockId
from protocol.messages.assembler import Segment
from protocol.publication import check_prefix, state_prefix
from protocol.signing import Signer
from protocol.tokens import pack

ASSEMBLER, OTHER = Signer(b"a" * 32), Signer(b"b" * 32)
segments = st.lists(
    st.builds(
        Segment,
        block=st.binary(min_size=32, max_size=32).map(BlockId),
        role=st.sampled_from(["system", "user", "model"]),
        type=st.just("other"),
        head=st.lists(st.integers(0, 9), max_size=3).map(lambda ids: pack(tuple(ids))),
        content=st.lists(st.integers(0, 9), max_size=5).map(lambda ids: pack(tuple(ids))),
    ),
    min_size=1,
    max_size=4,
)


def refused(statement: bytes, profile: str, shown: list[Segment]) -> None:
    with pytest.raises(AuthorityError) as refusal:
        check_prefix(statement, ASSEMBLER.public, profile, shown)
    assert refusal.value.step == "public"


@pytest.mark.req("AUT-5")
@given(stream=segments, data=st.data())
def test_a_statement_holds_for_its_segments_and_whatever_follows(
    stream: list[Segment], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(stream)))
    statement = state_prefix(ASSEMBLER, "raven", stream[:count])
    assert check_prefix(statement, ASSEMBLER.public, "raven", stream) == count
    assert len(statement) < 300


@pytest.mark.req("AUT-5")
@given(stream=segments, other=segments, data=st.data())
def test_a_statement_holds_for_nothing_else(
    stream: list[Segment], other: list[Segment], data: st.DataObject
) -> None:
    statement = state_prefix(ASSEMBLER, "raven", stream)
    refused(statement, "crow", stream)
    refused(statement, "raven", stream[:-1])
    refused(state_prefix(OTHER, "raven", stream), "raven", stream)
    if other[: len(stream)] != stream:
        refused(statement, "raven", other)
    at = data.draw(st.integers(0, len(stream) - 1))
    name, value = data.draw(
        st.sampled_from(
            [
                ("block", BlockId(bytes(32))),
                ("role", "tool"),
                ("type", "file"),
                ("head", pack((9, 9, 9, 9))),
                ("content", pack((1,) * 6)),
            ]
        )
    )
    changed = [*stream]
    changes: dict[str, Any] = {name: value}
    changed[at] = structs.replace(stream[at], **changes)
    if changed != stream:
        refused(statement, "raven", changed)


@pytest.mark.req("AUT-5")
@given(
    stream=segments, junk=st.binary(max_size=200), at=st.integers(0, 10_000), bit=st.integers(0, 7)
)
def test_damaged_and_made_up_statements_are_refused(
    stream: list[Segment], junk: bytes, at: int, bit: int
) -> None:
    refused(junk, "raven", stream)
    refused(cbor.encode([junk, bytes(64)]), "raven", stream)
    spoiled = bytearray(state_prefix(ASSEMBLER, "raven", stream))
    spoiled[at % len(spoiled)] ^= 1 << bit
    refused(bytes(spoiled), "raven", stream)
    refused(state_prefix(ASSEMBLER, "raven", []), "raven", stream)
