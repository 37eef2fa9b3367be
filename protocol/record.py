"""Records: frozen structs with one encoding and one id.

A record's map has its field names as keys. An optional field that is absent is omitted, never
null; unknown fields and versions are refused. A number that is not an integer is carried as an
integer with its unit in the name (`weight_ppm`, `age_ns`). The only default that a field may have
is None (a test walks every record): any other would be a second encoding of the same record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, ClassVar, Final, TypeVar, cast, dataclass_transform

import msgspec

from protocol import cbor
from protocol.errors import RecordError, RequestError
from protocol.ids import ObjectId
from protocol.limits import RECORD_BYTES_MAX


@dataclass_transform(frozen_default=True, kw_only_default=True)
class _RecordMeta(msgspec.StructMeta):
    """Gives every record the same rules: msgspec does not pass `kw_only` on to subclasses."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _RecordMeta:
        options = {
            "frozen": True,
            "kw_only": True,
            "forbid_unknown_fields": True,
            "omit_defaults": True,
            **options,
        }
        return super().__new__(cls, name, bases, namespace, **options)


class Record(msgspec.Struct, metaclass=_RecordMeta):
    """Base of all records: frozen, keyword-only, unknown fields refused."""


class Identified(Record):
    """A record with an id of its own kind, `ID`."""

    ID: ClassVar[type[ObjectId]]


R = TypeVar("R", bound=Record)
_NULL: Final = b"\xf6"


def encode_record(record: Record, *, size_max: int = RECORD_BYTES_MAX) -> bytes:
    """The one encoding of `record`; raises EncodingError as `cbor.encode` does."""
    return cbor.encode(to_value(record), size_max=size_max)


def to_value(record: Record) -> cbor.Value:
    """The record as the map that is encoded. Ids become their 32 digest bytes."""
    built = msgspec.to_builtins(record, builtin_types=(bytes,), enc_hook=_id_to_bytes)
    return cast("cbor.Value", built)


def decode_record(kind: type[R], data: bytes, *, size_max: int = RECORD_BYTES_MAX) -> R:
    """The record of `kind` whose one encoding is `data`.

    Raises EncodingError for bytes that are not an encoding, RecordError for a value that is not
    exactly this record: an unknown, missing or mistyped field, another version, an explicit null.
    """
    value = cbor.decode(data, size_max=size_max)
    record = from_value(kind, value)
    # The bytes are the one encoding of the value. The value is the record's unless it spells out an
    # absent field as null; encoding again to see that is dear, so it is done where a null stands.
    if _NULL in data and _has_null(value) and encode_record(record, size_max=size_max) != data:
        raise RecordError(f"a {kind.__name__} spells out a field that must be left out when absent")
    return record


def from_value(kind: type[R], value: cbor.Value) -> R:
    """The record of `kind` that a decoded map holds; raises RecordError.

    What a record's own check (`__post_init__`) refuses is a RecordError here too, whatever it
    raises in the hands of a caller who builds one.
    """
    try:
        return msgspec.convert(value, kind, strict=True, builtin_types=(bytes,), dec_hook=_to_id)
    except (msgspec.ValidationError, RequestError) as error:
        raise RecordError(f"not a {kind.__name__}: {error}", record=kind.__name__) from error


def object_id(record: Identified) -> ObjectId:
    """The id of `record`: its kind's digest of its one encoding."""
    return record.ID.of(encode_record(record))


def ids_in(value: object) -> Iterator[ObjectId]:
    """Every id that `value`, a record or what one is made of, says, and those that records in it
    have themselves; some of them twice."""
    match value:
        case ObjectId():
            yield value
        case Record():
            if isinstance(value, Identified):
                yield object_id(value)
            for name in value.__struct_fields__:
                yield from ids_in(getattr(value, name))
        case list() | tuple():
            for each in value:
                yield from ids_in(each)
        case dict():
            for each in value.values():
                yield from ids_in(each)


def _has_null(value: object) -> bool:
    """Whether a null stands in `value`, itself or anywhere inside."""
    if type(value) is dict:
        items: Collection[object] = value.values()
    elif type(value) is list:
        items = value
    else:
        return value is None
    # Most items are scalars: those are looked through without a call for each.
    if None in items:
        return True
    return any(_has_null(item) for item in items if type(item) is dict or type(item) is list)


def _id_to_bytes(value: object) -> bytes:
    if isinstance(value, ObjectId):
        return value.digest
    raise RecordError(f"a {type(value).__name__} does not belong in a record")


def _to_id(kind: type[Any], value: object) -> object:
    if issubclass(kind, ObjectId) and type(value) is bytes:
        return kind(value)
    raise RecordError(f"expected the 32 bytes of a {kind.__name__}")
