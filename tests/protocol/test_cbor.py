from __future__ import annotations

import re
import time
import tracemalloc
from enum import IntEnum
from random import Random
from typing import Any, cast

import cbor2
import cbrrr
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cbor
from protocol.errors import EncodingError
from protocol.limits import DEPTH_MAX
from tests.cbor_vectors import ACCEPTED, REFUSED, REPORTS, Refused
from tests.records import Sampler

VALUES: st.SearchStrategy[cbor.Value] = st.recursive(
    st.none() | st.booleans() | st.integers(cbor.INT_MIN, cbor.INT_MAX) | st.binary() | st.text(),
    lambda items: st.lists(items) | st.dictionaries(st.text(), items),
)


def rules(function: object) -> set[str]:
    """The rules that a docstring names, in its `Raises` paragraph."""
    raises = str(function.__doc__).partition("Raises")[2]
    return set(re.findall(r"`([a-z0-9]+)`", raises))


class Colour(IntEnum):
    RED = 1


class Name(str):
    __slots__ = ()


@pytest.mark.req("ID-1")
@pytest.mark.parametrize("vector", [pytest.param(v, id=v.name) for v in [*REFUSED, *REPORTS]])
def test_each_vector_is_refused_by_its_rule_at_its_byte(vector: Refused) -> None:
    with pytest.raises(EncodingError) as caught:
        cbor.decode(bytes.fromhex(vector.hex))
    assert (caught.value.rule, caught.value.offset) == (vector.rule, vector.offset)


@pytest.mark.req("ID-1")
@pytest.mark.parametrize(("encoded", "value"), ACCEPTED, ids=[item[0][:24] for item in ACCEPTED])
def test_each_vector_is_the_one_encoding_of_its_value(encoded: str, value: cbor.Value) -> None:
    data = bytes.fromhex(encoded)
    assert cbor.encode(value) == data
    decoded = cbor.decode(data)
    assert decoded == value
    assert type(decoded) is type(value)


def test_every_rule_that_decode_names_has_a_vector() -> None:
    # `size` depends on the caller's cap and has a test of its own.
    assert {v.rule for v in REFUSED} | {"size"} == rules(cbor.decode)


@pytest.mark.req("ID-1")
@pytest.mark.parametrize(
    ("value", "rule"),
    [
        pytest.param(1.0, "type", id="float"),
        pytest.param(bytearray(b"x"), "type", id="bytearray"),
        pytest.param(memoryview(b"x"), "type", id="memoryview"),
        pytest.param({1, 2}, "type", id="set"),
        pytest.param(Colour.RED, "type", id="enum"),
        pytest.param(Name("x"), "type", id="text of a subclass"),
        pytest.param([Colour.RED], "type", id="enum inside"),
        pytest.param({"a": 1.5}, "type", id="float in a map"),
        pytest.param(cbor2.CBORTag(2, b"\x01"), "type", id="tag"),
        pytest.param(cbor2.undefined, "type", id="undefined"),
        pytest.param({1: 2}, "key", id="integer key"),
        pytest.param({"a": 1, b"b": 2}, "key", id="bytes key"),
        pytest.param({Name("x"): 1}, "key", id="key of a subclass"),
        pytest.param({10**5000: 1}, "key", id="key too long to write out"),
        pytest.param(cbor.INT_MAX + 1, "range", id="2^63"),
        pytest.param(cbor.INT_MIN - 1, "range", id="-2^63-1"),
        pytest.param(10**5000, "range", id="integer too long to write out"),
        pytest.param("\ud800", "utf8", id="lone surrogate"),
        pytest.param({"\udfff": 1}, "utf8", id="lone surrogate in a key"),
    ],
)
def test_encode_refuses_what_would_not_come_back(value: object, rule: str) -> None:
    with pytest.raises(EncodingError) as caught:
        cbor.encode(value)  # type: ignore[arg-type]
    assert (caught.value.rule, caught.value.offset) == (rule, 0)
    assert rule in rules(cbor.encode)


@pytest.mark.req("ID-1")
def test_what_is_remembered_of_keys_lets_nothing_else_through() -> None:
    data = cbor.encode({"x": 1, "yy": 2})
    assert cbor.decode(data) == {"x": 1, "yy": 2}
    # Equal to a remembered key, and of another type.
    with pytest.raises(EncodingError) as caught:
        cbor.encode({Name("x"): 1, "yy": 2})
    assert caught.value.rule == "key"
    for hostile, rule in (("a2617801617802", "duplicate"), ("a262797902617801", "order")):
        with pytest.raises(EncodingError) as caught:
            cbor.decode(bytes.fromhex(hostile))
        assert caught.value.rule == rule
    # A key that was refused once is refused again.
    for _ in range(2):
        with pytest.raises(EncodingError) as caught:
            cbor.decode(bytes.fromhex("a161ff01"))
        assert (caught.value.rule, caught.value.offset) == ("utf8", 2)


@pytest.mark.req("ID-1")
def test_more_keys_than_are_remembered_change_nothing() -> None:
    for number in range(5000):
        value: cbor.Value = {f"key {number}": number}
        assert cbor.decode(cbor.encode(value)) == value


