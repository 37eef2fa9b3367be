"""The lineage finds the longest stored prefix, in the right namespace, within its bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.assembler.lineage import Base, Lineage, running_digests
from protocol.ids import BlockId, NodeId

IDS = [BlockId.of(bytes([number])) for number in range(8)]
blocks = st.lists(st.sampled_from(IDS), max_size=8)


def root(blocks: list[BlockId], namespace: str = "a") -> NodeId:
    """Stands for the root of those blocks: one for each list."""
    return NodeId.of(namespace.encode() + b"".join(block.digest for block in blocks))


@given(st.lists(st.tuples(st.sampled_from("ab"), blocks), max_size=8), blocks)
def test_the_longest_known_prefix_is_found(
    stored: list[tuple[str, list[BlockId]]], asked: list[BlockId]
) -> None:
    lineage = Lineage()
    for namespace, each in stored:
        lineage.remember(namespace, each, root(each, namespace))
    for namespace in "ab":
        found = lineage.find(namespace, asked)
        mine = [each for where, each in stored if where == namespace]
        shared = [_shared(each, asked) for each in mine]
        assert found.keep == max(shared, default=0)
        if found.keep:
            # Its root is of a sequence that was stored there and begins so: the last of them.
            best = [each for each in mine if _shared(each, asked) == found.keep]
            assert found.root == root(best[-1], namespace)
        else:
            assert found == Base(None, 0)


def _shared(a: list[BlockId], b: list[BlockId]) -> int:
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count


@given(blocks, blocks)
def test_what_is_forgotten_is_not_found(a: list[BlockId], b: list[BlockId]) -> None:
    lineage = Lineage()
    lineage.remember("a", a, root(a))
    lineage.forget("a", b)
    kept = lineage.find("a", a)
    # Of `a`, only what goes beyond the prefix that it shares with `b` is left.
    assert kept.keep == (len(a) if len(a) > _shared(a, b) else 0)
    assert lineage.find("a", a[: _shared(a, b)]) == Base(None, 0)


def test_it_is_bounded_and_the_oldest_used_goes_first() -> None:
    lineage = Lineage(prefixes_max=3)
    first, second = IDS[:2], IDS[2:4]
    lineage.remember("a", first, root(first))
    lineage.find("a", first)
    lineage.remember("a", second, root(second))
    assert lineage.find("a", first).keep == 2
    assert lineage.find("a", first[:1]) == Base(None, 0)
    assert lineage.find("a", second).keep == 2
    lineage.remember("a", IDS, root(IDS))
    assert lineage.find("a", IDS).keep == 8
    assert lineage.find("a", IDS[:6]).keep == 6
    assert lineage.find("a", IDS[:5]) == Base(None, 0)
    assert lineage.find("a", second) == Base(None, 0)


def test_a_namespace_does_not_run_into_its_blocks() -> None:
    digests = {
        digest
        for namespace in ("a", "ab", "a/b", "é")
        for digest in running_digests(namespace, IDS[:2])
    }
    assert len(digests) == 8
    assert running_digests("a", IDS[:3])[:2] == running_digests("a", IDS[:2])
    assert running_digests("a", []) == []
