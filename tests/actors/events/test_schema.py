"""Schemas of strangers: what is checked by them, and what is refused of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from actors.events.schema import SCHEMA_BYTES_MAX, BodySchema
from protocol.errors import ContentError, LimitExceeded

DEFS = {
    "$defs": {"n": {"type": "integer", "minimum": 1}},
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/n"}, "pattern": {"const": {"pattern": 1}}},
    "additionalProperties": False,
}


def schema(document: Any) -> BodySchema:
    return BodySchema(json.dumps(document).encode())


@pytest.mark.parametrize(
    "body", [{}, {"a": 1}, {"a": 0}, {"a": "1"}, {"b": 1}, {"pattern": {"pattern": 1}}, {"a": None}]
)
def test_a_body_is_what_the_schema_says(body: dict[str, Any]) -> None:
    if Draft202012Validator(DEFS).is_valid(body):
        schema(DEFS).check("team.Kind", body)
    else:
        with pytest.raises(ContentError, match=r"^team.Kind: \$"):
            schema(DEFS).check("team.Kind", body)


def test_bytes_are_no_json_value() -> None:
    with pytest.raises(ContentError):
        schema({"properties": {"a": {"type": "string"}}}).check("k", {"a": b"x"})


@pytest.mark.parametrize(
    ("document", "word"),
    [
        (b"", "JSON"),
        (b"\xff", "JSON"),
        (b"true", "object"),
        (b'{"type": "nothing"}', r"\$.type"),
        (b'{"$schema": "http://json-schema.org/draft-07/schema#"}', "2020-12"),
        (b'{"properties": {"a": {"pattern": "(a+)+$"}}}', "pattern"),
        (b'{"items": {"uniqueItems": true}}', "uniqueItems"),
        (b'{"patternProperties": {"x": {}}}', "patternProperties"),
        (b'{"allOf": [{"unevaluatedProperties": false}]}', "unevaluatedProperties"),
        (b'{"$ref": "https://example.org/schema"}', "of its own schema"),
        (b'{"$ref": "file:///etc/passwd"}', "of its own schema"),
        (b'{"$ref": "#"}', "refers to itself"),
        (b'{"$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}', "itself"),
        (b'{"$ref": "#/$defs/a"}', "nothing at"),
        (b'{"$id": "https://example.org/"}', "id"),
        (b'{"not": ' * 70 + b"{}" + b"}" * 70, "levels"),
        (b"[" * 100_000, "bytes|JSON"),
        (b"[" * 60_000, "JSON"),
    ],
)
def test_schemas_that_are_refused(document: bytes, word: str) -> None:
    with pytest.raises((ContentError, LimitExceeded), match=word):
        BodySchema(document)


def test_a_schema_that_unfolds_without_end_is_refused_at_once() -> None:
    """Twenty levels that name the next one twice each are a million checks of one value."""
    defs = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(20)
    }
    with pytest.raises(LimitExceeded, match="unfolds"):
        schema({"$defs": {**defs, "d20": {}}, "$ref": "#/$defs/d0"})


def test_a_schema_is_not_too_long() -> None:
    with pytest.raises(LimitExceeded, match="bytes"):
        schema({"description": "d" * SCHEMA_BYTES_MAX})
