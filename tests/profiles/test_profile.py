"""A profile's id covers every field (KV-1)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from profiles.profile import MACHINE_ISA, RuntimeProfile, isa
from protocol.record import Record, decode_record, encode_record, object_id
from tests.model_fixtures import tiny


def other(value: object) -> object:
    """A value of the same type that is not `value`."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "x"
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:]
        case tuple():
            return (*value, "x")
        case dict():
            return {**value, "x": 7}
    raise TypeError(value)


def variants(record: Record) -> Iterator[tuple[str, Record]]:
    """The record with each of its fields changed in turn, nested records' fields too."""
    for field in record.__struct_fields__:
        value = getattr(record, field)
        if isinstance(value, Record):
            for name, changed in variants(value):
                yield f"{field}.{name}", msgspec.structs.replace(record, **{field: changed})
        else:
            yield field, msgspec.structs.replace(record, **{field: other(value)})


@pytest.mark.req("KV-1")
def test_changing_any_field_changes_the_id() -> None:
    _, profile = tiny()
    ids = {object_id(profile): "itself"}
    for name, changed in variants(profile):
        assert object_id(changed) not in ids, (name, ids[object_id(changed)])
        ids[object_id(changed)] = name
    pinned = set(ids.values())
    # What the requirement lists, by the name of the field that pins it.
    assert pinned >= {
        *("model.weights_digest", "model.window_tokens", "model.layers", "model.architecture"),
        *("tokenizer.vocabulary_digest", "tokenizer.deny_digest", "tokenizer.control"),
        *("tokenizer.discipline", "grammar", "compute_dtype", "kv_type", "kv_layout"),
        *("attention", "rope", "context_tokens", "adapter", "device_class", "backend"),
        *("backend_version", "build_digest", "machine", "isa", "threads_decode", "schedule"),
        *("batch_tokens", "ubatch_tokens", "streams", "swa_full", "kv_unified", "group_max"),
        *("page_tokens", "reduction", "equality", "reproducible_generation", "weights_repack"),
    }


def test_a_profile_is_a_record_that_comes_back() -> None:
    _, profile = tiny()
    assert decode_record(RuntimeProfile, encode_record(profile)) == profile


def test_instruction_sets_by_machine() -> None:
    assert isa("x86_64") == isa("AMD64") == ("avx2", "bmi2", "f16c", "fma")
    assert isa("aarch64") == ()
    assert all(list(sets) == sorted(sets) for sets in MACHINE_ISA.values())
