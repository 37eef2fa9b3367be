"""Commits: a fresh build's ids in one durable put, and nothing stored of what is refused."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.ropes.room import RopesRoom
from protocol.errors import ContentError, HuginnError, NotVisible, StoreFault
from protocol.ids import ContextId, NodeId
from protocol.limits import CONTENT_BYTES_MAX
from protocol.messages import ropes as messages
from protocol.record import encode_record
from protocol.rope.node import EMPTY_ID
from tests.block_samples import Pair, user
from tests.rooms import Installation, Principal
from tests.ropes_rooms import (
    FIELDS,
    PAIRS,
    Watched,
    block_id,
    commit,
    committed,
    oracle,
    read,
    sequence_id,
)


async def test_a_commit_is_what_a_fresh_build_gives(alice: Principal) -> None:
    done = await committed(alice, commit(PAIRS, assembly=FIELDS))
    sequence = sequence_id(oracle(PAIRS))
    assert done == messages.Committed(
        root=oracle(PAIRS),
        sequence=sequence,
        context=ContextId.of(encode_record(FIELDS.over(sequence))),
        blocks=3,
        amplification_nodes=1,
    )
    assert await read(alice, done.sequence) == PAIRS
    assert await read(alice, done.sequence, 1) == PAIRS[1:]


async def test_without_an_assembly_there_is_no_context(alice: Principal) -> None:
    assert (await committed(alice, commit(PAIRS))).context is None


async def test_a_commit_is_one_put_and_answered_when_it_is_durable(
    house: Installation, alice: Principal
) -> None:
    store = house.store
    assert isinstance(store, Watched)
    store.held = []
    asked = asyncio.ensure_future(committed(alice, commit(PAIRS, assembly=FIELDS)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asked.done()
    assert len(store.held) == 1
    kinds = [type(id).PREFIX for id in store.puts[0]]
    assert kinds == ["text", "block"] * 3 + ["rope", "seq", "ctx"]
    store.held[0].set_result(None)
    assert (await asked).root == oracle(PAIRS)
    assert len(store.puts) == 1


async def test_a_commit_that_the_disk_refused_is_not_acknowledged(
    house: Installation, alice: Principal
) -> None:
    store = house.store
    assert isinstance(store, Watched)
    store.held = []
    asked = asyncio.ensure_future(committed(alice, commit(PAIRS)))
    while not store.held:
        await asyncio.sleep(0)
    store.held[0].set_exception(StoreFault("the disk is full"))
    with pytest.raises(StoreFault, match="disk is full"):
        await asked
    store.held = None
    # Nothing of it is taken for stored: the block goes by its id in vain.
    with pytest.raises(NotVisible):
        await committed(alice, commit(PAIRS, blocks=[]))


async def test_a_commit_twice_is_a_commit_once(house: Installation, alice: Principal) -> None:
    ask = commit(PAIRS, assembly=FIELDS)
    first = await committed(alice, ask)
    stats = house.store.stats()
    assert await committed(alice, ask) == first
    assert house.store.stats() == stats
    # Blocks that are there go by their ids; so they do after a restart has forgotten lengths.
    assert await committed(alice, commit(PAIRS, blocks=[], assembly=FIELDS)) == first
    await house.restart("ropes")
    assert await committed(alice, commit(PAIRS, blocks=[], assembly=FIELDS)) == first
    assert house.store.stats() == stats


async def test_nothing_is_a_sequence_too(alice: Principal) -> None:
    done = await committed(alice, commit([]))
    assert (done.root, done.blocks) == (EMPTY_ID, 0)
    assert await read(alice, done.sequence) == []
    again = await committed(alice, commit(PAIRS, base=done.root))
    assert again.root == oracle(PAIRS)


texts = st.lists(st.text(max_size=3), max_size=30)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 60), texts), max_size=6))
def test_every_edit_equals_a_fresh_build(edits: list[tuple[int, list[str]]]) -> None:
    """Keep some, append some, over and over; each root is the fresh build's, each reads back."""

    async def run() -> None:
        alice = await (await Installation().start()).enroll("alice")
        flat: list[Pair] = []
        base: NodeId | None = None
        for wanted, tail in edits:
            keep = min(wanted, len(flat))
            added = [user(text) for text in tail]
            flat = flat[:keep] + added
            done = await committed(alice, commit(added, base=base, keep=keep))
            base = done.root
            assert (done.root, done.blocks) == (oracle(flat), len(flat))
            assert await read(alice, done.sequence) == flat

    asyncio.run(run())


