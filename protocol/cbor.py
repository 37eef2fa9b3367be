"""The one encoding: RFC 8949 §4.2.1 core-deterministic CBOR, narrowed.

A value is an int in [-2^63, 2^63-1], bytes, text, bool, null, an array, or a map with text keys.
No float, tag, undefined, other simple value or indefinite length; nesting at most 64; a size cap.
So a value has exactly one encoding, and bytes have exactly one value (I-ONE-ENCODING, ID-1).

Encoding goes through cbor2 behind a type gate, which also puts map keys in order: with text-only
keys, by length and then bytewise, because a shorter key has a smaller head. (cbor2's `canonical`
gives the same bytes at four times the cost; it is the tests' oracle.) The gate exists because cbor2
turns a memoryview into an array of ints, and an enum or a subclass into something that does not
come back.

Decoding is our own: cbor2's decoder accepts long heads, unsorted maps and trailing bytes.
"""

from __future__ import annotations

from typing import Final, cast

import cbor2

from protocol.errors import EncodingError
from protocol.limits import DEPTH_MAX, RECORD_BYTES_MAX

Value = int | bytes | str | bool | None | list["Value"] | dict[str, "Value"]

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

# Records come with the same keys over and over: their order and their texts are looked up. Bounded,
# and no larger for keys that a stranger chose.
_KEYS_TO_ORDER: Final[dict[tuple[str, ...], tuple[str, ...]]] = {}
_ENCODED_TO_KEY: Final[dict[bytes, str]] = {}
_REMEMBERED_MAX: Final = 4096
_ORDER_KEYS_MAX: Final = 32

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG = range(7)
_SIMPLE: Final[dict[int, Value]] = {0xF4: False, 0xF5: True, 0xF6: None}
# Initial bytes: the first text, and the first text whose length does not lie in the byte itself.
_TEXT_FIRST: Final = 0x60
_TEXT_LONG: Final = 0x78
_SIMPLE_FIRST: Final = 0xE0
# What is encoded as it stands.
_PLAIN: Final = frozenset((str, bytes, bool, type(None)))
_TEXT_ALONE: Final = frozenset((str,))


def encode(value: Value, *, size_max: int = RECORD_BYTES_MAX) -> bytes:
    """The one encoding of `value`, at most `size_max` bytes.

    Raises EncodingError (offset 0) with rule `type` for a value outside the profile, `key` for a
    key that is not text, `range` for an integer beyond 64 bits, `utf8` for a lone surrogate,
    `depth` for nesting over 64 and `size` for too many bytes.
    """
    try:
        data = cbor2.dumps(_gated(value, 1))
    except (UnicodeEncodeError, cbor2.CBOREncodeError) as error:
        raise EncodingError("utf8", 0, f"text that is not Unicode: {error}") from error
    if len(data) > size_max:
        raise EncodingError("size", 0, f"{len(data)} bytes, at most {size_max} are allowed")
    return data


def _gated(value: object, depth: int) -> object:
    """`value` itself where it is a scalar, else a copy whose maps are in canonical order."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        if not INT_MIN <= cast(int, value) <= INT_MAX:
            # Not the number itself: Python refuses to write out more than 4,300 digits.
            bits = cast(int, value).bit_length()
            raise EncodingError("range", 0, f"an integer of {bits} bits does not fit in 64, signed")
        return value
    if kind is not list and kind is not tuple and kind is not dict:
        raise EncodingError("type", 0, f"a {kind.__name__} is not a value of the record encoding")
    if depth > DEPTH_MAX:
        raise EncodingError("depth", 0, f"nested deeper than {DEPTH_MAX}")
    depth += 1
    # Most items are plain: those are spared the call.
    if kind is dict:
        entries = cast("dict[str, object]", value)
        return {
            key: item if type(item := entries[key]) in _PLAIN else _gated(item, depth)
            for key in _in_order(tuple(entries))
        }
    return [
        item if type(item) in _PLAIN else _gated(item, depth)
        for item in cast("list[object]", value)
    ]


def _in_order(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys as they are written: bytewise by their encoding, which is by length first."""
    if not _TEXT_ALONE.issuperset(map(type, keys)):
        other = next(type(key) for key in keys if type(key) is not str)
        raise EncodingError("key", 0, f"a map key is text, not a {other.__name__}")
    found = _KEYS_TO_ORDER.get(keys)
    if found is None:
        encoded = {key: key.encode("utf-8") for key in keys}
        found = tuple(sorted(keys, key=lambda key: (len(encoded[key]), encoded[key])))
        if len(_KEYS_TO_ORDER) < _REMEMBERED_MAX and len(keys) <= _ORDER_KEYS_MAX:
            _KEYS_TO_ORDER[keys] = found
    return found


def decode(data: bytes, *, size_max: int = RECORD_BYTES_MAX) -> Value:
    """The value whose one encoding is `data`.

    Raises EncodingError with the byte offset and one of the rules `size`, `empty`, `trailing`,
    `truncated`, `reserved`, `shortest`, `indefinite`, `range`, `tag`, `float`, `simple`, `utf8`,
    `key`, `order`, `duplicate`, `length`, `depth`.
    """
    if len(data) > size_max:
        raise EncodingError("size", 0, f"{len(data)} bytes, at most {size_max} are allowed")
    if not data:
        raise EncodingError("empty", 0, "no bytes at all")
    value, end = _item(data, 0, 1)
    if end != len(data):
        raise EncodingError("trailing", end, f"{len(data) - end} bytes after the value")
    return value


