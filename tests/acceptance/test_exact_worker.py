"""Cold, warm, branched, edited, evicted, killed, in another process: one state, one answer.

Conversations are random; every prompt of every one of them is answered by a worker that has seen
everything before it (five conversations at once, on four streams) and by a plain loop over the back
end in another process, which is what everything is compared with. The last prompts are asked once
more of a worker that has seen nothing, of the first one when other conversations have taken their
streams, of a worker in another process, and over the pages that this one left when it was killed.
Compared are the length of the prompt, the state digest, which covers the bytes of every K and V row
as they were exported or verified, and the greedy answer's ids. After an eviction and a restart the
rows that lie in the back end then are exported once more, as far back as it gives any, and hashed:
what was restored is what was said to be. A condition that reuses nothing would prove nothing: how
many prompts of each did is counted, and has to be nearly all.

HUGINN_EXACT_CONVERSATIONS says how many of the tiny model, HUGINN_EXACT_REAL of the default one;
they go in batches, and each batch has its kill. `make exact` takes 1,000 and 30.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from actors.worker.pages import page_digest
from actors.worker.streams import Boundary
from protocol.messages.assembler import Segment
from protocol.tokens import TokenIds, pack, unpack
from tests.exact_models import MODELS, ExactModel
from tests.grammar_talks import GrammarTalk, next_input, some_text
from tests.killed_worker import tiers_over
from tests.worker_rooms import Bench, opened

CONVERSATIONS = int(os.environ.get("HUGINN_EXACT_CONVERSATIONS", "4"))
REAL_CONVERSATIONS = int(os.environ.get("HUGINN_EXACT_REAL", "2"))
# The first two conversations from this seed on are a long one, whose prompts go beyond the default
# model's window of 512 tokens, and a short one: as little as shows every condition with it.
REAL_SEED = 260
AT_ONCE = 5
# Conversations that share a kill: few enough that memory still holds the last prompt of each.
BATCH = 25
CONDITIONS: Final = (
    "cold",
    "first",
    "warm",
    "branch",
    "middle edit",
    "evicted",
    "restarted by kill -9",
    "other process",
)
# Those whose prompts have something to find, and the share of them that has to.
REUSING: Final = ("warm", "branch", "middle edit", "evicted", "restarted by kill -9")
REUSING_SHARE: Final = 0.9
ROOT = Path(__file__).parents[2]


class Outcome(NamedTuple):
    """What has to be the same whatever the condition."""

    prompt_tokens: int
    ids: TokenIds
    digest: str


class Asked(NamedTuple):
    """One prompt, under which condition it was asked, and what the warm worker said to it."""

    condition: str
    name: str
    segments: list[Segment]
    opener: TokenIds
    outcome: Outcome
    reused_tokens: int
    tiers: dict[str, int]

    def enter(self, table: Table, condition: str, expected: dict[str, Outcome]) -> None:
        """Compare what was found with what a plain loop came to."""
        wanted = expected[self.name]
        table.compare(condition, self.name, wanted, self.outcome, reused=self.reused_tokens)

    @property
    def prompt_tokens(self) -> int:
        pieces = (len(s.head) + len(s.content) for s in self.segments)
        return sum(pieces) // 4 + len(self.opener)


class Table:
    """What was compared under each condition, how much of it reused something, and what was
    unequal."""

    def __init__(self) -> None:
        self.compared: Counter[str] = Counter()
        self.reused: Counter[str] = Counter()
        self.unequal: defaultdict[str, list[str]] = defaultdict(list)

    def compare(
        self, condition: str, name: str, expected: Outcome, found: Outcome, *, reused: int = 0
    ) -> None:
        self.compared[condition] += 1
        self.reused[condition] += reused > 0
        for what in Outcome._fields:
            if getattr(expected, what) != getattr(found, what):
                self.unequal[condition].append(f"{name}: {what}")

    def lines(self) -> list[str]:
        rows = [
            (each, self.compared[each], self.reused[each], len(self.unequal[each]))
            for each in CONDITIONS
        ]
        rows = [("condition", "compared", "reused", "unequal"), *rows]
        return [
            f"{what:<22}{of:>10}{reused:>10}{unequal:>10}" for what, of, reused, unequal in rows
        ]

    def check(self) -> None:
        """Every condition was tried, and none of them made a difference."""
        differing = {each: found[:5] for each, found in self.unequal.items() if found}
        assert not differing, f"these conditions differ: {differing}"
        missing = [each for each in CONDITIONS if not self.compared[each]]
        assert not missing, f"nothing was compared under: {missing}"
        idle = [
            each for each in REUSING if self.reused[each] < REUSING_SHARE * self.compared[each] - 1
        ]
        assert not idle, f"too few of these reused anything: {idle}"


@pytest.mark.req("KV-1", "KV-2", "KV-4", "KV-5", "KV-6", "KV-7", "KV-9", "KV-10")
async def test_the_tiny_model_is_exact(tmp_path: Path) -> None:
    await _run("tiny", tmp_path, CONVERSATIONS, turns=3)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.req("KV-1", "KV-2", "KV-4", "KV-5", "KV-6", "KV-7", "KV-9", "KV-10")
async def test_the_default_model_is_exact(tmp_path: Path) -> None:
    await _run("real", tmp_path, REAL_CONVERSATIONS, turns=2, seed=REAL_SEED)


def test_a_difference_is_laid_to_its_condition() -> None:
    table, outcome = Table(), Outcome(7, (1, 2), "state:a")
    for condition in CONDITIONS:
        table.compare(condition, "p", outcome, outcome, reused=3)
    table.check()
    table.compare("branch", "p", outcome, outcome._replace(digest="state:b"))
    table.compare("evicted", "q", outcome, outcome._replace(ids=(1, 3)))
    with pytest.raises(AssertionError, match=r"branch.*p: digest.*evicted.*q: ids"):
        table.check()
    assert table.lines()[4].split() == ["branch", "2", "1", "1"]
    with pytest.raises(AssertionError, match=r"nothing was compared under: .*'cold'"):
        Table().check()
    idle = Table()
    for condition in CONDITIONS * 2:
        idle.compare(condition, "p", outcome, outcome, reused=condition != "evicted")
    with pytest.raises(AssertionError, match=r"reused anything: \['evicted'\]"):
        idle.check()


async def _run(name: str, root: Path, conversations: int, *, turns: int, seed: int = 0) -> None:
    model, table = MODELS[name], Table()
    backend = model.open()
    options: dict[str, Any] = {"profile": model.profile_id(), "chunk_tokens": model.chunk_tokens}
    began = asyncio.get_running_loop().time()
    longest = 0
    async with opened(backend, **options, tiers=tiers_over(root / "warm")) as bench:
        for first in range(0, conversations, BATCH):
            seeds = range(seed + first, seed + min(first + BATCH, conversations))
            found = await _batch(
                bench, name, root / f"killed{first}", table, seeds=seeds, turns=turns
            )
            longest = max(longest, *(prompt.outcome.prompt_tokens for prompt in found))
            seconds = asyncio.get_running_loop().time() - began
            unequal = sum(map(len, table.unequal.values()))
            _say(
                f"{name}: {seeds.stop - seed} of {conversations} conversations, "
                f"{table.compared.total()} compared, {unequal} unequal, {seconds:.0f} s"
            )
    _say("\n".join(table.lines()))
    table.check()
    assert longest > backend.export_tokens_max + 64


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def _batch(
    bench: Bench, name: str, killed: Path, table: Table, *, seeds: range, turns: int
) -> list[Asked]:
    """Conversations of one batch, under every condition; all that the warm worker was asked."""
    model = MODELS[name]
    options: dict[str, Any] = {"profile": model.profile_id(), "chunk_tokens": model.chunk_tokens}
    at_once = asyncio.Semaphore(AT_ONCE)

    async def converse(seed: int) -> list[Asked]:
        async with at_once:
            talk = GrammarTalk(model.grammar(bench.backend))
            return await _converse(bench, model, talk, Random(seed), turns)

    # A group: when one fails, none goes on with a model that is closed under it.
    async with asyncio.TaskGroup() as group:
        talks = [group.create_task(converse(seed)) for seed in seeds]
    runs = [talk.result() for talk in talks]
    found = [prompt for run in runs for prompt in run]
    expected = await _in_another_process(name, found)
    for prompt in found:
        prompt.enter(table, prompt.condition, expected)
    # The last prompt of each conversation: those before it are its prefixes, or were edited.
    lasts = [run[-1] for run in runs]
    for prompt in await _evicted(bench, model, lasts, seeds.start):
        prompt.enter(table, "evicted", expected)
    async with opened(model.open(), **options) as cold:
        for number, last in enumerate(lasts):
            again = await _again(cold, model, last, domain=f"cold{number}")
            assert again.reused_tokens == 0
            again.enter(table, "cold", expected)
    for last, outcome in zip(lasts, await _kill(name, killed, lasts), strict=True):
        table.compare("other process", last.name, expected[last.name], outcome)
    async with opened(model.open(), **options, tiers=tiers_over(killed)) as restarted:
        rows = Rows(restarted)
        back = []
        for last in lasts:
            back.append(await _again(restarted, model, last, domain="killed"))
            await rows.check()
    for prompt in back:
        prompt.enter(table, "restarted by kill -9", expected)
    # What is not in a page yet when the process dies is the last prompt's at most.
    assert sum(prompt.tiers["disk"] > 0 for prompt in back) >= len(back) - 1
    assert rows.hashed
    await asyncio.to_thread(shutil.rmtree, killed)
    return found


async def _evicted(bench: Bench, model: ExactModel, lasts: list[Asked], number: int) -> list[Asked]:
    """Ask again after four others at least took the streams: then most come from memory."""
    for stream in range(bench.backend.streams):
        seed = -number - stream - 1
        other = next_input(GrammarTalk(model.grammar(bench.backend)), Random(seed), 5)
        await _ask(bench, model, "other", f"other{seed}", other.spelled(), domain=f"other{seed}")
    rows = Rows(bench)
    back = []
    for last in reversed(lasts):
        back.append(await _again(bench, model, last))
        await rows.check()
    assert sum(prompt.tiers["host"] > 0 for prompt in back) > len(back) // 2
    assert rows.hashed
    return back


class Rows:
    """The rows that lie in the back end's streams: `check` exports those of every page once, as far
    back as sliding rows are given back, and compares their hashes with what the worker takes them
    for."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._seen: list[Boundary] = []
        self.hashed = 0

    async def check(self) -> None:
        await self._bench.quiet()
        backend = self._bench.backend
        for stream in self._bench.room._engine.streams:
            oldest, start = backend.length(stream.index) - backend.export_tokens_max, 0
            for boundary in stream.boundaries:
                new = not any(boundary is seen for seen in self._seen)
                if new and start >= oldest and boundary.page is not None:
                    rows = backend.export(stream.index, start, boundary.tokens)
                    assert page_digest(rows) == boundary.page, "a row is not what it was"
                    self._seen.append(boundary)
                    self.hashed += 1
                start = boundary.tokens


