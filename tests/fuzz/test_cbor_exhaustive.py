"""The decoder's verdict on every byte string of at most three bytes: 16,843,009 of them.

The short run leaves out inputs whose verdict is already known. The decoder is a function of the
bytes that it reads and of the input's length, nothing else; so when it decides on `prefix + zeros`
without having read past the prefix, it decides alike on every input of that length with that
prefix. `Watched` records what is read. `HUGINN_EXHAUSTIVE=1`, or the fuzz
profile, runs all inputs with no such argument and must count the same (under a minute).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import cbrrr
import pytest

from protocol import cbor
from protocol.errors import EncodingError
from tests.cbor_vectors import ACCEPTED

WHOLE = os.environ.get("HUGINN_EXHAUSTIVE") == "1" or os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
LENGTH_MAX = 3


class Watched(bytes):
    """Bytes that know how many of their first bytes somebody has looked at."""

    read: int = 0

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            start, stop, _ = key.indices(len(self))
            self.read = max(self.read, stop if stop > start else 0)
        else:
            assert isinstance(key, int)
            self.read = max(self.read, key + 1)
        return super().__getitem__(key)


def verdict(data: bytes) -> str:
    """`value`, or the rule that refuses `data`; checks that a value's encoding is `data`."""
    try:
        value = cbor.decode(data)
    except EncodingError as error:
        return error.rule
    assert cbor.encode(value) == data, data.hex()
    assert cbrrr.decode_dag_cbor(data) == value, data.hex()
    return "value"


def decided(prefix: bytes, length: int) -> str | None:
    """The verdict on every input of `length` bytes that starts with `prefix`, if there is one."""
    watched = Watched(prefix + bytes(length - len(prefix)))
    try:
        cbor.decode(watched)
    except EncodingError as error:
        return error.rule if watched.read <= len(prefix) else None
    # A value is decided at once only when nothing is left to vary.
    return None


def verdicts(prefix: bytes, length: int) -> Iterator[tuple[str, int]]:
    """(verdict, how many inputs have it) over all inputs of `length` bytes with that prefix."""
    if len(prefix) == length:
        yield verdict(prefix), 1
        return
    rule = decided(prefix, length)
    if rule is not None:
        yield rule, 256 ** (length - len(prefix))
        return
    for byte in range(256):
        yield from verdicts(prefix + bytes((byte,)), length)


def pruned_counts(length: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, inputs in verdicts(b"", length):
        counts[name] += inputs
    return counts


def whole_counts(length: int) -> Counter[str]:
    return Counter(verdict(bytes(item)) for item in product(range(256), repeat=length))


def values_of(length: int) -> int:
    """How many values the profile has whose encoding is `length` bytes, for `length` up to 3.

    Counted from the standard's tables, not with the decoder.
    """
    if length == 0:
        return 0
    integers = {1: 48, 2: 2 * (256 - 24), 3: 2 * (65536 - 256)}[length]
    byte_strings = {1: 1, 2: 256, 3: 65536}[length]
    # Characters of one byte: 128; of two bytes: U+0080 to U+07FF.
    texts = {1: 1, 2: 128, 3: 128**2 + (0x800 - 0x80)}[length]
    simple = 3 if length == 1 else 0
    return integers + byte_strings + texts + simple + arrays_of(length) + maps_of(length)


def arrays_of(length: int) -> int:
    """Arrays of `length` bytes: ways to cut what follows the head into encodings."""
    ways = [1] + [0] * (length - 1)
    for total in range(1, length):
        ways[total] = sum(values_of(first) * ways[total - first] for first in range(1, total + 1))
    return ways[length - 1]


def maps_of(length: int) -> int:
    """Maps of `length` bytes, up to 3: the empty one, and those with the empty key alone."""
    return 1 if length == 1 else values_of(length - 2)


def test_the_count_of_values_from_the_tables() -> None:
    assert [values_of(length) for length in (1, 2, 3)] == [55, 903, 218_383]
    # By hand, for two bytes: integers either side of zero, bytes, texts, arrays of one value.
    assert 232 + 232 + 256 + 128 + 55 == 903


@pytest.mark.req("ID-1", "ID-2")
@pytest.mark.parametrize("length", range(LENGTH_MAX + 1))
def test_the_decoder_accepts_every_value_and_nothing_else(length: int) -> None:
    counts = pruned_counts(length)
    assert counts.total() == 256**length
    # As many accepted as there are values, and each is its own encoding: so exactly those.
    assert counts["value"] == values_of(length)


@pytest.mark.req("ID-1")
@pytest.mark.parametrize("length", range(LENGTH_MAX + 1 if WHOLE else LENGTH_MAX))
def test_pruning_leaves_nothing_out(length: int) -> None:
    assert pruned_counts(length) == whole_counts(length)


@pytest.mark.req("ID-1")
def test_pruned_inputs_of_three_bytes_have_the_verdict_of_their_prefix() -> None:
    # A sample of what the argument says, in the short run too: every prefix, a few completions.
    checked = 0
    for prefix in map(bytes, product(range(256), repeat=2)):
        rule = decided(prefix, LENGTH_MAX)
        if rule is not None:
            checked += 1
            assert {verdict(prefix + last) for last in (b"\x00", b"\x61", b"\xff")} == {rule}
    assert checked > 50_000


@pytest.mark.req("ID-1")
@pytest.mark.parametrize(
    ("encoded", "value"), ACCEPTED[:-1], ids=[v[0][:24] for v in ACCEPTED[:-1]]
)
def test_what_is_accepted_was_read_to_the_end(encoded: str, value: cbor.Value) -> None:
    # Pruning stands on `Watched` seeing every byte that the decoder looks at.
    watched = Watched.fromhex(encoded)
    assert cbor.decode(watched) == value
    assert watched.read == len(watched)


@pytest.mark.req("ID-2")
def test_another_strict_decoder_takes_exactly_the_same_inputs_of_two_bytes() -> None:
    for length in (1, 2):
        for data in map(bytes, product(range(256), repeat=length)):
            try:
                cbrrr.decode_dag_cbor(data)
                other = True
            except ValueError:
                other = False
            assert (verdict(data) == "value") == other, data.hex()
