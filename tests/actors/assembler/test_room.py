"""The assembler room: its memory changes time alone, and its ids are what the design says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, takewhile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.room import Call, Room
from protocol.assembly import (
    REGISTRATION_CONTEXT,
    BudgetPolicy,
    ContextAssembly,
    sequence_of,
)
from protocol.blocks import (
    BlockType,
    ContextBlock,
    Representation,
    Role,
    Source,
    text_block,
)
from protocol.errors import (
    AuthorityError,
    BudgetExceeded,
    ContentError,
    CorruptObject,
    HuginnError,
    InvocationError,
    NotVisible,
)
from protocol.grammars import grammar
from protocol.ids import BlockId, ContextId, ContractId, ObjectId, SequenceId, TextId
from protocol.messages import Empty, ropes
from protocol.messages import assembler as messages
from protocol.messages import authority as authority_messages
from protocol.publication import check_prefix
from protocol.record import Record, encode_record, object_id
from protocol.rope import Entry, build
from protocol.rope.node import EMPTY_ID
from protocol.semantic import SemanticContract, mint
from protocol.signing import pack_signed
from protocol.tokens import TokenIds, pack, unpack
from protocol.transform import REFERENCE_ID, fold_to_state
from store.memory_objects import MemoryObjectStore
from store.objects import View
from tests.block_samples import Pair, conversations, file, model, system, user
from tests.fake_tokenizer import FakeTokenizer
from tests.rooms import (
    PROFILE,
    SECOND,
    Installation,
    Principal,
    assemble,
    assembled,
    new_blocks,
    opened,
    profile,
    reply_to,
)

ROOT = Path(__file__).parent.parent.parent.parent
TEMPLATES = ("gemma3-it", "gemma3-transcript")
TALK = [system("Be brief."), user("Hi"), model("Hello!"), file("a\nb\n"), user("2 + 2?")]


@pytest.fixture
async def house() -> Installation:
    profiles = {PROFILE: profile(), "crow": profile("crow", weights=b"crow")}
    return await Installation(profiles=profiles).start()


@pytest.fixture
async def alice(house: Installation) -> Principal:
    return await house.enroll("alice")


def ids(pairs: Sequence[Pair]) -> list[BlockId]:
    return [BlockId.of(encode_record(block)) for block, _ in pairs]


def expected(
    pairs: Sequence[Pair], *, template: str | None = None, tokens_max: int = 1_000_000
) -> messages.Assembled:
    """What the reference says, with a fresh build: no room, no memory."""
    contracts = profile()
    grammar = contracts.grammar_named(template)
    stream, state = fold_to_state(grammar, pairs)
    root = build(
        Entry(block, len(text.encode())) for block, (_, text) in zip(ids(pairs), pairs, strict=True)
    ).root
    sequence = SequenceId.of(encode_record(sequence_of(root)))
    policy = BudgetPolicy(v=1, kind="budget", policy="refuse", tokens_max=tokens_max, keep_turns=1)
    assembly = contracts.fields(grammar, policy).over(sequence)
    return messages.Assembled(
        context=ContextId.of(encode_record(assembly)),
        sequence=sequence,
        segments=[
            messages.Segment(
                block=identity,
                role=block.role.value,
                type=block.type.value,
                head=pack(tokens.head),
                content=pack(tokens.content),
            )
            for identity, (block, _), tokens in zip(ids(pairs), pairs, stream, strict=True)
        ],
        opener=pack(grammar.opener(state)),
        tokens=sum(len(tokens.ids) for tokens in stream),
        dropped=[],
        stop_ids=sorted(grammar.stop_ids),
        stop_texts=list(grammar.stop_texts),
    )


def stream_of(answer: messages.Assembled) -> list[int]:
    return list(chain.from_iterable(unpack(s.head) + unpack(s.content) for s in answer.segments))


# -- the definition --------------------------------------------------------------------------

losses = st.sets(st.sampled_from(["assembler", "ropes", "objects"]))


@pytest.mark.req("ASM-2", "ASM-4")
@settings(max_examples=25)
@given(st.lists(st.tuples(conversations, losses, st.booleans()), min_size=1, max_size=5))
def test_a_context_is_the_reference_fold_whatever_was_forgotten(
    runs: list[tuple[list[Pair], set[str], bool]],
) -> None:
    """I-DERIVED: token streams, lineage, lengths and even the stored base may be gone."""

    async def run() -> None:
        house = await Installation().start()
        alice = await house.enroll("alice")
        so_far: list[Pair] = []
        for pairs, lost, longer in runs:
            so_far = so_far + pairs if longer else pairs
            for template in TEMPLATES:
                answer = await assembled(alice, assemble(so_far, template=template))
                assert answer == expected(so_far, template=template)
            shown = await alice.caller.ask(
                "assembler",
                "show",
                messages.Show(context=answer.context, tokens=True),
                messages.Shown,
                delegate=("ropes",),
            )
            assert shown.segments == answer.segments
            assert shown.blocks == new_blocks(so_far)
            if "objects" in lost:
                house.store.drop_namespace("alice")
                house.store.sweep()
            for room in sorted(lost - {"objects"}):
                house.clock.now_ns += SECOND
                await house.restart(room)

    asyncio.run(run())


async def test_the_empty_context(alice: Principal) -> None:
    answer = await assembled(alice, assemble([]))
    assert answer == expected([])
    assert answer.segments == []
    assert SequenceId.of(encode_record(sequence_of(EMPTY_ID))) == answer.sequence


_PROCESS = """
import asyncio, hashlib, sys
from tests.block_samples import user
from tests.rooms import Installation, assemble, reply_to
from tests.fake_tokenizer import FakeTokenizer
from tests.transform_vectors import conversations

