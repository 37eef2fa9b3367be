"""Beginnings: idempotent, one at a time on a parent, and always the whole conversation."""

from __future__ import annotations

import asyncio

import pytest

from actors.events.beginnings import INLINE_BYTES_MAX
from actors.events.reminder import reminder_block
from protocol.blocks import Role
from protocol.errors import Conflict, ContentError, NotVisible
from protocol.messages.events import BeginTurn, BegunTurn
from protocol.messages.ropes import Commit
from tests.events_rooms import NAMESPACE, House, merged, model, reminders, said, texts, user
from tests.rooms import SECOND


def in_progress() -> pytest.RaisesExc[Conflict]:
    return pytest.RaisesExc(
        Conflict, check=lambda error: error.details["reason"] == "turn_in_progress"
    )


# -- who goes first ------------------------------------------------------------------------------


@pytest.mark.req("EVT-5")
async def test_of_two_at_once_one_begins(house: House, session: str) -> None:
    await house.emit("huskies", merged("1122"))
    both = await asyncio.gather(
        house.begin(session, input=[user("a")]),
        house.begin(session, input=[user("b")]),
        return_exceptions=True,
    )
    begun = [each for each in both if not isinstance(each, BaseException)]
    refused = [each for each in both if isinstance(each, Conflict)]
    assert (len(begun), len(refused)) == (1, 1)
    assert refused[0].details == {"reason": "turn_in_progress", "turn": begun[0].turn}
    assert len((await house.turns(session)).turns) == 1


@pytest.mark.req("EVT-5")
async def test_who_waits_continues_what_was_finished(house: House, session: str) -> None:
    first = await house.begin(session, input=[user("a")])
    waits = asyncio.ensure_future(house.begin(session, input=[user("b")], wait_ns_max=300 * 10**9))
    await asyncio.sleep(0)
    finished = await house.finish(first, "answer a")
    second = await asyncio.wait_for(waits, 60)
    assert second.blocks == [*finished.blocks, user("b")]


@pytest.mark.req("EVT-5")
async def test_who_waits_is_charged_for_the_time_that_passed(house: House, session: str) -> None:
    """Five at once, each for at most ten seconds, of which none pass: all are begun in turn."""
    limit_ns = 10 * SECOND
    posts = [
        asyncio.ensure_future(house.begin(session, input=[user(text)], wait_ns_max=limit_ns))
        for text in "abcde"
    ]
    for number, post in enumerate(posts):
        begun = await asyncio.wait_for(asyncio.shield(post), 60)
        assert not any(later.done() for later in posts[number + 1 :])
        await house.finish(begun, f"answer {number}")
    listed = (await house.turns(session)).turns
    assert [turn.state for turn in listed] == ["finished"] * 5
    assert texts(begun.blocks)[::2] == list("abcde")


