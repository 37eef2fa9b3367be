"""What an assembler room answers in tests, by the reference: a fresh build, and no memory."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.assembly import BudgetPolicy
from protocol.ids import BlockId, ContextId
from protocol.messages import assembler as messages
from protocol.record import encode_record
from protocol.tokens import pack
from protocol.transform import fold_to_state
from tests.block_samples import Pair, file, model, system, user
from tests.rooms import Principal, profile
from tests.ropes_rooms import block_id, oracle, sequence_id

TALK = [system("Be brief."), user("Hi"), model("Hello!"), file("a\nb\n"), user("2 + 2?")]


def ids(pairs: Sequence[Pair]) -> list[BlockId]:
    return [block_id(pair) for pair in pairs]


def expected(
    pairs: Sequence[Pair], *, template: str | None = None, tokens_max: int = 1_000_000
) -> messages.Assembled:
    """What the reference says, with a fresh build: no room, no memory."""
    contracts = profile()
    grammar = contracts.grammar_named(template)
    stream, state = fold_to_state(grammar, pairs)
    sequence = sequence_id(oracle(pairs))
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


async def shown(
    principal: Principal, context: ContextId, *, tokens: bool = False
) -> messages.Shown:
    """What the room shows of a context; with its tokens if asked."""
    ask = messages.Show(context=context, tokens=tokens)
    return await principal.caller.ask("assembler", "show", ask, messages.Shown, delegate=("ropes",))
