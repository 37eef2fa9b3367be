"""The ropes room: what it stores, what it shows, and what it refuses to tell apart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.ropes.room import RopesRoom
from protocol.assembly import ContextSequence, sequence_of
from protocol.errors import (
    ContentError,
    HuginnError,
    NotVisible,
    StoreFault,
)
from protocol.ids import BlockId, ContextId, NodeId, ObjectId, SequenceId, TextId
from protocol.limits import CONTENT_BYTES_MAX
from protocol.messages import ropes as messages
from protocol.record import Record, encode_record, object_id
from protocol.rope import Entry, build
from protocol.rope.node import EMPTY_ID
from store.memory_objects import MemoryObjectStore
from tests.block_samples import Pair, file, model, user
from tests.records import Sampler
from tests.rooms import EVERY_RIGHT, Installation, Principal, new_blocks, opened, reply_to


class Watched(MemoryObjectStore):
    """Counts what is put, and holds it back while `held` is a list."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[list[ObjectId]] = []
        self.held: list[Future[None]] | None = None

    def put_many_soon(
        self, namespace: str, objects: Sequence[tuple[ObjectId, bytes]]
    ) -> Future[None]:
        self.puts.append([id for id, _ in objects])
        if self.held is None:
            return super().put_many_soon(namespace, objects)
        self.held.append(Future())
        return self.held[-1]


@pytest.fixture
async def house() -> Installation:
    return await Installation(store=Watched()).start()


@pytest.fixture
async def alice(house: Installation) -> Principal:
    return await house.enroll("alice")


def block_id(pair: Pair) -> BlockId:
    return BlockId.of(encode_record(pair[0]))


def entries(pairs: Sequence[Pair]) -> list[messages.Entry]:
    return [
        messages.Entry(block=block_id(pair), content_bytes=len(pair[1].encode())) for pair in pairs
    ]


def commit(pairs: Sequence[Pair], **changes: object) -> messages.Commit:
    """Everything new, in `alice`, on the empty sequence."""
    fields: dict[str, object] = {
        "namespace": "alice",
        "keep": 0,
        "blocks": new_blocks(pairs),
        "entries": entries(pairs),
    }
    return messages.Commit(**{**fields, **changes})  # type: ignore[arg-type]


async def committed(principal: Principal, ask: messages.Commit) -> messages.Committed:
    return await principal.caller.ask("ropes", "commit", ask, messages.Committed)


async def read(principal: Principal, sequence: SequenceId, start: int = 0) -> list[Pair]:
    ask = messages.ReadSequence(sequence=sequence, start=start)
    found = await principal.caller.ask("ropes", "read", ask, messages.SequenceBlocks)
    return [(new.block, new.content.decode()) for new in found.blocks]


def oracle(pairs: Sequence[Pair]) -> NodeId:
    return build([Entry(block_id(pair), len(pair[1].encode())) for pair in pairs]).root


FIELDS = Sampler(Random(3)).record(messages.AssemblyFields)
PAIRS = [user("a"), model("b"), file("c é\n")]


# -- commit ----------------------------------------------------------------------------------


async def test_a_commit_is_what_a_fresh_build_gives(alice: Principal) -> None:
    done = await committed(alice, commit(PAIRS, assembly=FIELDS))
    sequence = SequenceId.of(encode_record(sequence_of(oracle(PAIRS))))
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


# -- objects ---------------------------------------------------------------------------------


async def test_objects_come_back_in_the_order_asked_for(
    house: Installation, alice: Principal
) -> None:
    bodies = [(TextId, b"a"), (BlockId, b"a"), (TextId, b"")]
    house.store.put_many("alice", [(kind.of(body), body) for kind, body in bodies])
    objects = [messages.StoredObject(id=str(kind.of(body)), body=body) for kind, body in bodies]
    wanted = [*reversed(objects), objects[0]]
    got = await alice.caller.ask(
        "ropes", "get", messages.GetObjects(ids=[each.id for each in wanted]), messages.Objects
    )
    assert got.objects == wanted


async def test_a_sequence_of_another_contract_is_not_read(
    house: Installation, alice: Principal
) -> None:
    done = await committed(alice, commit(PAIRS))
    other = ContextSequence(
        sequence_contract=Sampler(Random(5)).record(ContextSequence).sequence_contract,
        root=done.root,
    )
    house.store.put_many("alice", [(object_id(other), encode_record(other))])
    with pytest.raises(ContentError, match="another sequence contract"):
        await read(alice, SequenceId.of(encode_record(other)))


@pytest.mark.parametrize(("start", "stop"), [(4, None), (-1, None), (2, 1), (0, 4)])
async def test_a_range_that_is_not_there_is_refused(
    alice: Principal, start: int, stop: int | None
) -> None:
    done = await committed(alice, commit(PAIRS))
    ask = messages.ReadSequence(sequence=done.sequence, start=start, stop=stop)
    with pytest.raises(ContentError, match="of a sequence of 3 blocks"):
        await alice.caller.ask("ropes", "read", ask, messages.SequenceBlocks)


async def test_a_drained_room_closes_its_store(house: Installation, alice: Principal) -> None:
    await house.post.rooms["ropes"].drain()
    with pytest.raises(StoreFault, match="closed"):
        await committed(alice, commit(PAIRS))


# -- views (I-VIEW) --------------------------------------------------------------------------

