"""What is public: members of a namespace that nobody else writes, told in each commit's answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.ropes.publications import PublicBlocks
from actors.ropes.room import RopesRoom
from protocol.envelope import seal_error, seal_reply
from protocol.errors import AuthorityError, ContentError, LimitExceeded, NotVisible, Unavailable
from protocol.ids import BlockId
from protocol.messages import Empty
from protocol.messages import ropes as messages
from protocol.record import encode_record
from store.blobs import BlobFiles
from store.memory_objects import MemoryObjectStore
from store.sqlite import Database
from store.sqlite_objects import SqliteObjectStore
from tests.block_samples import Pair, file, model, system, user
from tests.rooms import Installation, Principal, opened, reply_to
from tests.ropes_rooms import Watched, block_id, commit, committed, entries

PAIRS = [system("Be brief."), file("notes", "a.txt"), user("Hi"), model("Hello")]


@pytest.fixture
async def operator(house: Installation) -> Principal:
    return await house.enroll("operator", administers=True)


def publish(pair: Pair) -> messages.Publish:
    return messages.Publish(block=pair[0], content=pair[1].encode())


async def published(operator: Principal, pair: Pair) -> messages.Publication:
    return await operator.caller.ask(
        "ropes", "publish", publish(pair), messages.Publication, administer=True
    )


async def withdrawn(operator: Principal, block: BlockId) -> messages.Publication:
    ask = messages.Withdraw(block=block)
    return await operator.caller.ask(
        "ropes", "withdraw", ask, messages.Publication, administer=True
    )


async def listed(operator: Principal) -> list[messages.Publication]:
    found = await operator.caller.ask(
        "ropes", "publications", Empty(), messages.Publications, administer=True
    )
    return found.blocks


@pytest.mark.req("AUT-5")
async def test_a_block_is_published_listed_and_withdrawn(operator: Principal) -> None:
    made = await published(operator, PAIRS[0])
    assert made == messages.Publication(
        block=block_id(PAIRS[0]), role="system", type="instruction", content_bytes=9
    )
    assert await published(operator, PAIRS[0]) == made
    await published(operator, user("Anna", name="anna"))
    assert [row.name for row in await listed(operator)].count("anna") == 1
    assert await withdrawn(operator, made.block) == made
    assert [row.role for row in await listed(operator)] == ["user"]
    with pytest.raises(NotVisible):
        await withdrawn(operator, made.block)


@pytest.mark.req("AUT-5")
@pytest.mark.parametrize(
    ("public", "count"),
    [([], None), ([0], 1), ([0, 1], 2), ([1, 2, 3], None), ([0, 2, 3], 1), ([0, 1, 2, 3], 4)],
)
async def test_a_commit_is_told_how_many_of_its_first_blocks_are_public(
    house: Installation, operator: Principal, public: list[int], count: int | None
) -> None:
    alice = await house.enroll("alice")
    for index in public:
        await published(operator, PAIRS[index])
    whole = await committed(alice, commit(PAIRS))
    assert whole.public == count
    # Also where the blocks are the base's, and none of them is in the message.
    more = [user("And now?")]
    ask = commit(more, base=whole.root, keep=4)
    assert (await committed(alice, ask)).public == count
    ask = commit(more, base=whole.root, keep=2)
    assert (await committed(alice, ask)).public == (None if count is None else min(count, 2))
    again = await committed(alice, commit([], entries=entries(PAIRS[:1]), blocks=[]))
    assert again.public == (1 if 0 in public else None)


@pytest.mark.req("AUT-3", "AUT-5")
async def test_what_is_public_is_in_nobodys_view(house: Installation, operator: Principal) -> None:
    """Whoever wants to share it says it: knowing its id gives nothing."""
    made = await published(operator, PAIRS[0])
    alice = await house.enroll("alice")
    for who in (alice, operator):
        for block in (made.block, block_id(user("unknown"))):
            ask = messages.GetObjects(ids=[str(block)])
            with pytest.raises(NotVisible):
                opened(await reply_to(who, "ropes", "get", ask), messages.Objects)
    with pytest.raises(NotVisible):
        await committed(alice, commit([], entries=entries(PAIRS[:1]), blocks=[]))


@pytest.mark.req("AUT-3", "AUT-5")
@pytest.mark.parametrize("namespace", ["public", "public/below"])
async def test_nobody_commits_to_what_is_public(house: Installation, namespace: str) -> None:
    """Not even under a handle that reaches everything."""
    alice = await house.enroll("alice", namespace="alice")
    with pytest.raises(NotVisible):
        await committed(alice, commit(PAIRS, namespace=namespace))
    with pytest.raises(ContentError, match="everybody's"):
        await house.enroll("mallory", namespace=namespace)
    assert house.store.list_members("public") == []


@pytest.mark.req("AUT-2")
async def test_only_who_operates_everything_publishes(
    house: Installation, operator: Principal
) -> None:
    alice = await house.enroll("alice")
    for op, ask in [
        ("publish", publish(PAIRS[0])),
        ("withdraw", messages.Withdraw(block=block_id(PAIRS[0]))),
        ("publications", Empty()),
    ]:
        for who in (alice, operator):
            # The operator's own handle on its namespace is no licence either.
            with pytest.raises(AuthorityError):
                opened(await reply_to(who, "ropes", op, ask), Empty)
    assert house.store.list_members("public") == []


async def test_a_content_that_is_not_the_blocks_is_refused(operator: Principal) -> None:
    ask = messages.Publish(block=PAIRS[0][0], content=b"other")
    with pytest.raises(ContentError, match="its content is"):
        await operator.caller.ask("ropes", "publish", ask, messages.Publication, administer=True)
    assert await listed(operator) == []


@pytest.mark.req("AUT-5")
async def test_a_publication_is_durable_before_it_is_answered(
    house: Installation, operator: Principal
) -> None:
    store = house.store
    assert isinstance(store, Watched)
    store.held = []
    answer = asyncio.ensure_future(published(operator, PAIRS[0]))
    while not store.held:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not answer.done()
    assert await listed(operator) == []
    store.held[0].set_result(None)
    assert (await answer).block == block_id(PAIRS[0])


@pytest.mark.req("AUT-5")
def test_what_is_public_survives_the_process(tmp_path: Path) -> None:
    store = SqliteObjectStore(Database(tmp_path / "ropes.sqlite"), BlobFiles(tmp_path / "blobs"))
    public = PublicBlocks(store)
    pairs = [*PAIRS, user("Be brief.")]
    for block, text in pairs:
        public.store_soon(block, text.encode()).result()
        public.add(block, len(text))
    # One content, two blocks: it stays as long as one of them does.
    public.remove(block_id(pairs[0]))
    rows = public.rows()
    store.close()
    store = SqliteObjectStore(Database(tmp_path / "ropes.sqlite"), BlobFiles(tmp_path / "blobs"))
    again = PublicBlocks(store)
    assert again.rows() == rows
    assert len(again) == 4
    assert block_id(pairs[0]) not in again
    for row in rows:
        again.remove(row.block)
    assert store.list_members("public") == []
    store.close()


@given(st.lists(st.booleans(), max_size=6))
def test_leading_stops_at_the_first_that_is_not(public: list[bool]) -> None:
    store = MemoryObjectStore()
    blocks = PublicBlocks(store)
    pairs = [user(f"{index}") for index in range(len(public))]
    for (block, text), is_public in zip(pairs, public, strict=True):
        if is_public:
            blocks.store_soon(block, text.encode()).result()
            blocks.add(block, len(text))
    wanted = [*public, False].index(False)
    assert blocks.leading([block_id(pair) for pair in pairs]) == wanted


def test_there_is_a_most() -> None:
    blocks = PublicBlocks(MemoryObjectStore(), blocks_max=1)
    for _ in range(2):
        blocks.store_soon(PAIRS[0][0], b"Be brief.").result()
        blocks.add(PAIRS[0][0], 9)
    with pytest.raises(LimitExceeded, match="withdraw one first"):
        blocks.store_soon(PAIRS[2][0], b"Hi")


def test_a_damaged_block_is_public_to_nobody() -> None:
    store = MemoryObjectStore()
    blocks = PublicBlocks(store)
    for block, text in PAIRS[:2]:
        blocks.store_soon(block, text.encode()).result()
    body = store._bodies[block_id(PAIRS[0])]
    body[-1] ^= 1
    found = PublicBlocks(store)
    assert [row.block for row in found.rows()] == [block_id(PAIRS[1])]


class Full:
    """A worker that runs, and takes a message after it has refused `refuses` of them."""

    def __init__(self, refuses: int) -> None:
        self.refuses = refuses
        self.took = 0

    async def receive(self, message: bytes) -> bytes:
        if self.refuses:
            self.refuses -= 1
            return seal_error(Unavailable("200000 invocations within the last minute; try later"))
        self.took += 1
        return seal_reply(encode_record(Empty()))


@pytest.mark.req("AUT-5")
async def test_a_worker_that_runs_and_does_not_take_a_withdrawal_is_no_withdrawal(
    house: Installation, operator: Principal
) -> None:
    made = await published(operator, PAIRS[0])
    worker = Full(1_000)
    house.post.rooms["worker"] = worker  # type: ignore[assignment]
    ask = messages.Withdraw(block=made.block)
    with pytest.raises(Unavailable, match="try later"):
        await operator.caller.ask("ropes", "withdraw", ask, messages.Publication, administer=True)
    # It is gone here, and whoever asks again is answered when the worker knows: at once, if it
    # only was busy.
    worker.refuses = 1
    with pytest.raises(NotVisible):
        await operator.caller.ask("ropes", "withdraw", ask, messages.Publication, administer=True)
    assert (worker.refuses, worker.took) == (0, 1)


@pytest.mark.req("AUT-5")
async def test_workers_are_told_and_one_that_does_not_run_is_not_waited_for(
    house: Installation, operator: Principal
) -> None:
    house.post.forget()
    await published(operator, PAIRS[0])
    room = house.post.rooms["ropes"]
    assert isinstance(room, RopesRoom)
    await room.tell("worker")
    told = [(each.room, each.op) for each in house.post.sent if each.room == "worker"]
    assert told == [("worker", "publications")] * 2
    assert encode_record(Empty()) == house.post.sent[-1].body
