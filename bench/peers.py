"""Huginn against its peers: first token cold, warm, edited, alternating, shared and restarted.

    python -m bench.peers [--tokens 2048] [--repeats 3] [--json PATH] [--full] [--tiny]

In one run, by turns, on the same weights, with one thread and the same prompts:

- huginn: the service in its embedded shell, over HTTP;
- server: the binding's own OpenAI-compatible server, which keeps the last prompt's state and
  reuses the prefix that the next prompt shares with it;
- server+cache: the same with its prompt cache in memory;
- state file: the bare binding in a process of its own that reads a sequence's saved state, without
  HTTP or server: what a server's slot save and restore can reach.

Every time is from the request to the first text, at the client; greedy. A ratio is peer / Huginn of
medians. CPU time is the whole side's in that time, in steps of 10 ms: on a busy machine it says
more than the wall. Nothing drops the page cache: what a restart reads from disk is in memory.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.peer_report import condition_rows, growth_rows, rate_rows
from bench.peer_server import Peer
from bench.peer_sides import HuginnSide, Messages, PeerSide, Sample, Side, transcript
from bench.report import header, table, write_json
from profiles import loader, weights
from tests import model_fixtures
from tests.installations import Service

TEXT = (
    "the raven flew over every land and told an old king what it saw there in the evening when "
    "fires burn low by water near stone walls where people trade wool for salt and bread"
)
WORDS = TEXT.split()
ANSWER_TOKENS = 16
TURN_TOKENS = 24
MESSAGE_TOKENS = 100
SHARED_TOKENS = 300
DECODE_TOKENS = 48


@dataclass(frozen=True)
class Plan:
    """What is measured on which model. Lengths in tokens; the gap is what counts as idle."""

    profile: str
    tokens: int
    repeats: int
    sizes: tuple[int, ...]
    context_tokens: int
    instruct: bool
    tokens_per_word: float
    gap_seconds: float

    def words(self, seed: str, tokens: int) -> str:
        """About `tokens` tokens of text that another seed's text does not begin like."""
        draw = random.Random(seed)
        count = max(1, round(tokens / self.tokens_per_word))
        return " ".join(draw.choice(WORDS) for _ in range(count))

    def talk(self, seed: str, tokens: int) -> Messages:
        """A conversation of about `tokens` that ends with the user."""
        count = tokens // (MESSAGE_TOKENS + 4) | 1
        # A header and its line break are four tokens.
        each = tokens // count - 4
        return [
            said("assistant" if at % 2 else "user", self.words(f"{seed}/{at}", each))
            for at in range(count)
        ]

    def turn(self, seed: str) -> dict[str, str]:
        return said("user", self.words(seed, TURN_TOKENS - 6))


class Overtime(Exception):
    """The time given to the run is over; what was found until then stands."""


