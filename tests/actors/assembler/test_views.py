"""Views of the assembler room (I-VIEW): an id of another's, in hand, gives nothing."""

from __future__ import annotations

import pytest

from protocol.errors import NotVisible
from protocol.messages import assembler as messages
from protocol.record import Record
from tests.assembler_rooms import TALK, expected, shown
from tests.block_samples import model, user
from tests.rooms import Installation, Principal, assemble, assembled, new_blocks, opened, reply_to

SECRET = [user("the plan"), model("of alice")]
HIDDEN = expected(SECRET)
MINE = expected(TALK)
ASKED: dict[str, tuple[str, Record]] = {
    "show": ("show", messages.Show(context=HIDDEN.context, tokens=False)),
    "show tokens": ("show", messages.Show(context=HIDDEN.context, tokens=True)),
    "tree": ("tree", messages.ShowTree(context=HIDDEN.context)),
    "diff from it": ("diff", messages.DiffContexts(a=HIDDEN.context, b=MINE.context)),
    "diff to it": ("diff", messages.DiffContexts(a=MINE.context, b=HIDDEN.context)),
    "diff with itself": ("diff", messages.DiffContexts(a=HIDDEN.context, b=HIDDEN.context)),
    "assemble": ("assemble", assemble(None, namespace="bob", sequence=HIDDEN.sequence)),
    "assemble unstored": (
        "assemble",
        assemble(None, namespace="bob", sequence=HIDDEN.sequence, store=False),
    ),
    "assemble within a budget": (
        "assemble",
        assemble(None, namespace="bob", sequence=HIDDEN.sequence, tokens_max=1),
    ),
    "assemble in its namespace": ("assemble", assemble(SECRET)),
}


@pytest.mark.req("AUT-3")
@pytest.mark.parametrize("name", ASKED)
async def test_what_is_anothers_answers_like_what_does_not_exist(
    house: Installation, alice: Principal, name: str
) -> None:
    """I-VIEW: an id of another's context, in hand, gives nothing: not even that it is one."""
    op, ask = ASKED[name]
    bob = await house.enroll("bob")
    await assembled(bob, assemble(TALK, namespace="bob"))
    unknown = await reply_to(bob, "assembler", op, ask)
    with pytest.raises(NotVisible):
        opened(unknown, messages.Assembled)
    answer = await assembled(alice, assemble(SECRET))
    assert (answer.context, answer.sequence) == (HIDDEN.context, HIDDEN.sequence)
    members = house.store.list_members("bob")
    assert await reply_to(bob, "assembler", op, ask) == unknown
    assert house.store.list_members("bob") == members


@pytest.mark.req("AUT-3")
async def test_assembling_what_another_has_tells_nothing(
    house: Installation, alice: Principal
) -> None:
    """I-NO-PRESENCE: what was remembered or stored for one shows in no answer to another."""
    ask = assemble(SECRET, namespace="bob")
    alone = await Installation().start()
    answer = await reply_to(await alone.enroll("bob"), "assembler", "assemble", ask)
    await assembled(alice, assemble(SECRET))
    bob = await house.enroll("bob")
    house.post.forget()
    assert await reply_to(bob, "assembler", "assemble", ask) == answer
    (commit,) = house.post.commits
    assert (commit.base, len(commit.blocks)) == (None, len(SECRET))


@pytest.mark.req("AUT-3")
async def test_a_handle_on_a_team_sees_its_members_contexts_and_not_the_teamsters(
    house: Installation,
) -> None:
    team = await house.enroll("team")
    member = await house.enroll("member", namespace="team/member")
    teamster = await house.enroll("teamster")
    answer = await assembled(member, assemble(SECRET, namespace="team/member"))
    assert (await shown(team, answer.context)).blocks == new_blocks(SECRET)
    with pytest.raises(NotVisible):
        await shown(teamster, answer.context)
    # What the team may read it may assemble where it writes.
    again = await assembled(team, assemble(None, namespace="team", sequence=answer.sequence))
    assert again == answer
    house.store.drop_namespace("team/member")
    assert (await shown(team, answer.context)).blocks == new_blocks(SECRET)


@pytest.mark.req("AUT-3", "AUT-4")
async def test_what_left_the_view_is_gone_from_the_next_message_on(
    house: Installation, alice: Principal
) -> None:
    """What the assembler remembers of it is not enough to be told anything."""
    answer = await assembled(alice, assemble(TALK))
    await shown(alice, answer.context, tokens=True)
    house.store.drop_namespace("alice")
    for op, ask in (
        ("show", messages.Show(context=answer.context, tokens=True)),
        ("tree", messages.ShowTree(context=answer.context)),
        ("diff", messages.DiffContexts(a=answer.context, b=answer.context)),
        ("assemble", assemble(None, sequence=answer.sequence, store=False)),
    ):
        with pytest.raises(NotVisible):
            opened(await reply_to(alice, "assembler", op, ask), messages.Assembled)