async def run():
    house = await Installation(drawn=int(sys.argv[1])).start()
    alice = await house.enroll("alice")
    digest = hashlib.sha256()
    for template in ("gemma3-it", "gemma3-transcript"):
        for title, pairs in conversations(FakeTokenizer()).items():
            ask = assemble(pairs, template=template)
            digest.update(await reply_to(alice, "assembler", "assemble", ask))
    print(digest.hexdigest(), len(house.post.commits))

asyncio.run(run())
"""


@pytest.mark.req("ASM-2")
def test_two_processes_assemble_the_same_bytes() -> None:
    """With other keys, nonces and hash seeds."""
    answers = {
        subprocess.run(
            [sys.executable, "-c", _PROCESS, drawn],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "PATH": ""},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for drawn, seed in (("0", "1"), ("1000", "2"))
    }
    assert len(answers) == 1
    digest, commits = answers.pop().split()
    assert len(digest) == 64
    assert int(commits) >= 20


async def test_the_same_again_is_the_same(house: Installation, alice: Principal) -> None:
    first = await assembled(alice, assemble(TALK))
    stats = house.store.stats()
    assert await assembled(alice, assemble(TALK)) == first
    assert house.store.stats() == stats


async def test_a_stored_sequence_assembles_as_its_blocks_do(
    house: Installation, alice: Principal
) -> None:
    first = await assembled(alice, assemble(TALK))
    assert await assembled(alice, assemble(None, sequence=first.sequence)) == first
    other = await assembled(
        alice, assemble(None, sequence=first.sequence, template="gemma3-transcript")
    )
    assert other == expected(TALK, template="gemma3-transcript")
    house.clock.now_ns += SECOND
    await house.restart("assembler")
    assert await assembled(alice, assemble(None, sequence=first.sequence)) == first


async def test_without_storing_the_ids_are_the_same_and_nothing_is_kept(
    house: Installation, alice: Principal
) -> None:
    before = house.store.stats()
    house.post.forget()
    answer = await assembled(alice, assemble(TALK, store=False))
    assert answer == expected(TALK)
    assert house.store.stats() == before
    assert not [envelope for envelope in house.post.sent if envelope.room == "ropes"]
    with pytest.raises(NotVisible):
        await shown(alice, answer.context)
    assert await assembled(alice, assemble(TALK)) == answer
    assert (await shown(alice, answer.context)).blocks == new_blocks(TALK)


async def shown(
    principal: Principal, context: ContextId, *, tokens: bool = False
) -> messages.Shown:
    ask = messages.Show(context=context, tokens=tokens)
    return await principal.caller.ask("assembler", "show", ask, messages.Shown, delegate=("ropes",))


# -- what is sent to be stored ---------------------------------------------------------------


async def test_one_more_turn_sends_one_block(house: Installation, alice: Principal) -> None:
    await assembled(alice, assemble(TALK))
    house.post.forget()
    longer = [*TALK, model("4")]
    assert await assembled(alice, assemble(longer)) == expected(longer)
    (commit,) = house.post.commits
    assert commit.keep == len(TALK)
    assert [new.content for new in commit.blocks] == [b"4"]
    assert len(commit.entries) == 1


async def test_an_edit_in_the_middle_sends_what_changed(
    house: Installation, alice: Principal
) -> None:
    await assembled(alice, assemble(TALK))
    house.post.forget()
    edited = [*TALK[:2], model("Good day."), *TALK[3:]]
    assert await assembled(alice, assemble(edited)) == expected(edited)
    (commit,) = house.post.commits
    assert commit.keep == 2
    # The blocks behind it are stored already: they go by their ids.
    assert [new.content for new in commit.blocks] == [b"Good day."]
    assert [entry.block for entry in commit.entries] == ids(edited)[2:]


async def test_a_block_that_stands_twice_is_sent_once(
    house: Installation, alice: Principal
) -> None:
    house.post.forget()
    twice = [user("a"), model("b"), user("a"), model("b")]
    assert await assembled(alice, assemble(twice)) == expected(twice)
    (commit,) = house.post.commits
    assert len(commit.blocks) == 2
    assert len(commit.entries) == 4


async def test_another_namespace_shares_no_memory(house: Installation) -> None:
    team = await house.enroll("team")
    await assembled(team, assemble(TALK, namespace="team/a"))
    house.post.forget()
    await assembled(team, assemble(TALK, namespace="team/b"))
    (commit,) = house.post.commits
    assert (commit.base, commit.keep, len(commit.blocks)) == (None, 0, len(TALK))


class Rotting(MemoryObjectStore):
    """Gives damaged bytes for every rope node while `rotten`."""

    rotten = False

    def get_many(self, view: View, ids: Sequence[ObjectId]) -> list[bytes]:
        bodies = super().get_many(view, ids)
        if self.rotten and any(type(id).PREFIX == "rope" for id in ids):
            self.rotten = False
            ids[0].check(bodies[0] + b"rot")
        return bodies


@pytest.mark.parametrize("how", ["lost", "damaged"])
async def test_a_base_that_is_gone_or_damaged_is_sent_anew(how: str) -> None:
    store = Rotting()
    house = await Installation(store=store).start()
    alice = await house.enroll("alice")
    await assembled(alice, assemble(TALK))
    if how == "lost":
        store.drop_namespace("alice")
        store.sweep()
    store.rotten = how == "damaged"
    house.post.forget()
    longer = [*TALK, model("4")]
    assert await assembled(alice, assemble(longer)) == expected(longer)
    first, second = house.post.commits
    assert first.keep == len(TALK)
    assert (second.base, second.keep, len(second.blocks)) == (None, 0, len(longer))
    assert (await shown(alice, expected(longer).context)).blocks == new_blocks(longer)
    # And what was learned holds: the next turn is small again.
    house.post.forget()
    await assembled(alice, assemble([*longer, user("5")]))
    assert [(each.keep, len(each.blocks)) for each in house.post.commits] == [(len(longer), 1)]


async def test_damage_that_stays_is_told(house: Installation) -> None:
    class Ruin(MemoryObjectStore):
        def get_many(self, view: View, ids: Sequence[ObjectId]) -> list[bytes]:
            for id in ids:
                id.check(b"ruin")
            return []

    ruined = await Installation(store=Ruin()).start()
    alice = await ruined.enroll("alice")
    answer = await assembled(alice, assemble(TALK))
    with pytest.raises(CorruptObject):
        await shown(alice, answer.context)


# -- identity (ASM-1) ------------------------------------------------------------------------


def altered(**changes: object) -> Pair:
    fields: dict[str, object] = {
        "role": Role.USER,
        "type": BlockType.FILE,
        "source": Source(object=TextId.of(b"x")),
        "representation": Representation(kind="exact-text"),
        "rendering": {"path": "a.txt"},
        "trust": False,
        **changes,
    }
    return ContextBlock(v=1, **fields), "x"  # type: ignore[arg-type]


def variants() -> dict[str, messages.Assemble]:
    one = [user("q"), altered()]
    other = text_block(Role.USER, BlockType.FILE, "y", rendering={"path": "a.txt"}, trust=False)
    of = BlockId.of(b"whole")
    return {
        "as it is": assemble(one),
        "order": assemble(one[::-1]),
        "one fewer": assemble(one[:1]),
        "twice": assemble([*one, one[1]]),
        "role": assemble([one[0], altered(role=Role.TOOL)]),
        "type": assemble([one[0], altered(type=BlockType.DIFF)]),
        "source": assemble([one[0], (other, "y")]),
        "representation": assemble(
            [one[0], altered(representation=Representation(kind="summary-of", of=of))]
        ),
        "rendering": assemble([one[0], altered(rendering={"path": "b.txt"})]),
        "rendering, one more": assemble(
            [one[0], altered(rendering={"path": "a.txt", "language": "c"})]
        ),
        "trust": assemble([one[0], altered(trust=True)]),
        "name": assemble([one[0], altered(name="ann")]),
        "template and grammar": assemble(one, template="gemma3-transcript"),
        "model": assemble(one, profile="crow"),
        "tokenizer": assemble(one, profile="finch"),
        "budget": assemble(one, tokens_max=999_999),
        "policy": assemble(one, policy="drop-oldest-turns"),
        "turns kept": assemble(one, policy="drop-oldest-turns", keep_turns=2),
    }


@pytest.mark.req("ASM-1")
async def test_whatever_changes_the_context_changes_its_id() -> None:
    profiles = {
        PROFILE: profile(),
        "crow": profile("crow", weights=b"crow"),
        "finch": profile("finch", discipline="bytes/2"),
    }
    house = await Installation(profiles=profiles).start()
    alice = await house.enroll("alice")
    context_to_name: dict[ContextId, str] = {}
    for store in (False, True):
        for name, ask in variants().items():
            fields = {field: getattr(ask, field) for field in ask.__struct_fields__}
            answer = await assembled(alice, messages.Assemble(**{**fields, "store": store}))
            assert context_to_name.setdefault(answer.context, name) == name
    assert len(context_to_name) == len(variants())


@pytest.mark.req("ASM-1", "ASM-4")
async def test_an_assembly_names_all_of_its_contracts(alice: Principal) -> None:
    answer = await assembled(alice, assemble(TALK, tokens_max=777))
    found = await shown(alice, answer.context)
    assert object_id(found.assembly) == answer.context
    assert found.assembly.sequence == found.sequence == answer.sequence
    assert found.assembly.reference_transform == REFERENCE_ID
    policy = BudgetPolicy(v=1, kind="budget", policy="refuse", tokens_max=777, keep_turns=1)
    assert found.assembly.budget_policy == object_id(policy)
    contracts = profile()
    assert found.assembly == contracts.fields(contracts.grammar, policy).over(answer.sequence)
    assert found.segments is None


# -- budget ----------------------------------------------------------------------------------


@pytest.mark.req("ASM-7")
async def test_over_budget_is_an_error_with_both_numbers(
    house: Installation, alice: Principal
) -> None:
    whole = expected(TALK)
    needed = whole.tokens + len(whole.opener) // 4
    fits = await assembled(alice, assemble(TALK, tokens_max=needed))
    assert fits == expected(TALK, tokens_max=needed)
    before = house.store.stats()
    with pytest.raises(BudgetExceeded) as caught:
        await assembled(alice, assemble(TALK, tokens_max=needed - 1))
    assert caught.value.details == {"tokens": needed, "tokens_max": needed - 1}
    assert house.store.stats() == before


class Watched(FakeTokenizer):
    """Knows for how many characters it was asked."""

    characters = 0

    def encode(self, text: str) -> TokenIds:
        self.characters += len(text)
        return super().encode(text)


@pytest.mark.req("ASM-7")
async def test_what_no_tokenization_could_fit_is_refused_without_one() -> None:
    tokenizer = Watched()
    brought = profile()
    grammars = {each: grammar(each, tokenizer) for each in brought.grammars}
    watched = replace(brought, grammar=grammars["gemma3-it"], grammars=grammars)
    alice = await (await Installation(profiles={PROFILE: watched}).start()).enroll("alice")
    before = tokenizer.characters
    with pytest.raises(BudgetExceeded) as caught:
        await assembled(alice, assemble([user("x" * 300_001)], tokens_max=300_000))
    assert caught.value.details == {"tokens": 300_001, "tokens_max": 300_000}
    assert tokenizer.characters == before
    # What is trimmed away counts for nothing.
    padded = " " * 200_000 + "x" * 1_000 + "\n" * 200_000
    answer = await assembled(alice, assemble([user(padded)], tokens_max=2_000))
    assert tokenizer.characters > before
    assert answer.tokens < 2_000


@pytest.mark.req("ASM-7")
async def test_a_policy_drops_whole_turns_and_says_which(alice: Principal) -> None:
    talk = [system("s"), user("a" * 50), model("b" * 50), user("c"), model("d"), user("e")]
    ask = assemble(talk, policy="drop-oldest-turns", tokens_max=150)
    answer = await assembled(alice, ask)
    assert answer.dropped == [1, 2]
    kept = [pair for index, pair in enumerate(talk) if index not in answer.dropped]
    assert answer.segments == expected(kept).segments
    assert answer.tokens + len(answer.opener) // 4 <= 150
    # It is the context of what was kept, whoever asks for it.
    alone = await assembled(alice, assemble(kept, policy="drop-oldest-turns", tokens_max=150))
    assert (alone.context, alone.sequence) == (answer.context, answer.sequence)
    assert alone.dropped == []
    assert (await shown(alice, answer.context)).blocks == new_blocks(kept)


# -- diff and tree ---------------------------------------------------------------------------


async def diff(principal: Principal, a: ContextId, b: ContextId) -> messages.ContextDifference:
    return await principal.caller.ask(
        "assembler",
        "diff",
        messages.DiffContexts(a=a, b=b),
        messages.ContextDifference,
        delegate=("ropes",),
    )


DIFFERENT: dict[str, tuple[list[Pair], int, str]] = {
    "content": ([*TALK[:1], user("Ho"), *TALK[2:]], 1, "content"),
    "role": ([*TALK[:2], user("Hello!"), *TALK[3:]], 2, "role"),
    "rendering": ([*TALK[:3], file("a\nb\n", "other.txt"), *TALK[4:]], 3, "rendering"),
    "one more": ([*TALK, model("4")], 5, "inserted"),
    "one fewer": (TALK[:4], 4, "removed"),
    "order": ([*TALK[:3], TALK[4], TALK[3]], 3, "order"),
}


@pytest.mark.parametrize("name", DIFFERENT)
async def test_a_difference_is_told_by_block_reason_and_token(alice: Principal, name: str) -> None:
    pairs, index, reason = DIFFERENT[name]
    a = await assembled(alice, assemble(TALK))
    b = await assembled(alice, assemble(pairs))
    pairwise = zip(stream_of(a), stream_of(b), strict=False)
    token_index = sum(1 for _ in takewhile(lambda two: two[0] == two[1], pairwise))
    assert await diff(alice, a.context, b.context) == messages.ContextDifference(
        equal_blocks=index, contracts=[], index=index, reason=reason, token_index=token_index
    )


async def test_what_is_equal_differs_in_nothing(alice: Principal) -> None:
    a = await assembled(alice, assemble(TALK))
    assert await diff(alice, a.context, a.context) == messages.ContextDifference(
        equal_blocks=len(TALK), contracts=[]
    )


async def test_other_contracts_are_named(alice: Principal) -> None:
    a = await assembled(alice, assemble(TALK))
    b = await assembled(alice, assemble(TALK, template="gemma3-transcript"))
    found = await diff(alice, a.context, b.context)
    assert found.contracts == ["conversation_template", "separator_grammar"]
    assert (found.equal_blocks, found.index, found.reason) == (0, 0, "contract")
    c = await assembled(alice, assemble(TALK, tokens_max=999))
    found = await diff(alice, a.context, c.context)
    assert found == messages.ContextDifference(equal_blocks=5, contracts=["budget_policy"])


async def test_a_context_of_a_profile_that_is_not_here_shows_its_blocks_alone(
    house: Installation, alice: Principal
) -> None:
    answer = await assembled(alice, assemble(TALK, profile="crow"))
    house.profiles = {PROFILE: profile()}
    house.clock.now_ns += SECOND
    await house.restart("assembler")
    assert (await shown(alice, answer.context)).blocks == new_blocks(TALK)
    with pytest.raises(ContentError, match="contracts that no profile here brings"):
        await shown(alice, answer.context, tokens=True)
    with pytest.raises(ContentError, match="no profile 'crow' here; there are: raven"):
        await assembled(alice, assemble(TALK, profile="crow"))


async def test_a_tree_is_the_tree_of_the_contexts_sequence(alice: Principal) -> None:
    answer = await assembled(alice, assemble(TALK))
    tree = await alice.caller.ask(
        "assembler",
        "tree",
        messages.ShowTree(context=answer.context),
        ropes.Tree,
        delegate=("ropes",),
    )
    assert SequenceId.of(encode_record(sequence_of(tree.root))) == answer.sequence
    assert tree.nodes[0].children == [each.digest for each in ids(TALK)]


# -- refused ---------------------------------------------------------------------------------

REFUSED: dict[str, tuple[messages.Assemble, type[HuginnError], str]] = {
    "unknown profile": (
        assemble(TALK, profile="owl"),
        ContentError,
        "no profile 'owl' here; there are: crow, raven",
    ),
    "unknown template": (
        assemble(TALK, template="chatml"),
        ContentError,
        "no template 'chatml' for raven: there are gemma3-it, gemma3-transcript",
    ),
    "another's namespace": (assemble(TALK, namespace="bob"), NotVisible, "no such namespace"),
    "a namespace that begins alike": (
        assemble(TALK, namespace="alice2"),
        NotVisible,
        "no such namespace",
    ),
    "neither": (assemble(None), ContentError, "either blocks or a stored sequence"),
    "both": (
        assemble(TALK, sequence=SequenceId(b"s" * 32)),
        ContentError,
        "either blocks or a stored sequence",
    ),
    "no text": (
        assemble([], blocks=[ropes.NewBlock(block=user("a")[0], content=b"ab\xff")]),
        ContentError,
        "not UTF-8 at byte 2",
    ),
    "another content": (
        assemble([], blocks=[ropes.NewBlock(block=user("a")[0], content=b"b")]),
        ContentError,
        "its content is",
    ),
    "no budget": (assemble(TALK, tokens_max=0), ContentError, "at least one token"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_assembled_stores_nothing(
    house: Installation, alice: Principal, name: str
) -> None:
    ask, kind, text = REFUSED[name]
    before = house.store.stats()
    with pytest.raises(HuginnError, match=text) as caught:
        await assembled(alice, ask)
    assert type(caught.value) is kind
    assert house.store.stats() == before


@pytest.mark.req("AUT-3")
async def test_nobody_can_give_anothers_block_other_tokens(
    house: Installation, alice: Principal
) -> None:
    """Tokens are remembered by block id for all: a lie about content must not get that far."""
    mallory = await house.enroll("mallory")
    for store in (False, True):
        for (block, _), (_, lie) in zip(TALK, [*TALK[1:], TALK[0]], strict=True):
            forged = [ropes.NewBlock(block=block, content=lie.encode())]
            ask = assemble([], namespace="mallory", blocks=forged, store=store)
            with pytest.raises(ContentError, match="its content is"):
                await assembled(mallory, ask)
    assert await assembled(alice, assemble(TALK)) == expected(TALK)
    for pair in TALK:
        assert await assembled(alice, assemble([pair])) == expected([pair])


async def test_one_who_may_not_write_assembles_without_storing(house: Installation) -> None:
    reader = await house.enroll("reader", rights=["assemble", "read"])
    ask = assemble(TALK, namespace="reader")
    with pytest.raises(InvocationError, match="needs the right 'write'"):
        await assembled(reader, ask)
    unstored = assemble(TALK, namespace="reader", store=False)
    assert await assembled(reader, unstored) == expected(TALK)


# -- registration and meaning (ASM-9) --------------------------------------------------------


@pytest.mark.req("ASM-9")
async def test_every_contract_is_registered_before_it_is_named(
    house: Installation, alice: Principal
) -> None:
    registered = house.tables.rows("contracts")
    for contracts in house.profiles.values():
        for record in contracts.records():
            assert str(object_id(record)).encode() in registered
    answer = await assembled(alice, assemble(TALK, tokens_max=4321))
    assembly = (await shown(alice, answer.context)).assembly
    registered = house.tables.rows("contracts")
    for field in ContextAssembly.__struct_fields__[2:]:
        assert str(getattr(assembly, field)).encode() in registered, field
    house.post.forget()
    await assembled(alice, assemble(TALK, tokens_max=4321))
    assert not [each for each in house.post.sent if each.op == "register"]


class Impostor(Room):
    """Answers as the authority does, with a key that is no anchor. `honest` registrations come
    first."""

    operations = authority_messages.OPERATIONS

    def __init__(self, house: Installation, honest: int) -> None:
        super().__init__("authority", house.world("authority"))
        self._house = house
        self._honest = honest

    async def on_current(self, call: Call, ask: Empty) -> authority_messages.Revocations:
        return authority_messages.Revocations(epoch=0, revoked=[])

    async def on_register(
        self, call: Call, ask: authority_messages.RegisterContract
    ) -> authority_messages.Registration:
        self._honest -= 1
        signer = self._house.root if self._honest >= 0 else self._house.signers["worker"]
        payload = authority_messages.RegistrationPayload(v=1, id=ask.id, epoch=0, registered_ns=0)
        signed = pack_signed(signer, REGISTRATION_CONTEXT, encode_record(payload))
        return authority_messages.Registration(signed=signed)


@pytest.mark.req("ASM-9")
async def test_no_assembler_starts_on_contracts_that_the_root_did_not_sign() -> None:
    house = Installation()
    await house.add(Impostor(house, honest=2))
    with pytest.raises(AuthorityError) as caught:
        await house.restart("assembler")
    assert caught.value.step == "registration"


@pytest.mark.req("ASM-9")
async def test_nor_is_a_context_minted_under_a_policy_that_it_did_not_sign() -> None:
    house = Installation()
    count = len({object_id(record) for record in profile().records()})
    await house.add(Impostor(house, honest=count))
    for room in ("ropes", "assembler"):
        await house.restart(room)
    alice = await house.enroll("alice")
    for store in (True, False):
        with pytest.raises(AuthorityError) as caught:
            await assembled(alice, assemble(TALK, store=store))
        assert caught.value.step == "registration"
    assert house.store.stats().objects == 0


PLAIN = SemanticContract(v=1, kind="semantic", canonicalizer="plain-text/1")
PLAIN_ID = ContractId.of(encode_record(PLAIN))


def meant(text: str, semantic: bytes, contract: ContractId = PLAIN_ID) -> Pair:
    source = Source(object=TextId.of(text.encode()), semantic=semantic, contract=contract)
    block = text_block(Role.USER, BlockType.FILE, text, rendering={"path": "x"}, trust=False)
    fields = {field: getattr(block, field) for field in block.__struct_fields__}
    return ContextBlock(**{**fields, "source": source}), text


@pytest.mark.req("ASM-9")
async def test_a_semantic_id_stands_with_what_its_registered_contract_mints() -> None:
    house = await Installation(semantics=(PLAIN,)).start()
    alice = await house.enroll("alice")
    assert str(PLAIN_ID).encode() in house.tables.rows("contracts")
    windows, unix = "a \r\nb\r\n", "a\nb"
    same = mint(PLAIN, windows)
    assert same == mint(PLAIN, unix)
    contexts = []
    for text in (windows, unix):
        answer = await assembled(alice, assemble([meant(text, same)]))
        contexts.append(answer.context)
        (block,) = (await shown(alice, answer.context, tokens=True)).blocks
        assert block.block.source == Source(
            object=TextId.of(text.encode()), semantic=same, contract=PLAIN_ID
        )
        assert block.content == text.encode()
    # One meaning, two contexts: identity is what the model reads.
    assert len(set(contexts)) == 2


@pytest.mark.req("ASM-9")
async def test_a_semantic_id_that_no_registered_contract_minted_is_refused() -> None:
    house = await Installation(semantics=(PLAIN,)).start()
    alice = await house.enroll("alice")
    for pair, text in (
        (meant("a", mint(PLAIN, "b")), "is not what plain-text/1 mints"),
        (meant("a", mint(PLAIN, "a"), ContractId(b"c" * 32)), "is not registered"),
    ):
        for store in (True, False):
            with pytest.raises(ContentError, match=text):
                await assembled(alice, assemble([pair], store=store))
    assert house.store.stats().objects == 0
    plain = await Installation().start()
    with pytest.raises(ContentError, match="is not registered"):
        await assembled(await plain.enroll("alice"), assemble([meant("a", mint(PLAIN, "a"))]))


# -- views (I-VIEW) --------------------------------------------------------------------------

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


# -- what is public --------------------------------------------------------------------------


@pytest.mark.req("AUT-5")
@pytest.mark.parametrize("public", [0, 1, 2])
async def test_it_signs_which_first_segments_are_public_blocks(
    house: Installation, alice: Principal, public: int
) -> None:
    operator = await house.enroll("operator", administers=True)
    for block, text in TALK[:public]:
        ask = ropes.Publish(block=block, content=text.encode())
        await operator.caller.ask("ropes", "publish", ask, ropes.Publication, administer=True)
    for _ in range(2):
        made = await assembled(alice, assemble(TALK))
        key = house.room_to_key["assembler"]
        if not public:
            assert made.public is None
        else:
            assert made.public is not None
            assert check_prefix(made.public, key, PROFILE, made.segments) == public
        # In the commit that is made anyway: no further question is asked.
        assert {envelope.op for envelope in house.post.sent if envelope.room == "ropes"} <= {
            "commit",
            "publish",
        }
    unstored = await assembled(alice, assemble(TALK, store=False))
    assert unstored.public is None
    dropped = await assembled(
        alice, assemble(TALK, policy="drop-oldest-turns", tokens_max=made.tokens - 1, keep_turns=1)
    )
    assert dropped.public is None or (
        check_prefix(dropped.public, key, PROFILE, dropped.segments) <= public
    )