async def _again(bench: Bench, model: ExactModel, last: Asked, **options: Any) -> Asked:
    """The same prompt once more."""
    return await _ask(
        bench, model, last.condition, last.name, (last.segments, last.opener), **options
    )


async def _kill(name: str, root: Path, prompts: list[Asked]) -> list[Outcome]:
    """What a worker in another process answers to the prompts; it is killed while it is answering
    them once more."""
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
    process.stdin.write(json.dumps(_as_json([*prompts, *prompts])).encode())
    process.stdin.close()
    found = []
    for _ in range(len(prompts) + len(prompts) // 2):
        tokens, ids, digest = json.loads(await process.stdout.readline())
        found.append(Outcome(tokens, tuple(ids), digest))
    process.kill()
    await process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert found[len(prompts) :] == found[: len(prompts) // 2]
    return found[: len(prompts)]


async def _converse(
    bench: Bench, model: ExactModel, talk: GrammarTalk, random: Random, turns: int
) -> list[Asked]:
    """Turns that append; then a branch, an edit in the middle, and the first history again."""
    seed = random.randrange(10**9)
    found: list[Asked] = []

    async def ask(condition: str, asked: GrammarTalk) -> Asked:
        name = f"{condition}-{seed}-{len(found)}"
        prompt = await _ask(bench, model, condition, name, asked.spelled())
        found.append(prompt)
        return prompt

    for turn in range(turns):
        talk = next_input(talk, random, model.words_max)
        answered = talk.answer((await ask("warm" if turn else "first", talk)).outcome.ids)
        if random.random() < 0.7:
            await bench.settle(answered.spelled()[0])
        talk = answered
    whole = next_input(talk, random, model.words_max)
    await ask("warm", whole)
    middle = len(whole.blocks) // 2
    await ask("branch", next_input(whole.cut(middle), random, model.words_max))
    await ask("middle edit", whole.edit(middle, some_text(random, model.words_max)))
    await ask("warm", whole)
    return found


async def _ask(
    bench: Bench,
    model: ExactModel,
    condition: str,
    name: str,
    spelled: tuple[list[Segment], TokenIds],
    **options: Any,
) -> Asked:
    segments, opener = spelled
    result = await bench.answer(
        segments,
        response=name,
        opener=pack(opener),
        tokens_max=model.answer_tokens,
        stop_ids=sorted(model.grammar(bench.backend).stop_ids),
        **options,
    )
    receipt = await bench.receipt(name, **options, looks=100_000)
    assert receipt.reused_tokens + receipt.prefilled_tokens == receipt.prompt_tokens
    assert receipt.state_digest is not None
    outcome = Outcome(receipt.prompt_tokens, result.ids, str(receipt.state_digest))
    return Asked(condition, name, segments, opener, outcome, receipt.reused_tokens, receipt.tiers)


def _as_json(prompts: Iterable[Asked]) -> list[Any]:
    return [
        ([(s.role, unpack(s.head), unpack(s.content)) for s in prompt.segments], prompt.opener)
        for prompt in prompts
    ]


async def _in_another_process(name: str, prompts: list[Asked]) -> dict[str, Outcome]:
    """What a plain loop comes to for each prompt, by its name; for the same prompt once."""
    asked = [json.dumps(each) for each in _as_json(prompts)]
    different = list(dict.fromkeys(asked))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bare_process",
        name,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(f"[{','.join(different)}]".encode())
    assert process.returncode == 0
    found = dict(zip(different, json.loads(out), strict=True))
    return {
        prompt.name: Outcome(prompt.prompt_tokens, tuple(found[each][0]), found[each][1])
        for prompt, each in zip(prompts, asked, strict=True)
    }