SECRET = [user("the plan"), model("of alice")]
ROOT = oracle(SECRET)
SEQUENCE = SequenceId.of(encode_record(sequence_of(ROOT)))
CONTEXT = ContextId.of(encode_record(FIELDS.over(SEQUENCE)))
ID = {
    "text": SECRET[0][0].source.object,
    "block": block_id(SECRET[0]),
    "node": ROOT,
    "sequence": SEQUENCE,
    "context": CONTEXT,
}
# Everything that can be asked with an id of another's in hand.
ASKED: dict[str, tuple[str, Record]] = {
    **{
        f"get the {name}": ("get", messages.GetObjects(ids=[str(known)]))
        for name, known in ID.items()
    },
    "get it beside my own": ("get", messages.GetObjects(ids=[str(block_id(PAIRS[0])), str(ROOT)])),
    "read": ("read", messages.ReadSequence(sequence=SEQUENCE, start=0)),
    "read nothing of it": ("read", messages.ReadSequence(sequence=SEQUENCE, start=0, stop=0)),
    "read outside of it": ("read", messages.ReadSequence(sequence=SEQUENCE, start=9)),
    "tree": ("tree", messages.ReadTree(sequence=SEQUENCE)),
    "a base": ("commit", commit(PAIRS, namespace="bob", base=ROOT, keep=1)),
    "a base that is too short": ("commit", commit(PAIRS, namespace="bob", base=ROOT, keep=9)),
    "a base of which nothing is kept": ("commit", commit(PAIRS, namespace="bob", base=ROOT)),
    "a block": ("commit", commit(SECRET, namespace="bob", blocks=[])),
    "a block of the wrong length": (
        "commit",
        commit(
            [],
            namespace="bob",
            entries=[messages.Entry(block=block_id(SECRET[0]), content_bytes=1)],
        ),
    ),
    "a block beside its content": (
        "commit",
        commit(SECRET, namespace="bob", blocks=new_blocks(SECRET[:1])),
    ),
}


@pytest.mark.req("AUT-3")
@pytest.mark.parametrize("name", ASKED)
async def test_what_is_anothers_answers_like_what_does_not_exist(
    house: Installation, alice: Principal, name: str
) -> None:
    """I-VIEW: byte for byte the same answer before and after it exists."""
    op, ask = ASKED[name]
    bob = await house.enroll("bob")
    await committed(bob, commit(PAIRS, namespace="bob"))
    unknown = await reply_to(bob, "ropes", op, ask)
    with pytest.raises(NotVisible):
        opened(unknown, messages.Committed)
    done = await committed(alice, commit(SECRET, assembly=FIELDS))
    assert (done.root, done.sequence, done.context) == (ROOT, SEQUENCE, CONTEXT)
    before = house.store.list_members("bob")
    assert await reply_to(bob, "ropes", op, ask) == unknown
    assert house.store.list_members("bob") == before
    # And it is the asking that is refused, not the question: alice gets another answer.
    if op != "commit":
        assert await reply_to(alice, "ropes", op, ask) != unknown


@pytest.mark.req("AUT-3")
async def test_storing_what_another_has_tells_nothing_and_shares_nothing(
    house: Installation, alice: Principal
) -> None:
    """The same bytes are kept once; nobody who puts them can tell."""
    ask = commit(SECRET, namespace="bob", assembly=FIELDS)
    first = await Installation().start()
    alone = await reply_to(await first.enroll("bob"), "ropes", "commit", ask)
    await committed(alice, commit(SECRET, assembly=FIELDS))
    bob = await house.enroll("bob")
    assert await reply_to(bob, "ropes", "commit", ask) == alone
    house.store.drop_namespace("alice")
    assert await read(bob, SEQUENCE) == SECRET
    with pytest.raises(NotVisible):
        await read(alice, SEQUENCE)


@pytest.mark.req("AUT-3")
async def test_a_handle_sees_what_lies_below_its_namespace_and_nothing_beside_it(
    house: Installation,
) -> None:
    team = await house.enroll("team")
    teamster = await house.enroll("teamster")
    member = await house.enroll("member", namespace="team/member")
    done = await committed(team, commit(PAIRS, namespace="team/member"))
    for reader in (team, member):
        assert await read(reader, done.sequence) == PAIRS
    with pytest.raises(NotVisible):
        await read(teamster, done.sequence)
    up = await committed(team, commit(SECRET, namespace="team"))
    with pytest.raises(NotVisible):
        await read(member, up.sequence)
    with pytest.raises(NotVisible):
        await committed(member, commit(PAIRS, namespace="team"))
    beside = await committed(teamster, commit([user("z")], namespace="teamster"))
    with pytest.raises(NotVisible):
        await read(team, beside.sequence)
    with pytest.raises(NotVisible):
        await committed(team, commit(PAIRS, namespace="teamster"))


@pytest.mark.req("AUT-3")
async def test_a_handle_that_may_only_write_reads_nothing_that_is_there(
    house: Installation, alice: Principal
) -> None:
    await committed(alice, commit(PAIRS))
    blind = await house.enroll("blind", namespace="alice", rights=["write"])
    with pytest.raises(NotVisible):
        await committed(blind, commit(PAIRS, blocks=[]))
    assert (await committed(blind, commit(PAIRS))).root == oracle(PAIRS)


@pytest.mark.req("AUT-3")
async def test_a_handle_without_a_namespace_sees_none(
    house: Installation, alice: Principal
) -> None:
    """Administering is no view: the operator's handle on everything reads nothing."""
    assert "read" in EVERY_RIGHT
    await committed(alice, commit(SECRET))
    operator = await house.enroll("operator", administers=True)
    ask = messages.ReadSequence(sequence=SEQUENCE, start=0)
    with pytest.raises(HuginnError, match="needs the right 'read'"):
        await operator.caller.ask("ropes", "read", ask, messages.SequenceBlocks, administer=True)
    with pytest.raises(NotVisible):
        await read(operator, SEQUENCE)
