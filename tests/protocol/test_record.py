from __future__ import annotations

from enum import Enum
from itertools import combinations
from random import Random
from typing import Literal

import cbor2
import cbrrr
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cbor
from protocol.errors import ContentError, EncodingError, RecordError
from protocol.ids import BlockId, ContextId, ObjectId
from protocol.record import (
    Identified,
    Record,
    decode_record,
    encode_record,
    ids_in,
    object_id,
    to_value,
)
from tests.records import IDENTIFIED, RECORDS, Sampler, plain

every_record = pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__qualname__)


class Shade(str, Enum):
    LIGHT = "light"
    DARK = "dark"


class Inner(Record):
    id: ContextId
    note: str | None = None


class Sample(Identified):
    ID = BlockId

    v: Literal[1]
    count: int
    flag: bool
    raw: bytes
    id: BlockId
    shade: Shade
    inner: Inner
    rest: dict[str, list[int]]
    name: str | None = None

    def __post_init__(self) -> None:
        if self.count == 13:
            raise ContentError("13 is not a count")


SAMPLE = Sample(
    v=1,
    count=3,
    flag=True,
    raw=b"\x00\xff",
    id=BlockId(b"b" * 32),
    shade=Shade.DARK,
    inner=Inner(id=ContextId(b"c" * 32)),
    rest={"b": [1], "a": []},
)


def altered(**fields: cbor.Value) -> bytes:
    """SAMPLE's map with some fields replaced, encoded."""
    value = to_value(SAMPLE)
    assert isinstance(value, dict)
    return cbor.encode({**value, **fields})


def test_a_record_is_the_map_of_its_fields() -> None:
    assert cbor.decode(encode_record(SAMPLE)) == {
        "v": 1,
        "count": 3,
        "flag": True,
        "raw": b"\x00\xff",
        "id": b"b" * 32,
        "shade": "dark",
        "inner": {"id": b"c" * 32},
        "rest": {"a": [], "b": [1]},
    }
    assert decode_record(Sample, encode_record(SAMPLE)) == SAMPLE


def test_the_id_of_a_record_is_its_kinds_digest_of_its_encoding() -> None:
    assert object_id(SAMPLE) == BlockId.of(encode_record(SAMPLE))
    assert type(object_id(SAMPLE)) is BlockId


def test_every_id_that_a_record_says_is_found_and_its_own() -> None:
    own, said = object_id(SAMPLE), [BlockId(b"b" * 32), ContextId(b"c" * 32)]
    assert set(ids_in(SAMPLE)) == {own, *said}
    assert list(ids_in(SAMPLE.inner)) == said[1:]
    assert set(ids_in({"a": [(SAMPLE,)], "b": None})) == {own, *said}
    assert list(ids_in([1, b"b" * 32, str(own)])) == []


@pytest.mark.req("ID-1")
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(altered(v=2), id="another version"),
        pytest.param(altered(v=True), id="true for 1"),
        pytest.param(altered(extra=1), id="unknown field"),
        pytest.param(altered(name=None), id="null spelled out"),
        pytest.param(altered(inner={"id": b"c" * 32, "note": None}), id="null spelled out inside"),
        pytest.param(altered(inner={"id": b"c" * 32, "more": 1}), id="unknown field inside"),
        pytest.param(altered(inner={}), id="missing field inside"),
        pytest.param(altered(count=True), id="bool for int"),
        pytest.param(altered(count="3"), id="text for int"),
        pytest.param(altered(flag=1), id="int for bool"),
        pytest.param(altered(raw="AP8="), id="text for bytes"),
        pytest.param(altered(name=b"x"), id="bytes for text"),
        pytest.param(altered(id=b"b" * 31), id="id too short"),
        pytest.param(altered(id=b"b" * 33), id="id too long"),
        pytest.param(altered(id=str(SAMPLE.id)), id="id as text"),
        pytest.param(altered(shade="green"), id="unknown member"),
        pytest.param(altered(shade="DARK"), id="member by name"),
        pytest.param(altered(rest=[]), id="array for map"),
        pytest.param(altered(rest={"a": {}}), id="map for array"),
        pytest.param(altered(count=13), id="refused by the record's own check"),
        pytest.param(cbor.encode([]), id="array for the record"),
        pytest.param(cbor.encode(None), id="null for the record"),
        pytest.param(cbor.encode({}), id="nothing in it"),
    ],
)
def test_what_is_not_exactly_the_record_is_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        decode_record(Sample, data)


