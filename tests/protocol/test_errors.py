from __future__ import annotations

import re

import pytest

from protocol import cbor, errors
from protocol.errors import (
    CODE_TO_ERROR,
    AuthorityError,
    EncodingError,
    FaultError,
    HuginnError,
    NotVisible,
    RequestError,
    from_map,
)
from tests.records import RECORDS


def children(kind: type[HuginnError]) -> list[type[HuginnError]]:
    return [kid for kid in kind.__subclasses__() if not kid.__module__.startswith("tests.")]


def every_class(kind: type[HuginnError]) -> list[type[HuginnError]]:
    return [kind, *(found for child in children(kind) for found in every_class(child))]


def make(kind: type[HuginnError]) -> HuginnError:
    if issubclass(kind, EncodingError):
        return kind("order", 7, "map keys are not in bytewise order")
    if issubclass(kind, AuthorityError):
        return kind("signature", "the signature is not the issuer's")
    return kind("too many", limit=3, name="x", final=True, rest=None)


def test_the_drawing_is_the_tree() -> None:
    assert RECORDS  # every module that could define an error is imported
    drawn: list[tuple[int, str]] = []
    for line in str(errors.__doc__).splitlines():
        found = re.match(r"^    ([│├└─ ]*)([A-Z]\w+)", line)
        if found:
            drawn.append((len(found[1]) // 4, found[2]))

    def walk(kind: type[HuginnError], depth: int) -> list[tuple[int, str]]:
        below = [item for child in children(kind) for item in walk(child, depth + 1)]
        return [(depth, kind.__name__), *below]

    assert drawn == walk(HuginnError, 0)


def test_every_class_has_a_code_of_its_own() -> None:
    kinds = every_class(HuginnError)
    assert all("code" in vars(kind) for kind in kinds)
    assert set(CODE_TO_ERROR.values()) == set(kinds)
    assert len(CODE_TO_ERROR) == len(kinds)


def test_yours_and_mine_are_apart() -> None:
    for kind in every_class(HuginnError)[1:]:
        assert issubclass(kind, RequestError) != issubclass(kind, FaultError)


@pytest.mark.parametrize("kind", CODE_TO_ERROR.values(), ids=lambda kind: kind.__name__)
def test_an_error_comes_back_as_its_own_class(kind: type[HuginnError]) -> None:
    error = make(kind)
    wire = cbor.decode(cbor.encode(error.to_map()))  # type: ignore[arg-type]
    back = from_map(wire)
    assert type(back) is kind
    assert (str(back), back.details) == (str(error), error.details)


def test_what_a_program_needs_comes_back_too() -> None:
    encoding = from_map(EncodingError("order", 7, "map keys out of order").to_map())
    assert isinstance(encoding, EncodingError)
    assert (encoding.rule, encoding.offset) == ("order", 7)
    assert str(encoding) == "byte 7: map keys out of order (rule order)"
    authority = from_map(errors.CapabilityError("signature", "forged").to_map())
    assert isinstance(authority, errors.CapabilityError)
    assert authority.step == "signature"


def test_details_may_have_any_name() -> None:
    details: dict[str, errors.Detail] = {"message": "m", "self": 1, "code": None}
    back = from_map(NotVisible("no such session", **details).to_map())
    assert type(back) is NotVisible
    assert back.details == details


@pytest.mark.parametrize(
    "wire",
    [
        None,
        "budget",
        [],
        {},
        {"code": "budget", "message": "m"},
        {"code": "budget", "message": "m", "details": {}, "more": 1},
        {"code": "budget", "message": 1, "details": {}},
        {"code": "budget", "message": "m", "details": []},
        {"code": "budget", "message": "m", "details": {"x": []}},
        {"code": "budget", "message": "m", "details": {"x": b"y"}},
        {"code": ["budget"], "message": "m", "details": {}},
        {"code": "unheard of", "message": "m", "details": {}},
        {"code": "encoding", "message": "m", "details": {}},
        {"code": "encoding", "message": "m", "details": {"rule": "order", "offset": "x"}},
        {"code": "encoding", "message": "m", "details": {"rule": "order", "offset": None}},
        {"code": "capability", "message": "m", "details": {"step": 1}},
    ],
)
def test_what_is_no_error_record_is_a_fault_that_says_so(wire: object) -> None:
    error = from_map(wire)
    assert type(error) is FaultError
    assert "not an error record" in str(error)
    assert repr(wire)[:20] in str(error)
