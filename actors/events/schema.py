"""JSON Schemas of strangers: draft 2020-12, less what could hold up everybody.

A schema is registered by one principal and runs in the room that serves all. So it may name nothing
outside itself, it may not go round in circles, what it unfolds to is bounded, and keywords whose
cost grows faster than the event (regular expressions, uniqueness, what earlier keywords evaluated)
are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from protocol.cbor import Value
from protocol.errors import ContentError, LimitExceeded

SCHEMA_BYTES_MAX: Final = 64 * 1024
# Subschemas once every reference is replaced by what it names.
UNFOLDED_MAX: Final = 10_000
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFUSED: Final = frozenset(
    {
        "$anchor",
        "$dynamicAnchor",
        "$dynamicRef",
        "$id",
        "$recursiveRef",
        "$vocabulary",
        "pattern",
        "patternProperties",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    }
)
# Keywords whose value is data, in which nothing is a keyword; and maps of names to schemas.
_DATA: Final = frozenset({"const", "default", "dependentRequired", "enum", "examples", "required"})
_NAMED: Final = frozenset({"$defs", "dependentSchemas", "properties"})
_DEPTH_MAX: Final = 64


class BodySchema:
    """One checked schema. Raises ContentError or LimitExceeded that say what is wrong with it."""

    def __init__(self, schema: bytes) -> None:
        document = _document(schema)
        _Unfolding(document).walk(document, (), 0)
        try:
            Draft202012Validator.check_schema(document)
        except SchemaError as error:
            raise ContentError(
                f"this is no JSON Schema of draft 2020-12: {error.json_path}: {error.message:.300}"
            ) from error
        self._validator = Draft202012Validator(document)

    def check(self, kind: str, body: Mapping[str, Value]) -> None:
        """Raises ContentError, naming the place and the rule, unless `body` is as the schema says.

        A field of bytes is no JSON value: it satisfies no `type`.
        """
        error = next(iter(self._validator.iter_errors(body)), None)
        if error is not None:
            raise ContentError(f"{kind}: {error.json_path:.200}: {error.message:.300}")


def _document(schema: bytes) -> Any:
    if len(schema) > SCHEMA_BYTES_MAX:
        raise LimitExceeded(
            f"a schema of {len(schema)} bytes, at most {SCHEMA_BYTES_MAX} are allowed"
        )
    try:
        document = json.loads(schema.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ContentError(f"a schema is JSON in UTF-8: {error}") from error
    if not isinstance(document, dict):
        raise ContentError("the schema of a body is a JSON object")
    if document.get("$schema", _DIALECT) != _DIALECT:
        raise ContentError(f"a schema is of draft 2020-12: leave `$schema` out or say {_DIALECT}")
    return document


class _Unfolding:
    """Walks a schema as validating will, references followed."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._walked = 0

    def walk(self, schema: Any, references: tuple[str, ...], depth: int) -> None:
        self._walked += 1
        if depth > _DEPTH_MAX:
            raise LimitExceeded(f"the schema unfolds to more than {_DEPTH_MAX} levels")
        if self._walked > UNFOLDED_MAX:
            raise LimitExceeded(
                f"the schema unfolds to more than {UNFOLDED_MAX} parts: it refers too often"
            )
        if isinstance(schema, list):
            for part in schema:
                self.walk(part, references, depth + 1)
        if not isinstance(schema, dict):
            return
        for keyword, value in schema.items():
            if keyword in _REFUSED:
                raise ContentError(
                    f"`{keyword}` is not taken in the schema of an event: its cost has no bound"
                )
            if keyword == "$ref":
                self._follow(value, references, depth)
            elif keyword in _NAMED and isinstance(value, dict):
                for part in value.values():
                    self.walk(part, references, depth + 1)
            elif keyword not in _DATA:
                self.walk(value, references, depth + 1)

    def _follow(self, pointer: object, references: tuple[str, ...], depth: int) -> None:
        if not isinstance(pointer, str) or (pointer != "#" and not pointer.startswith("#/")):
            raise ContentError(
                "a `$ref` names a place of its own schema, such as '#/$defs/x', "
                f"not {pointer!r:.80}"
            )
        if pointer in references:
            raise ContentError(f"the schema refers to itself by {pointer:.80}: it has no end")
        place = self._root
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(place, dict) or name not in place:
                raise ContentError(f"the schema has nothing at {pointer:.80}")
            place = place[name]
        self.walk(place, (*references, pointer), depth + 1)