def test_bytes_that_are_no_encoding_are_refused_as_such() -> None:
    with pytest.raises(EncodingError):
        decode_record(Sample, encode_record(SAMPLE) + b"\x00")
    with pytest.raises(EncodingError):
        decode_record(Sample, encode_record(SAMPLE), size_max=10)
    with pytest.raises(EncodingError):
        encode_record(SAMPLE, size_max=10)


@pytest.mark.req("ID-1")
def test_a_value_that_the_encoding_lacks_does_not_leave_a_record() -> None:
    class Loose(Record):
        anything: object

    with pytest.raises(EncodingError):
        encode_record(Loose(anything=1.5))
    with pytest.raises(RecordError):
        encode_record(Loose(anything=object()))


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        SAMPLE.count = 4


def test_the_walk_over_records_finds_them() -> None:
    names = {kind.__name__ for kind in RECORDS}
    assert {"ContextBlock", "Source", "Representation"} <= names
    assert {kind.__name__ for kind in IDENTIFIED} <= names
    assert not {"Sample", "Inner", "Record", "Identified"} & names


@pytest.mark.req("ID-1")
@every_record
def test_a_field_has_no_default_but_none(kind: type[Record]) -> None:
    for field in msgspec.structs.fields(kind):
        assert field.default_factory is msgspec.NODEFAULT, f"{kind.__name__}.{field.name}"
        assert field.default in (msgspec.NODEFAULT, None), f"{kind.__name__}.{field.name}"
        assert field.encode_name == field.name


@pytest.mark.req("ID-1")
@every_record
def test_a_record_has_the_rules_of_records(kind: type[Record]) -> None:
    config = kind.__struct_config__
    assert config.frozen
    assert config.forbid_unknown_fields
    assert config.omit_defaults
    assert not config.array_like


@pytest.mark.req("ID-1", "ID-2")
@every_record
def test_three_encoders_and_three_decoders_agree_on_every_record(kind: type[Record]) -> None:
    for seed in range(60):
        record = Sampler(Random(seed), present=(0.0, 0.5, 1.0)[seed % 3]).record(kind)
        data = encode_record(record)
        # Attribute by attribute, not through `to_value`: the whole way is travelled twice.
        value = plain(record)
        assert cbrrr.encode_dag_cbor(value) == data, f"seed {seed}: {record!r}"
        assert cbor2.dumps(value, canonical=True) == data, f"seed {seed}: {record!r}"
        assert cbrrr.decode_dag_cbor(data) == cbor2.loads(data) == cbor.decode(data) == value
        decoded = decode_record(kind, data)
        assert decoded == record, f"seed {seed}"
        assert encode_record(decoded) == data, f"seed {seed}"


@pytest.mark.req("ID-1")
@given(st.sampled_from(RECORDS), st.randoms(use_true_random=False))
def test_a_record_comes_back_equal(kind: type[Record], random: Random) -> None:
    record = Sampler(random).record(kind)
    assert decode_record(kind, encode_record(record)) == record


@pytest.mark.req("ID-3")
def test_no_bytes_are_two_records_of_one_kind_of_id() -> None:
    # Records that share a kind of id share its digest: what tells them apart must be in the bytes.
    shared: dict[type[ObjectId], list[type[Identified]]] = {}
    for kind in IDENTIFIED:
        shared.setdefault(kind.ID, []).append(kind)
    pairs = [pair for kinds in shared.values() for pair in combinations(kinds, 2)]
    assert pairs, "no two records share a kind: this test checks nothing"
    for pair in pairs:
        for one, other in (pair, pair[::-1]):
            for seed in range(20):
                data = encode_record(Sampler(Random(seed)).record(one))
                with pytest.raises(RecordError):
                    decode_record(other, data)