@pytest.mark.req("EVT-5")
async def test_who_waits_less_is_refused_after_its_own_limit(house: House, session: str) -> None:
    """However often the turn in the way is another one by then."""
    first = await house.begin(session, input=[user("a")])
    long, short = (
        asyncio.ensure_future(house.begin(session, input=[user("b")], wait_ns_max=limit_ns))
        for limit_ns in (10 * SECOND, SECOND // 10)
    )
    await asyncio.sleep(0.01)
    house.passes(0.09)
    await house.finish(first)
    second = await asyncio.wait_for(long, 60)
    await asyncio.sleep(0.02)
    assert not short.done(), "a hundredth of a second is left"
    house.passes(0.01)
    with in_progress() as refused:
        await asyncio.wait_for(short, 60)
    assert refused.value.details["turn"] == second.turn


async def test_an_abandoned_turn_lets_the_next_go_on(house: House, session: str) -> None:
    await house.emit("huskies", merged("1"))
    first = await house.begin(session, input=[user("a")])
    waits = asyncio.ensure_future(house.begin(session, input=[user("b")], wait_ns_max=300 * 10**9))
    await house.abandon(first)
    second = await asyncio.wait_for(waits, 60)
    # It carries the reminder, and not the message that nobody answered.
    assert texts(second.blocks) == [reminders(first.blocks)[0], "b"]


@pytest.mark.req("EVT-5")
async def test_only_a_lease_that_ran_out_is_a_crash(house: House, session: str) -> None:
    await house.emit("huskies", merged("1"))
    first = await house.begin(session, input=[user("a")])
    house.passes(29)
    with in_progress():
        await house.begin(session, input=[user("b")])
    renewed = await house.renew(first)
    house.passes(28)
    # Also for a room that has heard of the renewal from its store alone.
    await house.crash()
    with in_progress():
        await house.begin(session, input=[user("b")])
    assert renewed.lease_ns > first.lease_ns
    house.passes(2)
    second = await house.begin(session, input=[user("b")])
    assert reminders(second.blocks) == reminders(first.blocks)
    assert [turn.state for turn in (await house.turns(session)).turns] == ["unfinished", "open"]
    with pytest.raises(Conflict, match="cannot finish"):
        await house.finish(first)
    with pytest.raises(Conflict, match="cannot renew"):
        await house.renew(first)


async def test_branches_at_once_on_one_parent_are_ordered_too(house: House, session: str) -> None:
    parent = await house.talk(session, "a")
    await house.begin(session, input=[user("b")], parent=parent.turn)
    with in_progress():
        await house.begin(session, input=[user("c")], parent=parent.turn)


# -- for whom ------------------------------------------------------------------------------------


@pytest.mark.req("AUT-3", "AUT-7")
async def test_who_may_not_read_is_told_no_conversation_remembered_or_not(
    house: House, session: str
) -> None:
    """The session is none for it, whatever it names of it, before a restart and after."""
    blind = await house.rooms.enroll("blind", namespace=NAMESPACE, rights=["generate", "write"])
    await house.emit("huskies", merged("1122"))
    first = await house.begin(session, input=[user("secret")], response="resp-first", key="k")
    await house.finish(first)
    opened = await house.begin(session, input=[user("open")], key="open")
    for forgotten in (False, True):
        if forgotten:
            await house.crash()
        said = set()
        for number, fields in enumerate(
            [
                {"session": "session-unknown", "input": [user("b")]},
                {"session": session, "input": [user("b")]},
                {"session": session, "input": [user("b")], "parent": first.turn},
                {"session": session, "input": [user("secret")], "key": "k"},
                {"session": session, "input": [user("b")], "key": "k"},
                {"session": session, "input": [user("open")], "key": "open"},
                {"session": session, "history": [user("secret"), model("Well."), user("b")]},
                {"parent_response": "resp-first", "input": [user("b")]},
                {"parent_response": "resp-unheard", "input": [user("b")]},
                {"parent_response": "resp-first", "session": "session-x", "input": [user("b")]},
            ]
        ):
            response = f"resp-blind-{number}"
            ask = BeginTurn(namespace=NAMESPACE, response=response, wait_ns_max=0, **fields)
            with pytest.raises(NotVisible) as caught:
                await house.ask("begin_turn", ask, BegunTurn, as_=blind)
            said.add((caught.value.message, str(caught.value.details)))
        assert len(said) == 1
        again = await house.begin(session, input=[user("secret")], key="k")
        assert (texts(again.blocks)[-1], again.answer) == ("secret", "Well.")
    assert len((await house.turns(session)).turns) == 2
    await house.finish(opened)


# -- lineages ------------------------------------------------------------------------------------


@pytest.mark.req("EVT-3")
async def test_a_branch_sees_what_its_lineage_has_not_seen(house: House, session: str) -> None:
    first = await house.talk(session, "a")
    await house.emit("huskies", merged("1"))
    second = await house.talk(session, "b")
    await house.emit("huskies", merged("2"))
    branch = await house.begin(session, input=[user("c")], parent=first.turn)
    assert len(reminders(second.blocks)) == 1
    (told,) = reminders(branch.blocks)
    assert "1 merged" in told
    assert "2 merged" in told
    assert texts(branch.blocks)[0] == "a"


@pytest.mark.req("EVT-3")
async def test_a_parent_may_be_named_by_its_response(house: House, session: str) -> None:
    first = await house.begin(session, input=[user("a")], response="resp-first")
    await house.finish(first)
    await house.talk(session, "b")
    branch = await house.begin(None, input=[user("c")], parent_response="resp-first")
    assert texts(branch.blocks) == ["a", "Well.", "c"]
    with pytest.raises(NotVisible):
        await house.begin(None, input=[user("c")], parent_response="resp-unheard")
    other = (await house.open()).id
    with pytest.raises(ContentError, match="another session"):
        await house.begin(other, input=[user("c")], parent_response="resp-first")


@pytest.mark.req("EVT-5")
async def test_reminders_of_a_chain_of_crashes_are_carried_once(house: House, session: str) -> None:
    await house.talk(session, "a")
    for number in range(3):
        await house.emit("huskies", merged(str(number)))
        await house.begin(session, input=[user(f"try {number}")])
        house.passes(31)
        await house.crash()
    await house.emit("huskies", merged("3"))
    begun = await house.begin(session, input=[user("at last")])
    told = reminders(begun.blocks)
    assert [f"{n} merged" in text for n, text in enumerate(told)] == [True] * 4
    assert texts(begun.blocks) == ["a", "Well.", *told, "at last"]
    await house.finish(begun)
    after = await house.begin(session, input=[user("more")])
    assert reminders(after.blocks) == told


# -- keys ---------------------------------------------------------------------------------------


async def test_a_turn_with_a_key_is_begun_once(house: House, session: str) -> None:
    await house.emit("huskies", merged("1"))
    first = await house.begin(session, input=[user("a")], key="k", response="resp-k")
    again = await house.begin(session, input=[user("a")], key="k", response="resp-k")
    assert again == first
    with in_progress():
        await house.begin(session, input=[user("a")], key="k", response="resp-other")
    await house.finish(first, "the answer")
    await house.crash()
    done = await house.begin(session, input=[user("a")], key="k", response="resp-later")
    assert (done.answer, done.response, done.turn) == ("the answer", "resp-k", first.turn)
    assert done.blocks == first.blocks
    assert len((await house.turns(session)).turns) == 1


async def test_a_key_of_a_turn_that_crashed_begins_another(house: House, session: str) -> None:
    first = await house.begin(session, input=[user("a")], key="k")
    house.passes(31)
    second = await house.begin(session, input=[user("a")], key="k")
    assert second.turn != first.turn
    assert second.answer is None


# -- histories --------------------------------------------------------------------------------


@pytest.mark.req("EVT-12")
async def test_a_resent_history_has_its_reminders_again(house: House, session: str) -> None:
    await house.emit("huskies", merged("1"))
    history = [said(Role.SYSTEM, "Be brief."), user("a")]
    first = await house.begin(session, history=history)
    await house.finish(first, "answer a")
    assert texts(first.blocks) == ["Be brief.", reminders(first.blocks)[0], "a"]
    await house.emit("huskies", merged("2"))
    second = await house.begin(session, history=[*history, model("answer a"), user("b")])
    assert second.blocks[:4] == [*first.blocks, model("answer a")]
    assert "2 merged" in texts(second.blocks)[-2]
    assert second.reminders == 2


@pytest.mark.req("EVT-12")
async def test_reminders_of_what_was_cut_move_whole_to_the_newest(
    house: House, session: str
) -> None:
    await house.emit("huskies", merged("1"))
    first = await house.begin(session, history=[user("a")])
    await house.finish(first, "answer")
    await house.emit("huskies", merged("2"))
    second = await house.begin(session, history=[user("a"), model("answer"), user("b")])
    await house.finish(second)
    third = await house.begin(session, history=[user("a"), model("answer"), user("other")])
    assert reminders(third.blocks) == reminders(second.blocks)
    assert texts(third.blocks)[-2:] == [reminders(second.blocks)[1], "other"]


@pytest.mark.req("EVT-12")
async def test_a_second_try_keeps_its_prefix(house: House, session: str) -> None:
    await house.emit("huskies", merged("1"))
    first = await house.begin(session, history=[user("a")])
    await house.abandon(first)
    await house.emit("huskies", merged("2"))
    second = await house.begin(session, history=[user("a")])
    assert second.blocks[:2] == first.blocks
    assert "2 merged" in texts(second.blocks)[2]


async def test_a_history_goes_on_after_kept_turns_and_back(house: House, session: str) -> None:
    await house.emit("huskies", merged("1"))
    first = await house.talk(session, "a", "answer a")
    resent = [user("a"), model("answer a"), user("b")]
    second = await house.begin(session, history=resent)
    assert second.blocks == [*first.blocks, *resent[1:]]
    await house.finish(second, "answer b")
    third = await house.begin(session, input=[user("c")])
    assert texts(third.blocks) == [*texts(second.blocks), "answer b", "c"]


async def test_what_an_unfinished_history_moved_is_where_the_kept_one_has_it(
    house: House, session: str
) -> None:
    await house.emit("huskies", merged("1"))
    first = await house.begin(session, history=[user("a")])
    await house.finish(first, "answer a")
    moved = await house.begin(session, history=[user("b")])
    assert texts(moved.blocks) == [reminders(first.blocks)[0], "b"]
    await house.abandon(moved)
    third = await house.begin(session, input=[user("c")])
    await house.finish(third, "answer c")
    resent = [user("a"), model("answer a"), user("c"), model("answer c"), user("d")]
    fourth = await house.begin(session, history=resent)
    assert fourth.blocks == [*third.blocks, *resent[3:]]


# -- what is stored -----------------------------------------------------------------------------


async def test_a_room_that_forgot_everything_says_the_same(house: House, session: str) -> None:
    await house.emit("huskies", merged("1"))
    first = await house.talk(session, "a")
    await house.crash()
    second = await house.begin(session, input=[user("b")])
    assert second.blocks == [*first.blocks, model("Well."), user("b")]
    await house.crash()
    finished = await house.finish(second, "again")
    assert texts(finished.blocks)[-2:] == ["b", "again"]


async def test_a_long_input_is_stored_before_its_turn(house: House, session: str) -> None:
    await house.talk(session, "a")
    long = user("x" * (INLINE_BYTES_MAX + 1))
    begun = await house.begin(session, input=[long])
    assert begun.blocks[-1] == long
    await house.crash()
    finished = await house.finish(begun)
    assert finished.blocks[-2] == long


async def test_answers_are_kept_incrementally(house: House, session: str) -> None:
    for number in range(3):
        await house.talk(session, f"say {number}")
    commits = house.rooms.post.asked("ropes", "commit", Commit)
    assert [(commit.keep, len(commit.entries)) for commit in commits] == [(0, 2), (2, 2), (4, 2)]


# -- what may not be ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "either"),
        ({"history": [user("a")], "input": [user("a")]}, "either"),
        ({"history": [user("a")], "parent": "turn-1"}, "continues the newest"),
        ({"input": [user("a")], "parent": "x", "parent_response": "y"}, "not by both"),
        ({"input": []}, "at least one"),
        ({"input": [user("a")], "wait_ns_max": -1}, "wait_ns_max"),
        ({"input": [user("a")], "key": "a\nb"}, "key"),
        ({"input": [user("a")], "response": ""}, "response"),
        ({"input": [user("a")], "tokens_max": 10}, "64 to"),
        ({"input": [reminder_block("x")]}, "made here"),
    ],
)
async def test_what_a_turn_may_not_begin_with(
    house: House, session: str, changes: dict[str, object], says: str
) -> None:
    with pytest.raises(ContentError, match=says):
        await house.begin(session, **changes)
    assert (await house.turns(session)).turns == []


async def test_a_turn_needs_a_session(house: House, session: str) -> None:
    with pytest.raises(ContentError, match="of a session"):
        await house.begin(None, input=[user("a")])
    for unknown in ("session-x", ""):
        with pytest.raises(NotVisible):
            await house.begin(unknown, input=[user("a")])
    with pytest.raises(NotVisible):
        await house.begin(session, input=[user("a")], parent="turn-x")
