"""The memo beside the rooms that it remembers for: warm, cold, damaged, full or gone, a valid
request is answered alike; and nothing of what it says or hears shows what a prompt says.

A turn here does what a room that executes does: it looks first, executes what is not known, and
reports that afterwards. The assembler executes for real.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import pytest

from actors.muninn.evidence import EvidenceLog
from actors.muninn.index import MEMO, Index
from actors.muninn.limits import MemoLimits
from protocol.assembly import ContextAssembly
from protocol.derivation import Derivation
from protocol.errors import HuginnError
from protocol.families import assembled
from protocol.ids import ContextId, TokensId
from protocol.messages import assembler
from protocol.messages import muninn as messages
from protocol.tokens import pack, unpack
from store.memory_tables import MemoryTables
from store.tables import Delete, Put
from tests.block_samples import Pair, file, model, system, user
from tests.derivations import FailingTables
from tests.muninn_rooms import Raven
from tests.rooms import Principal, assemble
from tests.rooms import assembled as assembled_by

SECRET = "the raven's name is Munin-7731"
TALKS: list[list[Pair]] = [
    [system("Be brief."), user("Hvað heitir þú?")],
    [user(f"Remember: {SECRET}"), model("I shall."), user("What is it?")],
    [file("x = 1\n", "a.py"), user("What does it do? 🐦")],
]


class Turn(NamedTuple):
    """What a caller gets, in ids, and whether it was remembered."""

    context: ContextId
    stream: TokensId
    tokens: int
    remembered: bool

    @property
    def given(self) -> tuple[ContextId, TokensId, int]:
        return self[:3]


async def executed(raven: Raven, alice: Principal, talk: list[Pair]) -> tuple[Derivation, int]:
    """The assembler's own work, and what it is in terms of derivations."""
    answer = await assembled_by(alice, assemble(talk))
    show = assembler.Show(context=answer.context, tokens=False)
    shown = await alice.caller.ask("assembler", "show", show, assembler.Shown, delegate=("ropes",))
    return assembled(shown.assembly, TokensId.of(stream(answer))), answer.tokens


def stream(answer: assembler.Assembled) -> bytes:
    return pack([i for s in answer.segments for i in unpack(s.head) + unpack(s.content)])


async def turn(raven: Raven, alice: Principal, talk: list[Pair]) -> Turn:
    derivation, tokens = await executed(raven, alice, talk)
    try:
        (answer,) = await raven.look(alice, derivation)
    except HuginnError:
        answer = messages.Answer(state="unknown")
    if answer.state == "known" and answer.outputs is not None:
        context, digest = (output.id for output in answer.outputs)
        return Turn(ContextId.parse(context), TokensId.parse(digest), tokens, True)
    execution = raven.execution(derivation, "assembler", measurements={"tokens": tokens})
    with suppress(HuginnError):
        await raven.report(execution, room="assembler")
    context, digest = (output.id for output in derivation.outputs)
    return Turn(ContextId.parse(context), TokensId.parse(digest), tokens, False)


async def turns(raven: Raven, alice: Principal) -> list[Turn]:
    return [await turn(raven, alice, talk) for talk in TALKS]


async def started(tables: MemoryTables | None, **options: MemoLimits) -> tuple[Raven, Principal]:
    raven = await Raven(tables=tables, **options).start()  # type: ignore[arg-type]
    return raven, await raven.house.enroll("alice")


@pytest.mark.req("DRV-7", "ASM-8")
async def test_a_memo_that_is_deleted_changes_nothing_and_comes_back() -> None:
    raven, alice = await started(MemoryTables())
    cold = await turns(raven, alice)
    warm = await turns(raven, alice)
    assert [each.remembered for each in cold] == [False] * 3
    assert [each.remembered for each in warm] == [True] * 3
    raven.tables = MemoryTables()
    for name in ("assembler", "ropes", "authority"):
        raven.house.clock.now_ns += 10**9
        await raven.house.restart(name)
    await raven.restart()
    again = await turns(raven, alice)
    assert [each.remembered for each in again] == [False] * 3
    assert [each.given for each in cold] == [each.given for each in warm]
    assert [each.given for each in cold] == [each.given for each in again]
    assert [each.remembered for each in await turns(raven, alice)] == [True] * 3


@pytest.mark.req("DRV-7")
async def test_what_is_remembered_is_what_executing_gives() -> None:
    raven, alice = await started(MemoryTables())
    await turns(raven, alice)
    for talk in TALKS:
        derivation, _ = await executed(raven, alice, talk)
        (answer,) = await raven.look(alice, derivation.invocation)
        assert answer.outputs == list(derivation.outputs)
    # Another assembly of the same sequence is another derivation.
    answer = await assembled_by(alice, assemble(TALKS[0], tokens_max=999))
    show = assembler.Show(context=answer.context, tokens=False)
    shown = await alice.caller.ask("assembler", "show", show, assembler.Shown, delegate=("ropes",))
    assert isinstance(shown.assembly, ContextAssembly)
    other = assembled(shown.assembly, TokensId.of(stream(answer)))
    assert await raven.known(alice, other) == [False]


