"""Cold, warm, branched, edited, beside others, evicted, killed, in another process: one state, one
answer.

Conversations are random; every prompt of every one of them is answered by a worker that has seen
everything before it (five conversations at once, on four streams), by a worker that has seen
nothing, and by a plain loop over the back end in another process. The last prompts are asked once
more when other conversations have taken their streams, and over the pages that a worker left which
was killed at its work. State digests cover the bytes of every K and V row; answers are greedy.
HUGINN_EXACT_CONVERSATIONS says how many; 100 take minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from protocol.messages.assembler import Segment
from protocol.tokens import TokenIds, pack, unpack
from tests.exact_models import MODELS, ExactModel
from tests.grammar_talks import GrammarTalk, next_input, some_text
from tests.killed_worker import tiers_over
from tests.worker_rooms import Bench, opened

CONVERSATIONS = int(os.environ.get("HUGINN_EXACT_CONVERSATIONS", "4"))
AT_ONCE = 5
ROOT = Path(__file__).parents[2]


class Asked(NamedTuple):
    """One prompt, and what the warm worker said to it."""

    name: str
    segments: list[Segment]
    opener: TokenIds
    ids: TokenIds
    digest: str
    reused_tokens: int
    tiers: dict[str, int]


@pytest.mark.req("KV-1", "KV-2", "KV-4", "KV-5", "KV-6", "KV-7", "KV-9", "KV-10")
async def test_the_tiny_model_is_exact(tmp_path: Path) -> None:
    # It is a test of warm states: many prompts find something, though there are more
    # conversations than streams.
    runs = await _compare(MODELS["tiny"], "tiny", tmp_path, CONVERSATIONS, turns=3)
    found = [prompt for run in runs for prompt in run]
    assert sum(prompt.reused_tokens > 0 for prompt in found) > len(found) // 3


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.req("KV-1", "KV-2", "KV-4", "KV-5", "KV-6", "KV-7", "KV-9", "KV-10")
async def test_the_default_model_is_exact(tmp_path: Path) -> None:
    runs = await _compare(MODELS["real"], "real", tmp_path, 2, turns=2)
    found = [prompt for run in runs for prompt in run]
    assert sum(prompt.reused_tokens > 0 for prompt in found) > len(found) // 3


async def _compare(
    model: ExactModel, name: str, root: Path, conversations: int, *, turns: int
) -> list[list[Asked]]:
    backend = model.open()
    options: dict[str, Any] = {"profile": model.profile_id(), "chunk_tokens": model.chunk_tokens}
    async with opened(backend, **options, tiers=tiers_over(root / "warm")) as bench:
        grammar = model.grammar(backend)
        at_once = asyncio.Semaphore(AT_ONCE)

        async def converse(seed: int) -> list[Asked]:
            async with at_once:
                return await _converse(bench, model, GrammarTalk(grammar), Random(seed), turns)

        runs = await asyncio.gather(*map(converse, range(conversations)))
        found = [prompt for run in runs for prompt in run]
        elsewhere = await _in_another_process(name, found)
        for prompt, (ids, digest) in zip(found, elsewhere, strict=True):
            assert prompt.ids == tuple(ids), f"{prompt.name}: another process answers otherwise"
            assert prompt.digest == digest, f"{prompt.name}: another process has another state"
        # The last prompt of each conversation: those before it are its prefixes, or were edited.
        lasts = [run[-1] for run in runs]
        await _evicted(bench, model, lasts)
    async with opened(model.open(), **options) as bench:
        for number, last in enumerate(lasts):
            again = await _again(bench, model, last, domain=f"cold{number}")
            assert again.reused_tokens == 0
    await _kill(name, root / "killed", lasts)
    async with opened(model.open(), **options, tiers=tiers_over(root / "killed")) as bench:
        back = [await _again(bench, model, last, domain="killed") for last in lasts]
        assert sum(prompt.tiers["disk"] > 0 for prompt in back) >= len(back) // 4
    return runs


async def _evicted(bench: Bench, model: ExactModel, lasts: list[Asked]) -> None:
    """Ask again after four others at least took the streams: then most come from memory."""
    for number in range(bench.backend.streams):
        other = next_input(GrammarTalk(model.grammar(bench.backend)), Random(-number - 1), 5)
        await _ask(bench, model, f"other-{number}", *other.spelled(), domain=f"other{number}")
    # The newest first: a thousand conversations have no room in memory.
    back = [await _again(bench, model, last) for last in reversed(lasts)]
    newest = back[:20]
    assert sum(prompt.tiers["host"] > 0 for prompt in newest) > len(newest) // 2


async def _again(bench: Bench, model: ExactModel, last: Asked, **options: Any) -> Asked:
    """The same prompt, with the same outcome."""
    again = await _ask(bench, model, last.name, last.segments, last.opener, **options)
    assert (again.ids, again.digest) == (last.ids, last.digest)
    return again


async def _kill(name: str, root: Path, prompts: list[Asked]) -> None:
    """A worker that answered half of the prompts is killed while it is at the rest."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.killed_worker",
        name,
        str(root),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(_as_json(prompts)).encode())
    process.stdin.close()
    for _ in range(-(-len(prompts) // 2)):
        assert await process.stdout.readline()
    process.kill()
    await process.communicate()


async def _converse(
    bench: Bench, model: ExactModel, talk: GrammarTalk, random: Random, turns: int
) -> list[Asked]:
    """Turns that append; then a branch, an edit in the middle, and the first history again."""
    seed = random.randrange(10**9)
    found: list[Asked] = []

    async def ask(kind: str, asked: GrammarTalk) -> Asked:
        prompt = await _ask(bench, model, f"{kind}-{seed}-{len(found)}", *asked.spelled())
        found.append(prompt)
        return prompt

    for _ in range(turns):
        talk = next_input(talk, random, model.words_max)
        answered = talk.answer((await ask("turn", talk)).ids)
        if random.random() < 0.7:
            await bench.settle(answered.spelled()[0])
        talk = answered
    whole = next_input(talk, random, model.words_max)
    await ask("append", whole)
    middle = len(whole.blocks) // 2
    await ask("branch", next_input(whole.cut(middle), random, model.words_max))
    await ask("edit", whole.edit(middle, some_text(random, model.words_max)))
    await ask("again", whole)
    return found


async def _ask(
    bench: Bench,
    model: ExactModel,
    name: str,
    segments: list[Segment],
    opener: TokenIds,
    **options: Any,
) -> Asked:
    result = await bench.answer(
        segments,
        response=name,
        opener=pack(opener),
        tokens_max=model.answer_tokens,
        stop_ids=sorted(model.grammar(bench.backend).stop_ids),
        **options,
    )
    receipt = await bench.receipt(name, **options)
    assert receipt.reused_tokens + receipt.prefilled_tokens == receipt.prompt_tokens
    assert receipt.state_digest is not None
    digest = str(receipt.state_digest)
    return Asked(name, segments, opener, result.ids, digest, receipt.reused_tokens, receipt.tiers)


def _as_json(prompts: Iterable[Asked]) -> list[Any]:
    return [
        ([(s.role, unpack(s.head), unpack(s.content)) for s in prompt.segments], prompt.opener)
        for prompt in prompts
    ]


async def _in_another_process(name: str, prompts: Iterable[Asked]) -> list[Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bare_process",
        name,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(json.dumps(_as_json(prompts)).encode())
    assert process.returncode == 0
    answers = json.loads(out)
    assert isinstance(answers, list)
    return answers
