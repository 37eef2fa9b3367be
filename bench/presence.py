"""What time tells of another domain's past: the one place where warmth may show.

    python -m bench.presence [--rounds N] [--json PATH]

A service on the tiny model and two principals in domains of their own, neither with telemetry. In
each round alice has one new text answered; then bob, in an order drawn by a seed, asks for that
text and for one of the same length that nobody asked for. What an observer learns from one timing
is the chance that it tells the two apart: `told apart` is the share of pairs in which the text that
alice had asked for came back faster, 0.5 is a coin (the interval is what a coin gives in 95 of 100
runs of so many pairs). The control is bob's own text asked again: that is warm, and shows.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from bench.report import Cell, header, table, write_json
from tests.installations import Service, tiny_home

MODEL: Final = "tiny-gemma"
ROUNDS: Final = 60
# Long enough for prefill to be most of a turn, and within the tiny model's context.
CHARS: Final = 900
COLUMNS: Final = ("probe", "pairs", "median ms", "p90 ms", "told apart", "a coin gives")
# Long enough for an answer to settle, its pages and evidence too.
_PAUSE_SECONDS: Final = 0.1
_MS: Final = 1e3
_Z95: Final = 1.96


@dataclass
class Probe:
    """Timings of one kind of text, in milliseconds, beside those of a fresh one of its pair."""

    ms: list[float] = field(default_factory=list)
    fresh_ms: list[float] = field(default_factory=list)

    def row(self, name: str) -> dict[str, Cell]:
        """One line of the table."""
        pairs = len(self.ms)
        return {
            "probe": name,
            "pairs": pairs,
            "median ms": statistics.median(self.ms),
            "p90 ms": statistics.quantiles(self.ms, n=10)[-1] if pairs > 1 else self.ms[0],
            "told apart": told_apart(self.ms, self.fresh_ms),
            "a coin gives": coin(pairs),
        }


def told_apart(asked_ms: list[float], fresh_ms: list[float]) -> float:
    """The share of pairs whose first is the faster; a tie is half of one."""
    faster = sum((a < b) + (a == b) / 2 for a, b in zip(asked_ms, fresh_ms, strict=True))
    return faster / len(asked_ms)


def coin(pairs: int) -> str:
    """What 95 of 100 coins give in so many pairs."""
    half = _Z95 * math.sqrt(0.25 / pairs)
    return f"{max(0.0, 0.5 - half):.2f} … {min(1.0, 0.5 + half):.2f}"


class Client:
    """One principal over one connection."""

    def __init__(self, service: Service, name: str) -> None:
        key = service.post("/huginn/v1/keys", {"principal": name}).json()["key"]
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask_ms(self, text: str) -> float:
        """Milliseconds until the whole answer, of one token, is there."""
        body = {"model": MODEL, "max_tokens": 1, "temperature": 0}
        payload = json.dumps(body | {"messages": [{"role": "user", "content": text}]})
        time.sleep(_PAUSE_SECONDS)
        began = time.perf_counter()
        self._connection.request("POST", "/v1/chat/completions", payload, self._headers)
        answer = self._connection.getresponse()
        read = answer.read()
        took_ms = (time.perf_counter() - began) * _MS
        assert answer.status == 200, read
        return took_ms

    def close(self) -> None:
        self._connection.close()


def text(random: Random) -> str:
    """A new text; all are of one length, and begin differently."""
    return "".join(random.choice("abcdefgh ") for _ in range(CHARS))


def measured(service: Service, rounds: int) -> dict[str, Probe]:
    """The timings of `rounds` rounds."""
    random = Random(1)
    alice, bob = Client(service, "alice"), Client(service, "bob")
    others, own = Probe(), Probe()
    for who in (alice, bob):
        who.ask_ms(text(random))  # connections, handles and code are warm from here on
    for _ in range(rounds):
        known, fresh = text(random), text(random)
        alice.ask_ms(known)
        order = [(known, others.ms), (fresh, others.fresh_ms)]
        random.shuffle(order)
        for each, timings in order:
            timings.append(bob.ask_ms(each))
        order = [(known, own.ms), (text(random), own.fresh_ms)]
        random.shuffle(order)
        for each, timings in order:
            timings.append(bob.ask_ms(each))
    for who in (alice, bob):
        who.close()
    return {"another's text": others, "his own again": own}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="hgb-", dir="/tmp") as directory:
        home = tiny_home(Path(directory) / "home")
        with Service(home, shell="embedded") as service:
            probes = measured(service, arguments.rounds)
    rows = [probe.row(name) for name, probe in probes.items()]
    fresh = Probe(probes["another's text"].fresh_ms, probes["another's text"].fresh_ms)
    rows.append(fresh.row("nobody's text"))
    print(header())
    print()
    print(table(rows, COLUMNS))
    if arguments.json:
        write_json(arguments.json, "presence", rows)


if __name__ == "__main__":
    main()