async def test_one_more_turn_writes_few_nodes(alice: Principal) -> None:
    pairs = [user(f"turn {number}") for number in range(2000)]
    done = await committed(alice, commit(pairs))
    whole = done.amplification_nodes
    worst = 0
    for number in range(20):
        pairs.append(user(f"more {number}"))
        done = await committed(alice, commit(pairs[-1:], base=done.root, keep=len(pairs) - 1))
        worst = max(worst, done.amplification_nodes)
    assert done.root == oracle(pairs)
    assert worst <= 5 < whole
    cut = await committed(alice, commit([], base=done.root, keep=1000))
    assert cut.root == oracle(pairs[:1000])
    assert cut.amplification_nodes <= 5


async def test_an_edit_longer_than_what_is_remembered(house: Installation) -> None:
    """Lengths are memory: a room that remembers two says the same of a sequence of three."""
    alice = await house.enroll("alice")
    await committed(alice, commit(PAIRS))
    await house.add(RopesRoom(house.world("ropes"), house.store, lengths_max=2))
    for _ in range(2):
        assert (await committed(alice, commit(PAIRS, blocks=[]))).root == oracle(PAIRS)


# -- refused ---------------------------------------------------------------------------------

REFUSED: dict[str, tuple[messages.Commit, type[HuginnError], str]] = {
    "more kept than there is": (commit(PAIRS, keep=1), ContentError, "keep 1 of a base of 0"),
    "less than nothing kept": (commit(PAIRS, keep=-1), ContentError, "blocks -1 to 0"),
    "a content of another length": (
        commit(
            PAIRS[:1],
            entries=[messages.Entry(block=block_id(PAIRS[0]), content_bytes=2)],
        ),
        ContentError,
        "holds 1 bytes of content, not 2",
    ),
    "a content of another id": (
        commit(PAIRS[:1], blocks=[messages.NewBlock(block=PAIRS[0][0], content=b"other")]),
        ContentError,
        "its content is",
    ),
    "a block that is not there": (commit(PAIRS, blocks=[]), NotVisible, "no such object"),
    "a base that is not there": (
        commit(PAIRS, base=NodeId(b"x" * 32), keep=1),
        NotVisible,
        "there is no rope:",
    ),
    "another's namespace": (commit(PAIRS, namespace="bob"), NotVisible, "no such object"),
    "a namespace that only begins alike": (
        commit(PAIRS, namespace="alice2"),
        NotVisible,
        "no such object",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_commit_that_is_refused_stores_nothing(
    house: Installation, alice: Principal, name: str
) -> None:
    ask, kind, text = REFUSED[name]
    before = house.store.stats()
    with pytest.raises(HuginnError, match=text) as caught:
        await committed(alice, ask)
    assert type(caught.value) is kind
    assert house.store.stats() == before


async def test_a_content_that_is_too_long_is_refused(house: Installation, alice: Principal) -> None:
    long = user("x" * (CONTENT_BYTES_MAX + 1))
    with pytest.raises(ContentError, match=f"at most {CONTENT_BYTES_MAX}"):
        await committed(alice, commit([long]))
    assert house.store.stats().objects == 0


async def test_the_same_wrong_length_is_refused_for_a_block_that_is_stored(
    alice: Principal,
) -> None:
    await committed(alice, commit(PAIRS))
    wrong = [messages.Entry(block=block_id(PAIRS[2]), content_bytes=4)]
    with pytest.raises(ContentError, match="holds 5 bytes of content, not 4"):
        await committed(alice, commit([], entries=wrong))