def nested(depth: int) -> cbor.Value:
    value: cbor.Value = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.req("ID-1")
def test_encode_and_decode_draw_the_line_of_depth_at_the_same_place() -> None:
    deepest = nested(DEPTH_MAX)
    assert cbor.decode(cbor.encode(deepest)) == deepest
    with pytest.raises(EncodingError) as caught:
        cbor.encode(nested(DEPTH_MAX + 1))
    assert caught.value.rule == "depth"
    endless: list[cbor.Value] = []
    endless.append(endless)
    with pytest.raises(EncodingError) as caught:
        cbor.encode(endless)
    assert caught.value.rule == "depth"


@pytest.mark.req("ID-1")
def test_encode_and_decode_draw_the_line_of_size_at_the_same_place() -> None:
    data = cbor.encode("x" * 98)
    assert len(data) == 100
    assert cbor.encode("x" * 98, size_max=100) == data
    assert cbor.decode(data, size_max=100) == "x" * 98
    with pytest.raises(EncodingError) as on_encode:
        cbor.encode("x" * 98, size_max=99)
    with pytest.raises(EncodingError) as on_decode:
        cbor.decode(data, size_max=99)
    for caught in (on_encode, on_decode):
        assert (caught.value.rule, caught.value.offset) == ("size", 0)


@pytest.mark.req("ID-1")
@given(VALUES)
def test_decode_undoes_encode(value: cbor.Value) -> None:
    decoded = cbor.decode(cbor.encode(value))
    assert decoded == value
    # Python holds True and 1 for equal; the bytes do not.
    assert cbor.encode(decoded) == cbor.encode(value)


@pytest.mark.req("ID-1")
@given(st.dictionaries(st.text(), st.integers(0, 9)), st.randoms(use_true_random=False))
def test_the_order_of_a_dict_does_not_show(entries: dict[str, cbor.Value], random: Random) -> None:
    items = list(entries.items())
    random.shuffle(items)
    assert cbor.encode(dict(items)) == cbor.encode(entries)


@pytest.mark.req("ID-1", "ID-2")
def test_three_encoders_and_three_decoders_agree_on_20000_values() -> None:
    sampler = Sampler(Random(2026))
    for number in range(20_000):
        fields = sampler.random.randrange(12)
        value: cbor.Value = {sampler.text(): sampler.value(1) for _ in range(fields)}
        data = cbor.encode(value)
        assert data == cbor2.dumps(value, canonical=True), f"value {number}: {value!r}"
        assert data == cbrrr.encode_dag_cbor(cast(Any, value)), f"value {number}: {value!r}"
        assert cbor.decode(data) == value, f"value {number}: {data.hex()}"
        assert cbor.encode(cbor.decode(data)) == data, f"value {number}: {data.hex()}"
        assert cbor2.loads(data) == value, f"value {number}: {data.hex()}"
        assert cbrrr.decode_dag_cbor(data) == value, f"value {number}: {data.hex()}"


@pytest.mark.req("ID-1")
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x81" * 100_000, id="nested arrays"),
        pytest.param(b"\xa1\x60" * 100_000, id="nested maps"),
        pytest.param(b"\x9a\xff\xff\xff\xff" * 8_000, id="announced arrays"),
        pytest.param(bytes.fromhex("9b7fffffffffffffff") * 4_000, id="announced arrays of 2^63"),
        pytest.param(bytes.fromhex("bb7fffffffffffffff") * 4_000, id="announced maps of 2^63"),
        pytest.param(bytes.fromhex("5b7fffffffffffffff") * 4_000, id="announced bytes of 2^63"),
        pytest.param(b"\x9a\x00\x01\xff\xff" + b"\x9a\x00\x01\xf0\x00" * 26_000, id="each fits"),
    ],
)
def test_hostile_nesting_and_lengths_cost_nothing(data: bytes) -> None:
    tracemalloc.start()
    try:
        started = time.perf_counter()
        with pytest.raises(EncodingError):
            cbor.decode(data)
        elapsed = time.perf_counter() - started
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 200_000
    assert elapsed < 3


def test_time_grows_with_the_input_and_not_with_its_square() -> None:
    # The defects replayed: keys that share prefixes, and keys chosen to collide when hashed.
    def seconds(count: int) -> float:
        data = cbor.encode({f"{number:032d}": number for number in range(count)})
        started = time.perf_counter()
        cbor.decode(data)
        return time.perf_counter() - started

    small = min(seconds(2_000) for _ in range(3))
    large = min(seconds(32_000) for _ in range(3))
    # Sixteen times the entries: linear is 16, quadratic is 256.
    assert large / small < 64


def test_a_key_of_a_subclass_is_refused_where_its_equal_was_encoded_before() -> None:
    assert cbor.encode({"seen": 1, "before": 2})
    with pytest.raises(EncodingError) as refused:
        cbor.encode({Name("seen"): 1, "before": 2})
    assert refused.value.rule == "key"
