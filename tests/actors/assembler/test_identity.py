"""A context's id (ASM-1): it changes with whatever changes the context, and with nothing else."""

from __future__ import annotations

import pytest

from protocol.assembly import BudgetPolicy
from protocol.blocks import BlockType, ContextBlock, Representation, Role, Source, text_block
from protocol.ids import BlockId, ContextId, TextId
from protocol.messages import assembler as messages
from protocol.record import object_id
from protocol.transform import REFERENCE_ID
from tests.assembler_rooms import TALK, shown
from tests.block_samples import Pair, user
from tests.rooms import PROFILE, Installation, Principal, assemble, assembled, profile


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
