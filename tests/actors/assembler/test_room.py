"""The assembler room: its memory changes time alone, and its ids are what the design says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import NotVisible
from protocol.rope.node import EMPTY_ID
from tests.assembler_rooms import TALK, expected, shown
from tests.block_samples import Pair, conversations
from tests.rooms import SECOND, Installation, Principal, assemble, assembled, new_blocks
from tests.ropes_rooms import sequence_id

ROOT = Path(__file__).parent.parent.parent.parent
TEMPLATES = ("gemma3-it", "gemma3-transcript")

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
            found = await shown(alice, answer.context, tokens=True)
            assert found.segments == answer.segments
            assert found.blocks == new_blocks(so_far)
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
    assert sequence_id(EMPTY_ID) == answer.sequence


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