def _long_head(data: bytes, at: int) -> tuple[int, int]:
    """(argument, offset after the head) of the head at `at`, whose argument lies behind its first
    byte."""
    info = data[at] & 31
    if info == 31:
        raise EncodingError("indefinite", at, "indefinite lengths and breaks are not allowed")
    if info > 27:
        raise EncodingError("reserved", at, f"additional information {info} is reserved")
    width = 1 << (info - 24)
    end = at + 1 + width
    if end > len(data):
        raise EncodingError("truncated", at, f"a head of {width + 1} bytes is cut short")
    argument = int.from_bytes(data[at + 1 : end], "big")
    # The next shorter head holds 24 values (none in the byte itself), or 2^8, 2^16, 2^32.
    if argument < (24 if width == 1 else 1 << (4 * width)):
        raise EncodingError("shortest", at, f"{argument} has a shorter head")
    return argument, end


def _truncated(at: int) -> EncodingError:
    return EncodingError("truncated", at, "the value ends here, more was announced")


def _overlong(data: bytes, at: int, argument: int, end: int) -> EncodingError:
    return EncodingError("length", at, f"{argument} announced, {len(data) - end} bytes left")


def _item(data: bytes, at: int, depth: int) -> tuple[Value, int]:
    """(value, offset after it) of the item at `at`, itself at nesting `depth`.

    All of a message goes through here, a value at a time: what is frequent stands first, and in
    line.
    """
    try:
        initial = data[at]
    except IndexError:
        raise _truncated(at) from None
    if initial >= _SIMPLE_FIRST:
        return _simple(data, at)
    argument, end = initial & 31, at + 1
    if argument > 23:
        argument, end = _long_head(data, at)
    major = initial >> 5
    if major in (_TEXT, _BYTES):
        stop = end + argument
        if stop > len(data):
            raise _overlong(data, at, argument, end)
        return (data[end:stop] if major == _BYTES else _text(data, end, stop)), stop
    if major <= _NEGATIVE:
        if argument > INT_MAX:
            raise EncodingError("range", at, "the integer does not fit in 64 bits, signed")
        return (argument if major == _UNSIGNED else -1 - argument), end
    if major == _TAG:
        raise EncodingError("tag", at, f"tag {argument}: tags are not allowed")
    # Every item takes at least a byte, a map entry two: a hostile length allocates nothing.
    if (argument * 2 if major == _MAP else argument) > len(data) - end:
        raise _overlong(data, at, argument, end)
    if depth > DEPTH_MAX:
        raise EncodingError("depth", at, f"nested deeper than {DEPTH_MAX}")
    if major == _MAP:
        return _map(data, end, argument, depth)
    items: list[Value] = []
    for _ in range(argument):
        item, end = _item(data, end, depth + 1)
        items.append(item)
    return items, end


def _simple(data: bytes, at: int) -> tuple[Value, int]:
    initial = data[at]
    if initial in _SIMPLE:
        return _SIMPLE[initial], at + 1
    if 0xF9 <= initial <= 0xFB:
        raise EncodingError("float", at, "floats are not allowed; carry an integer with its unit")
    if initial == 0xFF:
        raise EncodingError("indefinite", at, "indefinite lengths and breaks are not allowed")
    if 0xFC <= initial <= 0xFE:
        raise EncodingError("reserved", at, f"additional information {initial & 31} is reserved")
    raise EncodingError("simple", at, "only false, true and null are allowed")


def _text(data: bytes, at: int, stop: int) -> str:
    try:
        return data[at:stop].decode()
    except UnicodeDecodeError as error:
        raise EncodingError("utf8", at + error.start, "text is not UTF-8") from error


def _map(data: bytes, at: int, count: int, depth: int) -> tuple[Value, int]:
    entries: dict[str, Value] = {}
    previous = b""
    depth += 1
    size = len(data)
    for _ in range(count):
        try:
            initial = data[at]
        except IndexError:
            raise _truncated(at) from None
        length, start = initial - _TEXT_FIRST, at + 1
        if not _TEXT_FIRST <= initial < _TEXT_LONG:
            if initial >> 5 != _TEXT:
                raise EncodingError("key", at, "a map key is not text")
            length, start = _long_head(data, at)
        end = start + length
        if end > size:
            raise _overlong(data, at, length, start)
        encoded = data[at:end]
        if encoded <= previous:
            if encoded == previous:
                raise EncodingError("duplicate", at, "a map key stands twice")
            raise EncodingError("order", at, "map keys are not in bytewise order")
        previous = encoded
        key = _ENCODED_TO_KEY.get(encoded)
        if key is None:
            key = _text(data, start, end)
            # A key with a long head is rare, and not worth remembering.
            if initial < _TEXT_LONG and len(_ENCODED_TO_KEY) < _REMEMBERED_MAX:
                _ENCODED_TO_KEY[encoded] = key
        entries[key], at = _item(data, end, depth)
    return entries, at
