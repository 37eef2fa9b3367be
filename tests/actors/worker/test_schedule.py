"""The schedule against its definition, and the property that makes cold and warm runs the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.worker.schedule import CHUNK_TOKENS, Advance, advances, stream_tokens
from protocol.tokens import TokenIds, pack, unpack
from tests.bare_worker import pieces
from tests.worker_rooms import OPENER, Talk, segment

contents = st.lists(st.integers(8, 40), max_size=45).map(tuple)
roles = st.sampled_from(["user", "model", "tool"])
blocks = st.lists(st.tuples(roles, contents), min_size=1, max_size=8)


def talk(pairs: list[tuple[str, TokenIds]]) -> Talk:
    built = Talk()
    for role, content in pairs:
        built = built.add(role, content)
    return built


@given(pairs=blocks, opener=st.sampled_from([(), OPENER]))
def test_advances_are_the_definition(pairs: list[tuple[str, TokenIds]], opener: TokenIds) -> None:
    segments = talk(pairs).segments
    found = advances(segments, pack(opener), chunk_tokens=16)
    assert [advance.ids for advance in found] == pieces(segments, opener, 16)
    stream = sum((unpack(s.head) + unpack(s.content) for s in segments), ()) + opener
    assert sum((advance.ids for advance in found), ()) == stream
    assert [advance.start for advance in found] == [
        sum(len(before.ids) for before in found[:k]) for k in range(len(found))
    ]
    assert all(1 <= len(advance.ids) <= 16 for advance in found)
    assert stream_tokens(segments, pack(opener)) == len(stream)


@given(pairs=blocks, answer=contents, later=blocks)
def test_a_turn_is_a_prefix_of_every_history_that_continues_it(
    pairs: list[tuple[str, TokenIds]], answer: TokenIds, later: list[tuple[str, TokenIds]]
) -> None:
    history = talk(pairs)
    generated = advances(history.segments, pack(OPENER), chunk_tokens=16)
    settled = advances(history.add("model", answer).segments, b"", chunk_tokens=16)
    assert settled[: len(generated)] == generated
    full = history.add("model", answer).add("user", (9,))
    for role, content in later:
        full = full.add(role, content)
    assert advances(full.segments, pack(OPENER), chunk_tokens=16)[: len(settled)] == settled


def test_a_first_model_block_keeps_its_head() -> None:
    block = segment("model", (1, 2), (9, 10))
    assert advances([block], b"") == [Advance((1, 2, 9, 10), 0, 0)]


def test_bos_alone_an_opener_alone_and_a_token_array_are_prompts() -> None:
    assert advances([segment("user", (2,), ())], b"") == [Advance((2,), 0, 0)]
    assert advances([], pack((4, 3))) == [Advance((4, 3), -1, 0)]
    array = advances([segment("user", (), tuple(range(8, 8 + 300)))], b"")
    assert [(len(a.ids), a.start) for a in array] == [(CHUNK_TOKENS, 0), (44, CHUNK_TOKENS)]
    assert advances([], b"") == []
