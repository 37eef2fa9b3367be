"""Encodings by hand: what the decoder takes, and what it refuses with which rule at which byte.

`REFUSED` has at least one vector for every rule that `protocol.cbor.decode` names. `REPORTS` are
real defects of other codecs, replayed: the name says where it was reported, the bytes are the
trigger. `ACCEPTED` are the examples of RFC 8949 appendix A that lie inside the profile, and the
edges of every head.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.cbor import INT_MAX, INT_MIN, Value


class Refused(NamedTuple):
    """`offset` is the 0-based byte at which `rule` is broken."""

    name: str
    hex: str
    rule: str
    offset: int


_MAJORS = ("unsigned", "negative", "bytes", "text", "array", "map")


def _long_heads() -> list[Refused]:
    """Every major type with a head one step longer than its argument needs."""
    tails = ["1800", "1817", "190018", "1900ff", "1a00000100", "1a0000ffff"]
    tails += ["1b0000000000010000", "1b00000000ffffffff"]
    return [
        Refused(
            f"long {name} head {tail}", f"{major * 2 + int(tail[0]):x}{tail[1:]}", "shortest", 0
        )
        for major, name in enumerate(_MAJORS)
        for tail in tails
    ]


def _heads(info: int, rule: str) -> list[Refused]:
    """Every major type with that additional information."""
    return [
        Refused(f"information {info} of major {major}", f"{major * 32 + info:02x}", rule, 0)
        for major in range(8)
    ]


REFUSED: Final[list[Refused]] = [
    Refused("no bytes", "", "empty", 0),
    Refused("a second value", "0000", "trailing", 1),
    Refused("a byte after a map", "a1616101ff", "trailing", 4),
    Refused("head cut after one byte", "18", "truncated", 0),
    Refused("head cut in the middle", "1b00000000000000", "truncated", 0),
    Refused("item cut in an array", "820018", "truncated", 2),
    Refused("last value of a map missing", "a260006161", "truncated", 5),
    Refused("array with an item missing", "8201", "length", 0),
    Refused("text longer than the input", "6261", "length", 0),
    Refused("bytes of 2^63-1", "5b7fffffffffffffff", "length", 0),
    Refused("text of 2^63-1", "7b7fffffffffffffff", "length", 0),
    Refused("array of 2^63-1", "9b7fffffffffffffff", "length", 0),
    Refused("map of 2^63-1", "bb7fffffffffffffff", "length", 0),
    Refused("map entries take two bytes each", "a160", "length", 0),
    Refused("two entries in three bytes", "a2600061", "length", 0),
    Refused("key longer than the input", "a1636100", "length", 1),
    *_heads(28, "reserved"),
    *_heads(29, "reserved"),
    *_heads(30, "reserved"),
    *_heads(31, "indefinite"),
    Refused("indefinite array, closed", "9f00ff", "indefinite", 0),
    Refused("indefinite bytes inside an array", "815f4100ff", "indefinite", 1),
    *_long_heads(),
    Refused("long head of a key", "a178016100", "shortest", 1),
    Refused("long head of a tag", "d80000", "shortest", 0),
    Refused("2^63", "1b8000000000000000", "range", 0),
    Refused("2^64-1", "1bffffffffffffffff", "range", 0),
    Refused("-2^63-1", "3b8000000000000000", "range", 0),
    Refused("-2^64", "3bffffffffffffffff", "range", 0),
    Refused("date as text", "c074323032362d30312d30315430303a30303a30305a", "tag", 0),
    Refused("bignum", "c249010000000000000000", "tag", 0),
    Refused("bignum that fits", "c24101", "tag", 0),
    Refused("negative bignum, empty", "c340", "tag", 0),
    Refused("shared value", "d81c80", "tag", 0),
    Refused("reference to a shared value", "82d81c80d81d00", "tag", 1),
    Refused("set", "d9010280", "tag", 0),
    Refused("content id of another system", "d82a4100", "tag", 0),
    Refused("self-described", "d9d9f700", "tag", 0),
    Refused("half float", "f93c00", "float", 0),
    Refused("single float", "fa47c35000", "float", 0),
    Refused("double float", "fb3ff199999999999a", "float", 0),
    Refused("float head alone", "f9", "float", 0),
    Refused("float inside", "8200fb3ff199999999999a", "float", 2),
    *[Refused(f"simple {i}", f"{0xE0 + i:02x}", "simple", 0) for i in (*range(20), 23)],
    *[Refused(f"simple {i} in two bytes", f"f8{i:02x}", "simple", 0) for i in (0, 20, 24, 32, 255)],
    Refused("byte that is never UTF-8", "61ff", "utf8", 1),
    Refused("overlong NUL", "62c080", "utf8", 1),
    Refused("lone surrogate", "63eda080", "utf8", 1),
    Refused("cut character", "6261c3", "utf8", 2),
    Refused("beyond U+10FFFF", "64f4908080", "utf8", 1),
    Refused("key that is not UTF-8", "a161ff00", "utf8", 2),
    Refused("integer key", "a10000", "key", 1),
    Refused("bytes key", "a14000", "key", 1),
    Refused("null key", "a1f600", "key", 1),
    Refused("break as key", "a1ff00", "key", 1),
    Refused("tagged text key", "a1c06000", "key", 1),
    Refused("b before a", "a2616201616101", "order", 4),
    Refused("longer key first", "a262616101616202", "order", 5),
    Refused("order broken inside", "81a2616201616101", "order", 5),
    Refused("third key equal to the first", "a3616100616200616100", "order", 7),
    Refused("same key twice", "a2616101616102", "duplicate", 4),
    Refused("empty key twice", "a260016002", "duplicate", 3),
    Refused("arrays nested 65 deep", "81" * 65 + "00", "depth", 64),
    Refused("maps nested 65 deep", "a160" * 65 + "00", "depth", 128),
    Refused("empty array at depth 65", "81" * 64 + "80", "depth", 64),
]

REPORTS: Final[list[Refused]] = [
    Refused(
        "agronholm/cbor2#28: keys of mixed types, in the older order",
        "a80a002000f400186400617a0081200062616100" + "81186400",
        "key",
        1,
    ),
    Refused(
        "agronholm/cbor2#28: keys of mixed types, in the order of RFC 8949",
        "a80a001864002000617a0062616100" + "81186400812000f400",
        "key",
        1,
    ),
    Refused("agronholm/cbor2#254: string references", "d90100836361626363616263d81900", "tag", 0),
    Refused("agronholm/cbor2 PR#332: after bytes", "d901008341656465666768d81900", "tag", 0),
    Refused("agronholm/cbor2 PR#335: nested reference spaces", "81d9010081d9010080", "tag", 1),
    Refused("agronholm/cbor2 PR#331: break after a key", "bf6161016162ff", "indefinite", 0),
    Refused("agronholm/cbor2 PR#326: array inside a bignum", "c28101", "tag", 0),
    Refused("CVE-2026-26209: 100,000 arrays", "81" * 100_000, "depth", 64),
    Refused("agronholm/cbor2 PR#333: maps as keys", "a1a161610000", "key", 1),
    Refused("rvagg/cborg#202: 11 in nine bytes", "1b000000000000000b", "shortest", 0),
    Refused("rvagg/cborg#201: indefinite map", "bf617411617008ff", "indefinite", 0),
    Refused("ipld/js-car PR#187: float key", "a1f93c0000", "key", 1),
    Refused("ipld/js-car PR#187: boolean key", "a1f500", "key", 1),
    Refused("IntersectMBO/cardano-api#1124: keys h'' and 24", "a24000181800", "key", 1),
    Refused("hyprstream/hyprstream PR#1052: mixed widths", "a262616100616200", "order", 5),
    Refused("dotnet/runtime#92080: negative NaN", "f9fe00", "float", 0),
    Refused("laurencelundblade/QCBOR#131: half subnormal", "f90001", "float", 0),
    Refused("laurencelundblade/QCBOR#131: the same, single", "fa33800000", "float", 0),
    Refused("ricktaylor/hardy PR#614: NaN in 64 bits", "fb7ff8000000000000", "float", 0),
    Refused("PJK/libcbor PR#447: NaN payload, half", "f97e01", "float", 0),
    Refused("PJK/libcbor PR#447: NaN payload, single", "fa7fc00001", "float", 0),
    Refused("PJK/libcbor#428: array of 2^32-1", "9affffffff", "length", 0),
    Refused("PJK/libcbor#431: map of 2^32-1", "baffffffff", "length", 0),
    Refused("IntersectMBO/evolution-sdk#396: tagged, cut", "d8799a7fffffff", "tag", 0),
    Refused("IntersectMBO/evolution-sdk#396: cut", "9a7fffffff", "length", 0),
    Refused("ipld/go-ipld-prime PR#630: unsorted map", "a2616200616100", "order", 4),
    Refused("ipld/go-ipld-prime PR#630: float of another width", "fa3fc00000", "float", 0),
    Refused("matrix-org/matrix-spec#1232: 1e6", "fb412e848000000000", "float", 0),
    Refused(
        "agentrust-io/agent-manifest PR#352: keys in the order of UTF-16",
        "a264f09080800264efbfbf6101",
        "order",
        7,
    ),
]

ACCEPTED: Final[list[tuple[str, Value]]] = [
    ("00", 0),
    ("01", 1),
    ("0a", 10),
    ("17", 23),
    ("1818", 24),
    ("1819", 25),
    ("1864", 100),
    ("18ff", 255),
    ("190100", 256),
    ("1903e8", 1000),
    ("19ffff", 65535),
    ("1a00010000", 65536),
    ("1a000f4240", 1000000),
    ("1affffffff", 2**32 - 1),
    ("1b0000000100000000", 2**32),
    ("1b000000e8d4a51000", 1000000000000),
    ("1b7fffffffffffffff", INT_MAX),
    ("20", -1),
    ("29", -10),
    ("3863", -100),
    ("3903e7", -1000),
    ("3b7fffffffffffffff", INT_MIN),
    ("f4", False),
    ("f5", True),
    ("f6", None),
    ("40", b""),
    ("4401020304", b"\x01\x02\x03\x04"),
    ("60", ""),
    ("6161", "a"),
    ("6449455446", "IETF"),
    ("62225c", '"\\'),
    ("62c3bc", "ü"),
    ("63e6b0b4", "水"),
    ("64f0908591", "\U00010151"),
    ("80", []),
    ("83010203", [1, 2, 3]),
    ("8301820203820405", [1, [2, 3], [4, 5]]),
    ("98190102030405060708090a0b0c0d0e0f101112131415161718181819", list(range(1, 26))),
    ("a0", {}),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}),
    ("826161a161626163", ["a", {"b": "c"}]),
    ("a56161614161626142616361436164614461656145", dict(zip("abcde", "ABCDE", strict=True))),
    # Composed and decomposed are two texts: no normal form is applied.
    ("62c3a9", "é"),
    ("6365cc81", "e\u0301"),
    # Shorter key first, then the order of UTF-8, which is not the order of UTF-16.
    ("a3600061620162616102", {"": 0, "b": 1, "aa": 2}),
    ("a264efbfbf610164f090808002", {"\uffffa": 1, "\U00010000": 2}),
    ("81" * 63 + "80", None),
]
# The deepest value that is allowed: 64 arrays, the innermost empty.
_deepest: list[Value] = []
for _ in range(63):
    _deepest = [_deepest]
ACCEPTED[-1] = (ACCEPTED[-1][0], _deepest)