@dataclass
class Findings:
    """Samples by condition and side, decoding rates by streams and side, and prompt lengths."""

    samples: dict[str, dict[str, list[Sample]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    rates: dict[int, dict[str, list[tuple[float, float | None]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    token_differences: list[int] = field(default_factory=list)
    deadline: float = float("inf")

    def take(self, condition: str, side: Side, messages: Messages) -> None:
        """Asks for one token of `messages` and keeps the sample. Raises Overtime."""
        if time.monotonic() > self.deadline:
            raise Overtime
        sample = side.ask(messages)
        if isinstance(side, HuginnSide):
            sample = side.with_receipt(sample)
        self.samples[condition][side.name].append(sample)
        spent = f"{sample.wall_ms:.0f} ms, cpu {sample.cpu_ms:.0f} ms"
        note(f"{condition}, {side.name}: {spent}, reused {sample.reused_tokens} {sample.tiers}")


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def note(line: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Huginn against its peers")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of a history")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1800, help="no new sample after these")
    parser.add_argument("--json", metavar="PATH", help="write the figures there as well")
    parser.add_argument("--full", action="store_true", help="the growth sweep up to 4,096 tokens")
    parser.add_argument("--tiny", action="store_true", help="the tests' model in place of ours")
    options = parser.parse_args(arguments)
    sizes = (options.tokens // 4, options.tokens // 2)
    plan = Plan(
        profile="tiny-gemma" if options.tiny else loader.load().name,
        tokens=options.tokens,
        repeats=options.repeats,
        sizes=(*sizes, 2 * options.tokens) if options.full else sizes,
        context_tokens=2048 if options.tiny else 8192,
        instruct=options.tiny,
        tokens_per_word=5.0 if options.tiny else 1.0,
        gap_seconds=0.2 if options.tiny else 2.0,
    )
    # A stop from outside ends the services too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    findings = measure(plan, options.seconds)
    _print(plan, findings)
    if options.json:
        rows = [
            *condition_rows(findings.samples),
            *rate_rows(findings.rates),
            *growth_rows(findings.samples, plan.sizes, plan.tokens),
        ]
        write_json(options.json, "peers", rows, profile=plan.profile, tokens=plan.tokens)


def measure(plan: Plan, seconds: float) -> Findings:
    """Every condition, `plan.repeats` times, the sides by turns. Leaves no process behind."""
    findings = Findings(deadline=time.monotonic() + seconds)
    with (
        tempfile.TemporaryDirectory(prefix="huginn-peers-") as scratch,
        _sides(plan, Path(scratch)) as (huginn, server, cache),
    ):
        try:
            for number in range(plan.repeats):
                if number:
                    cache.start()
                talk = _conversations(plan, findings, number, (huginn, server, cache))
                _shared(plan, findings, number, (huginn, server, cache))
                # Its memory grows by more than its limit says; it is not part of what follows.
                cache.kill()
                _restart(plan, findings, number, talk, (huginn, server), scratch=Path(scratch))
                _decode(findings, number, (huginn, server))
                for size in plan.sizes:
                    _growth(plan, findings, size, number, (huginn, server))
        except Overtime:
            note("the time is over: the figures are of what was measured until now")
        note(f"answers that did not settle in time: {huginn.unsettled}; {huginn.tiers()}")
    return findings


@contextmanager
def _sides(plan: Plan, scratch: Path) -> Iterator[tuple[HuginnSide, PeerSide, PeerSide]]:
    """The three services, started; killed at the end, whatever happens."""
    model = _weights(plan)
    spec = loader.load(plan.profile)
    home = scratch / "home"
    target = weights.weights_path(spec, home)
    home.mkdir(mode=0o700)
    target.parent.mkdir(mode=0o700, parents=True)
    target.symlink_to(model)
    huginn = HuginnSide(Service(home, profile=plan.profile), spec.model.name)
    peers = [
        PeerSide(
            name,
            Peer(model, scratch, context_tokens=plan.context_tokens, cache=cache),
            instruct=plan.instruct,
        )
        for name, cache in (("server", False), ("server+cache", True))
    ]
    sides: list[Side] = [huginn, *peers]
    try:
        for side in sides:
            side.start()
            side.ask([said("user", "Is anybody there?")])
        yield huginn, peers[0], peers[1]
    finally:
        for side in sides:
            side.kill()


def _weights(plan: Plan) -> Path:
    path, _ = model_fixtures.tiny() if plan.instruct else model_fixtures.real()
    return path.resolve()


def _conversations(
    plan: Plan, findings: Findings, number: int, sides: tuple[HuginnSide, PeerSide, PeerSide]
) -> Messages:
    """Cold; append at once and after a gap; an edit in the middle; two that alternate.

    Gives back the conversation that was Huginn's, as it was before the edit.
    """
    talks = {side.name: plan.talk(f"a{number}", plan.tokens) for side in sides}
    others = {side.name: plan.talk(f"b{number}", plan.tokens // 4) for side in sides}

    def answered(side: Side, talk: Messages, seed: str) -> None:
        text = side.ask(talk, ANSWER_TOKENS).text
        talk += [said("assistant", text or "So it was."), plan.turn(f"{seed}{number}")]

    for side in sides:
        findings.take("cold", side, talks[side.name])
    findings.token_differences.append(
        sides[1].count(talks["huginn"]) - findings.samples["cold"]["huginn"][-1].prompt_tokens
    )
    for side in sides:
        answered(side, talks[side.name], "at once")
        findings.take("append, at once", side, talks[side.name])
    for side in sides:
        answered(side, talks[side.name], "idle")
        time.sleep(plan.gap_seconds)
        findings.take("append, idle gap", side, talks[side.name])
    for side in sides:
        answered(side, talks[side.name], "next")
        side.settle()
        side.ask(others[side.name])
        findings.take("two that alternate", side, talks[side.name])
    for side in sides[:2]:
        edited = [dict(each) for each in talks[side.name]]
        edited[len(edited) // 2]["content"] = plan.words(f"edit{number}", MESSAGE_TOKENS)
        side.settle()
        findings.take("middle edit", side, edited)
    return talks["huginn"]


def _shared(plan: Plan, findings: Findings, number: int, sides: Sequence[Side]) -> None:
    """Eight conversations behind one system prompt: their first turns, and one more of each."""
    system = said("system", plan.words(f"system{number}", min(SHARED_TOKENS, plan.tokens)))
    for side in sides:
        talks = [[system, plan.turn(f"eight{number}/{each}")] for each in range(8)]
        side.ask(talks[0])
        side.settle()
        for talk in talks[1:]:
            findings.take("eight share a prompt, first turn", side, talk)
            side.settle()
        for each, talk in enumerate(talks):
            talk += [said("assistant", "So it was."), plan.turn(f"more{number}/{each}")]
            findings.take("eight share a prompt, next turn", side, talk)
            side.settle()


def _decode(findings: Findings, number: int, sides: Sequence[Side]) -> None:
    """Tokens a second, of wall and of CPU: one answer, and three at once, behind short prompts."""
    for streams in (1, 3):
        for side in sides:
            # A base model goes on with these for as long as it is let.
            asks = [
                [
                    said(
                        "user",
                        f"List the numbers from {number}{each} to 100 in order, with commas.",
                    )
                ]
                for each in range(streams)
            ]
            with ThreadPoolExecutor(streams) as pool:
                # Once to have the prompts' states: what is timed is decoding.
                list(pool.map(lambda ask, to=side: to.generate(ask, 1), asks))
                began, cpu = time.perf_counter(), side.cpu()
                count = sum(pool.map(lambda ask, to=side: to.generate(ask, DECODE_TOKENS), asks))
                wall, spent = time.perf_counter() - began, side.cpu() - cpu
            rate = count / wall, count / spent if spent else None
            findings.rates[streams][side.name].append(rate)
            note(
                f"decode of {streams}, {side.name}: {count} tokens, {wall:.2f} s, cpu {spent:.2f} s"
            )


def _restart(
    plan: Plan,
    findings: Findings,
    number: int,
    talk: Messages,
    sides: tuple[HuginnSide, PeerSide],
    *,
    scratch: Path,
) -> None:
    """One more turn of `talk` after SIGKILL and start of every process."""
    longer = [*talk, said("assistant", "So it was."), plan.turn(f"restarted{number}")]
    time.sleep(plan.gap_seconds)
    # The peer keeps nothing over a restart: what it was asked before cannot matter.
    for side in sides:
        side.kill()
        side.start()
        side.ask([said("user", "Is anybody there?")])
        findings.take("after restart", side, longer)
    request: dict[str, object] = {
        "model": str(_weights(plan)),
        "context_tokens": plan.context_tokens,
        "history": transcript(talk, instruct=plan.instruct),
        "file": str(scratch / f"state{number}.bin"),
    }
    request["more"] = transcript(longer, instruct=plan.instruct).removeprefix(
        str(request["history"])
    )
    saved = _state_process({**request, "verb": "save"})
    restored = _state_process({**request, "verb": "restore"})
    findings.samples["cold"]["state file"].append(
        Sample(saved["cold_ms"], saved["cpu_ms"], "", int(saved["tokens"]))
    )
    findings.samples["after restart"]["state file"].append(
        Sample(restored["first_token_ms"], restored["cpu_ms"], "", int(saved["tokens"]))
    )
    note(f"state file: {saved} {restored}")


def _state_process(request: dict[str, object]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.peer_state"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _growth(plan: Plan, findings: Findings, size: int, number: int, sides: Sequence[Side]) -> None:
    for side in sides:
        talk = plan.talk(f"growth{size}/{number}", size)
        findings.take(f"cold of {size}", side, talk)
        side.settle()
        talk += [said("assistant", "So it was."), plan.turn(f"grown{number}")]
        findings.take(f"append to {size}", side, talk)


def _print(plan: Plan, findings: Findings) -> None:
    apart = max(map(abs, findings.token_differences), default=0)
    print("# Huginn and its peers\n")
    print(header())
    print(f"- model: {plan.profile}; one thread; histories of {plan.tokens} tokens")
    print(f"- prompts in tokens: the peer's differ from Huginn's by at most {apart}")
    print("- medians of n samples (Huginn/peer); page cache not dropped\n")
    rows = condition_rows(findings.samples)
    growth = growth_rows(findings.samples, plan.sizes, plan.tokens)
    for found in (rows, rate_rows(findings.rates), growth):
        if found:
            print(table(found, list(found[0])), "\n")


if __name__ == "__main__":
    main()
