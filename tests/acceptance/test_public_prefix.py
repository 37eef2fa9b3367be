"""The public domain, through authority, ropes, assembler and a worker on the tiny model.

Two domains share nothing; with a public prefix they share exactly that. States and answers are the
bytes that a private cold run gives, and what a caller without `telemetry` is told is the same
whatever anybody did before.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from actors.worker.chain import chains
from actors.worker.schedule import advances
from protocol.messages.worker import AskPages, HeldPages
from protocol.publication import PUBLIC
from protocol.record import object_id
from store.pages.header import domain_digest
from tests.block_samples import model, system, user
from tests.public_house import (
    GUIDE,
    NO_TELEMETRY,
    SYSTEM,
    TINY,
    PublicHouse,
    Told,
    private_run,
    public_house,
    same,
    seer,
)
from tests.rooms import Principal


@pytest.mark.req("AUT-5", "KV-1")
async def test_without_a_publication_two_domains_share_nothing(house: PublicHouse) -> None:
    alice, bob = await seer(house, "alice"), await seer(house, "bob")
    talk = [SYSTEM, user("hello")]
    first = await house.turn(alice, talk)
    again = await house.turn(bob, talk)
    assert first.known.reused_tokens == again.known.reused_tokens == 0
    assert first.known.public_tokens is again.known.public_tokens is None
    assert house.kept("public") == 0
    same(first, again)


@pytest.mark.req("AUT-5", "KV-1", "KV-5")
async def test_with_a_public_prefix_they_share_exactly_that(house: PublicHouse) -> None:
    await house.publish(SYSTEM)
    await house.publish(GUIDE)
    alice, bob = await seer(house, "alice"), await seer(house, "bob")
    mine = [SYSTEM, GUIDE, user("my secret is seven"), model("I keep it."), user("which is it?")]
    # Word for word as alice's, past what is public.
    theirs = [SYSTEM, GUIDE, user("my secret is seven"), user("tell me")]
    await house.turn(alice, mine)
    told = await house.turn(bob, theirs)
    whole = sum(block.tokens for block in told.known.blocks[:2])
    assert told.known.public_tokens == told.known.reused_tokens == whole > 128
    assert [block.reused for block in told.known.blocks[2:]] == [0, 0]
    assert told.known.blocks[2].block == object_id(mine[2][0])
    # Alice's own conversation is as warm as it was: bob took nothing from her.
    longer = [*mine, model("seven"), user("right")]
    warm = await house.turn(alice, longer)
    assert warm.known.prompt_tokens - warm.known.reused_tokens < 30
    same(told, await private_run(house, theirs, "theirs"))
    same(warm, await private_run(house, longer, "longer"))


@pytest.mark.req("AUT-5", "KV-4", "KV-8")
async def test_public_pages_lie_apart_and_come_back_from_every_tier(house: PublicHouse) -> None:
    await house.publish(SYSTEM)
    first = await house.turn(await seer(house, "first"), [SYSTEM, user("one")])
    tokens = first.known.public_tokens
    assert tokens is not None
    pages = house.kept("public") // 2
    assert pages == -(-tokens // 64)
    assert house.kept("first") == 2, "the page of its own question, in memory and on disk"
    # Nothing of the public part is lost on a stream: on the next empty one it comes from memory.
    second = await house.turn(await seer(house, "second"), [SYSTEM, user("two")])
    assert second.known.tiers["host"] + second.known.tiers["device"] == tokens
    await house.restart()
    third = await house.turn(await seer(house, "third"), [SYSTEM, user("three")])
    assert third.known.tiers == {"device": 0, "host": 0, "disk": tokens}
    assert third.known.pages_verified == pages
    same(third, await private_run(house, [SYSTEM, user("three")], "third"))
    # In the clear, and nothing of anybody's own.
    folder = house.pages / domain_digest("public").hex()
    assert len(list(folder.iterdir())) == pages


@pytest.mark.req("AUT-5")
async def test_a_damaged_public_page_is_computed_anew(house: PublicHouse) -> None:
    await house.publish(SYSTEM)
    await house.turn(await seer(house, "first"), [SYSTEM, user("one")])
    house.kept("public")
    await house.stop_worker()
    folder = house.pages / domain_digest("public").hex()
    for path in folder.iterdir():
        body = bytearray(path.read_bytes())
        body[-100] ^= 1
        path.unlink()
        path.write_bytes(body)
    await house.start_worker()
    told = await house.turn(await seer(house, "second"), [SYSTEM, user("two")])
    assert told.known.reused_tokens == 0
    assert set(told.known.pages_refused) == {"digest"}
    same(told, await private_run(house, [SYSTEM, user("two")], "second"))


@pytest.mark.req("AUT-7")
async def test_a_receipt_that_touched_the_public_domain_needs_telemetry_there(
    house: PublicHouse,
) -> None:
    """Also when nothing was warm: that the prompt begins with public blocks is what counts."""
    await house.publish(SYSTEM)
    talk = [SYSTEM, user("hello")]
    own = [user("hello alone")]
    clara = await house.house.enroll("clara")
    private = await house.turn(clara, own)
    assert private.known.withheld is None
    assert private.known.ttft_ns + private.known.advances > 0
    assert private.items[0].kind == "prefill"
    cold = await house.turn(clara, talk)
    await house.turn(await seer(house, "sara"), talk)
    doris = await house.house.enroll("doris")
    warm = await house.turn(doris, talk)
    for told in (cold, warm):
        assert told.known.withheld is True
        assert told.known.reused_tokens == told.known.advances == told.known.pages_verified == 0
        assert told.known.queued_ns == told.known.ttft_ns == told.known.total_ns == 0
        assert told.known.tiers == {}
        assert told.known.state_digest is told.known.public_tokens is None
        assert {block.reused for block in told.known.blocks} == {0}
        assert {item.kind for item in told.items} == {"delta", "end"}
        assert told.items[-1].receipt == structs.replace(told.known, context=told.prompt.context)
    seen = await house.turn(await seer(house, "vera"), talk)
    assert seen.known.reused_tokens == seen.known.public_tokens is not None
    assert seen.known.withheld is None


@pytest.mark.req("AUT-7", "DRV-6")
async def test_public_pages_are_told_of_to_who_has_telemetry_there(house: PublicHouse) -> None:
    """Also to who computed the same: whether they are there says who else did."""
    await house.publish(SYSTEM)
    alice = await seer(house, "alice")
    told = await house.turn(alice, [SYSTEM, user("hello")])
    house.kept(PUBLIC)
    pieces = advances(told.prompt.segments, told.prompt.opener, chunk_tokens=TINY.chunk_tokens)
    infos = house.host.find(PUBLIC, chains(TINY.profile_id(), pieces))
    assert len(infos) > 1

    async def held(who: Principal) -> list[bool]:
        asks = [AskPages(chain=info.page.chain, pages=[info.digest]) for info in infos]
        return [(await who.caller.ask("worker", "pages", ask, HeldPages)).held for ask in asks]

    clara = await house.house.enroll("clara")
    for talk in ([user("something else")], [SYSTEM, user("hello")]):
        await house.turn(clara, talk)
        assert not any(await held(clara))
    assert all(await held(alice))


@pytest.mark.req("AUT-6", "AUT-7", "AUT-9")
async def test_what_a_principal_is_told_does_not_depend_on_who_was_there_before(
    tmp_path: Path,
) -> None:
    """The same requests of bob's, with and without alice's history, publication or not."""
    talks = [
        [SYSTEM, user("what do you see?")],
        [SYSTEM, user("what do you see?"), model("snow"), user("and now?")],
        [SYSTEM, GUIDE, user("and here?")],
        [user("nothing public")],
    ]
    heard: list[list[tuple[object, ...]]] = []
    for visited in (False, True):
        async with public_house(tmp_path / f"{visited}") as house:
            await house.publish(SYSTEM)
            await house.publish(GUIDE)
            if visited:
                alice = await house.house.enroll("alice")
                for talk in talks:
                    await house.turn(alice, talk, settled=True)
            house.turns = 0
            bob = await house.house.enroll("bob", rights=NO_TELEMETRY)
            told = [await house.turn(bob, talk) for talk in talks]
            heard.append([_heard(each) for each in told])
    assert heard[0] == heard[1]


def _heard(told: Told) -> tuple[object, ...]:
    """All that a caller sees of a turn, but for the random seed and where text was cut."""
    end = told.items[-1]
    assert end.receipt is not None
    receipt = structs.replace(end.receipt, seed=0)
    kinds = {item.kind for item in told.items}
    return told.text, told.ids, kinds, end.finish, receipt, told.prompt.context, told.prompt.tokens


@pytest.mark.req("AUT-5")
async def test_what_follows_a_public_block_says_nothing_of_anybody(house: PublicHouse) -> None:
    """The opener, or a model's header, joins the last public block's advance: it is private then,
    for it says that somebody was answered there."""
    short = system("You are a raven.")
    await house.publish(short)
    alice, bob = await seer(house, "alice"), await seer(house, "bob")
    told = await house.turn(alice, [short])
    assert told.known.public_tokens is None
    assert house.kept("public") == 0
    assert (await house.turn(bob, [short])).known.reused_tokens == 0
    await house.turn(bob, [short, model("Caw."), user("why?")])
    assert house.kept("public") == 0
    await house.turn(bob, [short, user("why?")])
    assert house.kept("public") == 2


@pytest.mark.req("AUT-5", "KV-5")
async def test_only_leading_blocks_are_public(house: PublicHouse) -> None:
    await house.publish(GUIDE)
    alice, bob = await seer(house, "alice"), await seer(house, "bob")
    for who in (alice, bob):
        told = await house.turn(who, [user("first this"), GUIDE, user("then that")])
        assert told.known.public_tokens is None
        assert told.known.reused_tokens == 0
    assert house.kept("public") == 0


@pytest.mark.req("AUT-5")
async def test_two_first_conversations_at_once_share_what_one_of_them_fed(
    house: PublicHouse,
) -> None:
    await house.publish(SYSTEM)
    people = [await seer(house, name) for name in ("a", "b", "c", "d", "e", "f")]
    talks = [[SYSTEM, user(f"question {index}")] for index in range(len(people))]
    told = await asyncio.gather(
        *(house.turn(who, talk) for who, talk in zip(people, talks, strict=True))
    )
    for each, talk in zip(told, talks, strict=True):
        assert each.known.reused_tokens <= (each.known.public_tokens or 0)
        same(each, await private_run(house, talk, str(talk[1][1]).replace(" ", "-")))
    house.kept("public")
    assert (await house.turn(await seer(house, "z"), talks[0])).known.reused_tokens > 0
