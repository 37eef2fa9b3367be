from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ContentError, EncodingError, RecordError, RopeError
from protocol.ids import NodeId
from protocol.record import decode_record, encode_record
from protocol.rope import (
    EMPTY_ID,
    Entry,
    InclusionProof,
    PrefixProof,
    build,
    prefix_id,
    prove_inclusion,
    prove_prefix,
    verify_inclusion,
    verify_prefix,
)
from tests.rope_model import entry, sequences, stored

REFUSALS = (EncodingError, RecordError, RopeError)


@pytest.mark.req("SEQ-6")
@given(sequences(800), st.data())
def test_what_holds_is_verified_without_the_store(
    entries: list[Entry], data: st.DataObject
) -> None:
    rope, _ = stored(entries)
    blocks = data.draw(st.integers(0, len(entries)))
    sent = encode_record(prove_prefix(rope, blocks))
    proof = decode_record(PrefixProof, sent)
    assert proof.prefix == build(entries[:blocks]).root
    assert verify_prefix(rope.root, proof) == prefix_id(blocks, proof.prefix)
    if blocks < len(entries):
        included = verify_inclusion(
            rope.root,
            decode_record(InclusionProof, encode_record(prove_inclusion(rope, blocks))),
        )
        assert (included.entry, included.index) == (entries[blocks], blocks)
        assert included.count == len(entries)


@pytest.mark.req("SEQ-6")
def test_proof_is_one_path() -> None:
    rope, _ = stored([entry(number) for number in range(20_000)])
    for index in [0, 10_000, 19_999]:
        assert len(prove_inclusion(rope, index).nodes) == rope.top.level + 1
        proof = prove_prefix(rope, index)
        assert len(proof.nodes) <= rope.top.level + 2
        assert len(encode_record(proof)) < 16_384
    assert len(prove_prefix(rope, 20_000).nodes) == 1


def _flips(data: bytes) -> list[bytes]:
    return [
        data[:at] + bytes((data[at] ^ (1 << at % 8),)) + data[at + 1 :] for at in range(len(data))
    ]


@pytest.mark.req("SEQ-6")
def test_each_changed_byte_is_refused() -> None:
    rope, _ = stored([entry(number) for number in range(150)])
    inclusion = encode_record(prove_inclusion(rope, 77))
    for data in _flips(inclusion):
        with pytest.raises(REFUSALS):
            verify_inclusion(rope.root, decode_record(InclusionProof, data))
    prefix = encode_record(prove_prefix(rope, 77))
    for data in _flips(prefix):
        with pytest.raises(REFUSALS):
            verify_prefix(rope.root, decode_record(PrefixProof, data))
    # The control: unchanged, both stand.
    verify_inclusion(rope.root, decode_record(InclusionProof, inclusion))
    verify_prefix(rope.root, decode_record(PrefixProof, prefix))


@pytest.mark.req("SEQ-6")
def test_proof_holds_for_its_own_root_only() -> None:
    rope, _ = stored([entry(number) for number in range(500)])
    other, _ = stored([entry(number) for number in range(501)])
    with pytest.raises(RopeError):
        verify_inclusion(other.root, prove_inclusion(rope, 5))
    with pytest.raises(RopeError):
        verify_prefix(other.root, prove_prefix(rope, 400))
    # The shorter one is a prefix of the longer, and not the other way round.
    assert prove_prefix(other, 500).prefix == rope.root
    with pytest.raises(ContentError):
        prove_prefix(rope, 501)


@pytest.mark.req("SEQ-6")
def test_hostile_inclusion_proofs() -> None:
    rope, _ = stored([entry(number) for number in range(5000)])
    good = prove_inclusion(rope, 1000)
    nodes = good.nodes
    assert len(nodes) == 3

    def proof(
        index: int = 1000, block: int = 1000, kept: tuple[bytes, ...] = nodes
    ) -> InclusionProof:
        return InclusionProof(v=1, index=index, block=entry(block).block, nodes=kept)

    assert verify_inclusion(rope.root, proof()).entry == entry(1000)
    hostile = [
        proof(index=1001),
        proof(index=999),
        proof(block=999),
        proof(index=-1),
        proof(index=5000),
        proof(index=2**63 - 1),
        proof(kept=()),
        proof(kept=nodes[:-1]),
        proof(kept=(*nodes, nodes[-1])),
        proof(kept=nodes[::-1]),
        proof(kept=nodes[1:]),
        proof(kept=prove_inclusion(rope, 1).nodes),
        proof(kept=nodes * 20),
        proof(kept=(b"", *nodes[1:])),
    ]
    for wrong in hostile:
        with pytest.raises(RopeError):
            verify_inclusion(rope.root, wrong)


@pytest.mark.req("SEQ-6")
def test_hostile_prefix_proofs() -> None:
    rope, _ = stored([entry(number) for number in range(2000)])
    good = prove_prefix(rope, 1000)

    def proof(
        blocks: int = 1000, prefix: NodeId = good.prefix, kept: tuple[bytes, ...] = good.nodes
    ) -> PrefixProof:
        return PrefixProof(v=1, blocks=blocks, prefix=prefix, nodes=kept)

    assert verify_prefix(rope.root, proof()) == rope.prefix_id(1000)
    hostile = [
        proof(blocks=999),
        proof(blocks=1001),
        proof(blocks=0),
        proof(blocks=2000),
        proof(blocks=2001),
        proof(blocks=-1),
        proof(prefix=rope.root),
        proof(prefix=EMPTY_ID),
        proof(blocks=2000, prefix=rope.root),
        proof(blocks=0, prefix=EMPTY_ID),
        proof(kept=()),
        proof(kept=good.nodes[:-1]),
        proof(kept=(*good.nodes, good.nodes[0])),
        proof(kept=good.nodes[::-1]),
    ]
    for wrong in hostile:
        with pytest.raises(RopeError):
            verify_prefix(rope.root, wrong)
    # The ends need the root and nothing else.
    assert verify_prefix(
        rope.root, proof(blocks=2000, prefix=rope.root, kept=good.nodes[:1])
    ) == prefix_id(2000, rope.root)
    assert verify_prefix(
        rope.root, proof(blocks=0, prefix=EMPTY_ID, kept=good.nodes[:1])
    ) == prefix_id(0, EMPTY_ID)