@pytest.mark.req("DRV-7")
async def test_the_assembler_reports_of_itself_what_it_stored() -> None:
    raven = await Raven(reporting=True).start()
    alice = await raven.house.enroll("alice")
    for talk in (*TALKS, TALKS[0]):
        await assembled_by(alice, assemble(talk))
    await assembled_by(alice, assemble([user("Only asked for.")], store=False))
    await raven.house.post.rooms["assembler"].drain()
    (told,) = raven.house.post.asked("muninn", "report", messages.Report)
    assert len(told.entries) == len(TALKS)
    for talk in TALKS:
        derivation, _ = await executed(raven, alice, talk)
        raven.held.hold("alice", derivation)
        assert await raven.known(alice, derivation) == [True]


@pytest.mark.req("DRV-5", "DRV-7")
async def test_a_memo_that_is_gone_holds_no_assembler_up() -> None:
    answers = []
    for trouble in (None, kill_the_room):
        raven = await Raven(reporting=True).start()
        alice = await raven.house.enroll("alice")
        if trouble is not None:
            await trouble(raven)
        answers.append([await assembled_by(alice, assemble(talk)) for talk in TALKS])
        await raven.house.post.rooms["assembler"].drain()
        assert len(raven.house.post.asked("muninn", "report", messages.Report)) == 1
    assert answers[0] == answers[1]


# -- trouble ---------------------------------------------------------------------------------

Spoil = Callable[[Raven], Awaitable[None]]


async def rot_the_index(raven: Raven) -> None:
    tables = raven.tables
    assert tables is not None
    for table in (Index(tables, "alice", 0).guards, Index(tables, "alice", 0).rows):
        for key, value in table.items():
            tables.apply([Put(table.name, key, value[:-2] + b"\0\0")])


async def delete_the_header(raven: Raven) -> None:
    assert raven.tables is not None
    raven.tables.apply([Delete(MEMO, b"alice")])
    await raven.restart()


async def rot_the_log(raven: Raven) -> None:
    tables = raven.tables
    assert isinstance(tables, MemoryTables)
    entries = tables._entries[EvidenceLog(tables, "alice", 0).name]
    entries[1] = entries[1]._replace(body=entries[1].body[::-1])
    await rot_the_index(raven)


async def lose_the_outputs(raven: Raven) -> None:
    raven.held.ids.clear()


async def fill_the_disk(raven: Raven) -> None:
    assert isinstance(raven.tables, FailingTables)
    raven.tables.full = True


async def lose_the_disk(raven: Raven) -> None:
    assert isinstance(raven.tables, FailingTables)
    raven.tables.gone = True


async def disable(raven: Raven) -> None:
    raven.tables = None
    await raven.restart()


async def fill_the_memo(raven: Raven) -> None:
    raven.limits = MemoLimits(entries_max=3, resident_max=1)
    await raven.restart()


async def kill_the_room(raven: Raven) -> None:
    raven.house.post.down.add("muninn")


SPOILS: list[Spoil] = [
    rot_the_index,
    delete_the_header,
    rot_the_log,
    lose_the_outputs,
    fill_the_disk,
    lose_the_disk,
    disable,
    fill_the_memo,
    kill_the_room,
]


@pytest.mark.req("DRV-5")
@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
async def test_a_valid_request_is_answered_alike_whatever_becomes_of_the_memo(
    spoil: Spoil,
) -> None:
    raven, alice = await started(FailingTables())
    before = [each.given for each in await turns(raven, alice)]
    await spoil(raven)
    for _ in range(3):
        assert [each.given for each in await turns(raven, alice)] == before


# -- what it sees ----------------------------------------------------------------------------


@pytest.mark.req("KV-12")
async def test_muninn_is_blind_to_prompts() -> None:
    tables = MemoryTables()
    raven, alice = await started(tables)
    await turns(raven, alice)
    await turns(raven, alice)
    answer = await assembled_by(alice, assemble(TALKS[1]))
    whole = stream(answer)
    # Pieces of what the prompt says: its text, and its ids in any of the ways they are written.
    ids = unpack(whole)
    pieces = {SECRET.encode(), whole, pack(ids[:8]), pack(ids[-8:]), bytes(ids[-8:])}
    pieces |= {talk[-1][1].encode() for talk in TALKS}
    heard = [envelope.body for envelope in raven.house.post.sent if envelope.room == "muninn"]
    kept = [value for name in tables._rows for value in tables.rows(name).values()]
    kept += [entry.body for name in tables.logs() for entry in tables.entries(name)]
    assert heard
    assert kept
    for piece in pieces:
        assert not any(piece in each for each in (*heard, *kept))
    # The control: what others are told does show it.
    told = [envelope.body for envelope in raven.house.post.sent if envelope.room == "assembler"]
    assert any(SECRET.encode() in each for each in told)
