"""What the rooms cost: one short turn over HTTP, over the same work on the bare binding.

    python -m bench.gateway [--rounds N] [--shells embedded ray] [--json PATH]

Both sides do the same on the tiny model: a conversation grows by one user message, its tokens are
prefilled by the schedule on top of a live prefix, one token is sampled. Over HTTP that crosses
gateway, assembler, ropes (with a durable commit), and the worker's process; bare, it is the back
end's calls in this process. The history is what was answered, so the answer before has settled and
either side feeds one advance. Turns alternate, each after the same pause: what the pause costs (a
processor that went to other work, cold caches) and what else the machine does meets both alike. The
difference of the medians is the overhead.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

from actors.runtime.wiring import profile_contracts
from actors.worker.backends.llama import LlamaBackend
from bench.report import header, table, write_json
from protocol.blocks import BlockType, ContextBlock, Role, text_block
from protocol.transform import fold_to_state
from tests.installations import Service, tiny_home
from tests.model_fixtures import tiny

MODEL = "tiny-gemma"
_MS = 1e3
# Turns of one conversation: what the tiny model's context of 2,048 tokens holds.
_TURNS = 16
# Long enough for the answer to settle, its pages and evidence too.
_PAUSE_SECONDS: Final = 0.05

Message = dict[str, str]


class Bare:
    """The back end alone, fed turn by turn what the service feeds."""

    def __init__(self) -> None:
        path, profile = tiny()
        self._backend = LlamaBackend(path, profile)
        self._grammar = profile_contracts(profile, self._backend.tokenizer).grammar
        self.begin()

    def begin(self) -> None:
        """A new conversation."""
        self._backend.truncate(0, 0)
        self._blocks: list[tuple[ContextBlock, str]] = []
        self._fed = 0

    def turn_ms(self, message: Message) -> float:
        """Milliseconds for the new tokens of a user message and one token after them."""
        new = self._new(Role.USER, BlockType.USER_TURN, message)
        began = time.perf_counter()
        logits = self._backend.advance(0, new, logits=True)
        assert logits is not None
        int(np.argmax(logits))
        return (time.perf_counter() - began) * _MS

    def settle(self, message: Message) -> None:
        """Feed an answer."""
        new = self._new(Role.MODEL, BlockType.MODEL_TURN, message)
        if new:
            self._backend.advance(0, new, logits=False)

    def close(self) -> None:
        self._backend.close()

    def _new(self, role: Role, kind: BlockType, message: Message) -> tuple[int, ...]:
        text = message["content"]
        self._blocks.append((text_block(role, kind, text), text))
        stream, state = fold_to_state(self._grammar, self._blocks)
        ids = [token for tokens in stream for token in tokens.ids]
        if role is Role.USER:
            ids += self._grammar.opener(state)
        new = tuple(ids[self._fed :])
        self._fed = len(ids)
        return new


class Client:
    """One connection to a service."""

    def __init__(self, service: Service) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        self._headers = {
            "Authorization": f"Bearer {service.key}",
            "Content-Type": "application/json",
        }

    def turn(self, messages: list[Message]) -> tuple[float, Message]:
        """Milliseconds for a turn, and the answer's message."""
        body = {"model": MODEL, "messages": messages, "max_tokens": 1, "temperature": 0}
        payload = json.dumps(body)
        began = time.perf_counter()
        self._connection.request("POST", "/v1/chat/completions", payload, self._headers)
        answer = self._connection.getresponse()
        read = answer.read()
        took_ms = (time.perf_counter() - began) * _MS
        assert answer.status == 200, read
        content = json.loads(read)["choices"][0]["message"]["content"]
        return took_ms, {"role": "assistant", "content": content}

    def close(self) -> None:
        self._connection.close()


def paired_ms(shell: str, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each turn over HTTP and on the bare binding, in turn."""
    over_http: list[float] = []
    alone: list[float] = []
    bare = Bare()
    with tempfile.TemporaryDirectory(prefix="hgb-", dir="/tmp") as directory:
        home = tiny_home(Path(directory) / "home")
        with Service(home, shell=shell) as service:
            client = Client(service)
            for number in range(rounds):
                bare.begin()
                messages: list[Message] = []
                for index in range(_TURNS):
                    asked = {"role": "user", "content": f"{number}.{index}: and what then?"}
                    messages.append(asked)
                    time.sleep(_PAUSE_SECONDS)
                    took_ms, answer = client.turn(messages)
                    over_http.append(took_ms)
                    messages.append(answer)
                    time.sleep(_PAUSE_SECONDS)
                    alone.append(bare.turn_ms(asked))
                    bare.settle(answer)
            client.close()
    bare.close()
    return over_http, alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="conversations of 16 turns")
    parser.add_argument("--shells", nargs="+", default=["embedded", "ray"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(header())
    rows: list[dict[str, str | int | float | None]] = []
    for shell in options.shells:
        # The first conversation pays for caches and imports on either side.
        over_http, alone = (samples[_TURNS:] for samples in paired_ms(shell, options.rounds))
        p50 = statistics.median(over_http)
        rows.append(row(f"bare binding, beside {shell}", alone))
        rows.append(
            row(f"HTTP, {shell}", over_http) | {"overhead p50 ms": p50 - statistics.median(alone)}
        )
    print(table(rows, ["what", "p10 ms", "p50 ms", "p95 ms", "overhead p50 ms"]))
    if options.json:
        write_json(options.json, "gateway", rows)


def row(what: str, samples: list[float]) -> dict[str, str | int | float | None]:
    cuts = statistics.quantiles(samples, n=20)
    return {
        "what": what,
        "p10 ms": cuts[1],
        "p50 ms": statistics.median(samples),
        "p95 ms": cuts[-1],
    }


if __name__ == "__main__":
    main()
