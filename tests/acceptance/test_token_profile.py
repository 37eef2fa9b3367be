"""A profile that cannot promise equal states: two results are two snapshots, and not a conflict.

The tiny model under `equality = "token"`. What may differ under such a profile is how the library
computes: here two workers of the same profile cut their batches differently, so that an advance of
64 tokens gives other bytes. Of the first such advance neither result is served, because both
started from the same pages; all that is fed behind it starts from two.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from actors.worker.backends.llama import LlamaBackend
from actors.worker.pages import state_digest
from profiles.profile import RuntimeProfile
from protocol.derivation import Derivation, ExecutionClass, open_evidence
from protocol.ids import PageId, ProfileId
from protocol.messages.assembler import Segment
from protocol.messages.muninn import Execution
from protocol.record import encode_record
from tests.exact_models import MODELS
from tests.model_fixtures import tiny
from tests.muninn_rooms import Raven
from tests.worker_rooms import Listener, opened, segment

MODEL = MODELS["tiny"]
TOKEN: RuntimeProfile = structs.replace(
    MODEL.profile(), equality="token", reproducible_generation=False
)
PROFILE = ProfileId.of(encode_record(TOKEN))
# The library's batch, in tokens: the profile's, and one that cuts an advance of 64, for which
# another kernel is taken if it is whole.
WHOLE, CUT = TOKEN.ubatch_tokens, 16


async def told(ubatch_tokens: int, *, response: str = "r1") -> list[Derivation]:
    """What a worker with such a batch reports of one conversation, in the order in which it fed."""
    listener = Listener()
    backend = LlamaBackend(tiny()[0], structs.replace(TOKEN, ubatch_tokens=ubatch_tokens))
    async with opened(
        backend,
        profile=PROFILE,
        chunk_tokens=MODEL.chunk_tokens,
        reproducible=False,
        states_equal=False,
        mailbox=listener,
    ) as bench:
        await bench.answer(talk(backend), response=response, stop_ids=[], tokens_max=2)
        await bench.receipt(response)
    return [derivation(each) for each in listener.heard]


def talk(backend: LlamaBackend) -> list[Segment]:
    ids = backend.tokenizer.encode("the hen and the ring in the sand " * 20)
    # The first is short, which both feed alike; the next is the first that they do not.
    return [
        segment("user", (2,), ids[:9], name=0),
        segment("user", (), ids[20:84], name=1),
        segment("user", (), ids[84:94], name=2),
        segment("user", (), ids[94:110], name=3),
    ]


def derivation(execution: Execution) -> Derivation:
    assert execution.evidence is not None
    return Derivation(execution.invocation, open_evidence(execution.evidence).outputs)


def pages(said: Sequence[Derivation]) -> list[PageId]:
    return [PageId.parse(each.outputs[1].id) for each in said]


@pytest.mark.req("KV-2", "DRV-2", "DRV-7")
async def test_two_ways_to_a_state_are_two_snapshots() -> None:
    one, other = await told(WHOLE), await told(CUT)
    assert len(one) == len(other) == 4
    for said in (one, other):
        for index, each in enumerate(said):
            assert each.invocation.execution_class is ExecutionClass.SNAPSHOT_BOUND
            assert each.invocation.runtime_profile == PROFILE
            assert each.invocation.snapshot == str(state_digest(pages(said)[:index]))
    same = [a == b for a, b in zip(pages(one), pages(other), strict=True)]
    assert same == [True, False, False, False], "the batch was to change the second advance"
    # The chain is one and the same: it says what was fed, and nothing of the bytes.
    assert [each.outputs[0] for each in one] == [each.outputs[0] for each in other]
    # The same again is the same: nothing of an execution but its pages is in the snapshot.
    assert await told(CUT, response="another") == other

    raven = await Raven().start()
    alice = await raven.house.enroll("alice")
    operator = await raven.house.enroll("operator", administers=True)
    assert await raven.remember(*one) == ["inserted"] * 4
    assert await raven.remember(*other) == ["already-present", "conflict", "inserted", "inserted"]
    assert await raven.known(alice, *one) == [True, False, True, True]
    assert await raven.known(alice, *other) == [True, False, True, True]
    assert len((await raven.status(operator)).quarantined) == 1
    # What the index is built anew from says the same.
    await raven.rebuild(operator)
    assert await raven.known(alice, *one, *other) == [True, False, True, True] * 2
