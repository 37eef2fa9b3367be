"""Views of the ropes room (I-VIEW): what it refuses to tell apart, and whom it shows what."""

from __future__ import annotations

import pytest

from protocol.errors import HuginnError, NotVisible
from protocol.ids import ContextId
from protocol.messages import ropes as messages
from protocol.record import Record, encode_record
from tests.block_samples import model, user
from tests.rooms import EVERY_RIGHT, Installation, Principal, new_blocks, opened, reply_to
from tests.ropes_rooms import FIELDS, PAIRS, block_id, commit, committed, oracle, read, sequence_id

SECRET = [user("the plan"), model("of alice")]
ROOT = oracle(SECRET)
SEQUENCE = sequence_id(ROOT)
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
