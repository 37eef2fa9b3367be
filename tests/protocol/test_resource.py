"""Resources and rights: one spelling each, and what covers what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cbor
from protocol.errors import RecordError
from protocol.ids import BlockId, SequenceId
from protocol.record import decode_record, encode_record
from protocol.resource import ALL, Resource, ResourceKind, Right, path_covers
from tests.chains import named, namespace

SEGMENT = st.from_regex(r"[ab][ab.-]{0,2}", fullmatch=True)
PATH = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)
PLAIN = (
    ResourceKind.SESSION,
    ResourceKind.SOURCE,
    ResourceKind.PROFILE,
    ResourceKind.DOMAIN,
    ResourceKind.SERVICE,
)


def test_the_vocabulary_of_rights_is_closed() -> None:
    assert " ".join(right.value for right in Right) == (
        "read write assemble advance generate compile emit observe telemetry grant revoke erase "
        "operate"
    )


@given(PATH, PATH)
def test_a_namespace_covers_by_whole_segments(path: str, other: str) -> None:
    segments, others = path.split("/"), other.split("/")
    expected = others[: len(segments)] == segments
    assert path_covers(path, other) == expected
    assert namespace(path).covers(namespace(other)) == expected


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(
    "path",
    [
        *(
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            ".",
            "..",
            "a/..",
            "a/../b",
            "a/./b",
            "*",
            "a/*",
            "A",
            "a/B",
        ),
        *("ä", "a\u0301", "a b", "a\n", "a\0", "a\\b", "-a", "a:b", "a%2fb", "ａ", "a" * 256),
    ],
)
def test_ambiguous_paths_are_refused(path: str) -> None:
    with pytest.raises(RecordError, match="not a namespace path"):
        namespace(path)


@pytest.mark.parametrize("kind", PLAIN)
def test_names_are_compared_whole(kind: ResourceKind) -> None:
    assert named(kind, "a/b").covers(named(kind, "a/b"))
    for other in ("a", "a/b/c", "a/B", "a/b2"):
        assert not named(kind, "a/b").covers(named(kind, other))
        assert not named(kind, other).covers(named(kind, "a/b"))
    for name in ("", "a/../b", "a//b", "a b", "*", "é", "x" * 256):
        with pytest.raises(RecordError, match="not a name"):
            named(kind, name)


def test_objects_and_sequences_are_named_by_their_ids() -> None:
    block, sequence = str(BlockId.of(b"x")), str(SequenceId.of(b"x"))
    assert named(ResourceKind.OBJECT, block).covers(named(ResourceKind.OBJECT, block))
    assert named(ResourceKind.SEQUENCE, sequence).name == sequence
    for kind, name in (
        (ResourceKind.SEQUENCE, block),
        (ResourceKind.OBJECT, "x"),
        (ResourceKind.OBJECT, block.upper()),
    ):
        with pytest.raises(RecordError, match=f"of kind {kind.value}"):
            named(kind, name)


def test_kinds_do_not_cover_each_other_and_all_covers_all() -> None:
    resources = [ALL, namespace("a"), *(named(kind, "a") for kind in PLAIN)]
    for resource in resources:
        assert ALL.covers(resource)
        for other in resources:
            assert resource.covers(other) == (resource in (other, ALL))


def test_only_all_has_no_name() -> None:
    with pytest.raises(RecordError, match="has a name"):
        Resource(kind=ResourceKind.NAMESPACE)
    with pytest.raises(RecordError, match="has a name"):
        Resource(kind=ResourceKind.ALL, name="a")


@pytest.mark.parametrize(
    "value",
    [
        {"kind": "everything", "name": "a"},
        {"kind": "namespace", "name": "a", "extra": 1},
        {"kind": "namespace", "name": b"a"},
        {"kind": "namespace", "name": "a/../b"},
        {"kind": "all", "name": None},
        {"name": "a"},
    ],
)
def test_other_records_are_not_resources(value: dict[str, cbor.Value]) -> None:
    with pytest.raises(RecordError):
        decode_record(Resource, cbor.encode(value))


def test_a_resource_comes_back() -> None:
    for resource in (ALL, namespace("a/b"), named(ResourceKind.PROFILE, "Q4_K")):
        assert decode_record(Resource, encode_record(resource)) == resource
    assert (str(ALL), str(namespace("a/b"))) == ("all", "namespace a/b")
