"""What the rooms cost: one short turn over HTTP, over the same work on the bare binding.

    python -m bench.gateway [--rounds N] [--shells embedded ray] [--json PATH]

Both sides do the same on the tiny model: a conversation grows by one user message, its tokens are
prefilled by the schedule on top of a live prefix, one token is sampled. Over HTTP that crosses
gateway, assembler, ropes (with a durable commit), and the worker's process; bare, it is the back
end's calls in this process. The difference of the medians is the overhead. The tiny model computes
in a millisecond or two, so the difference is the rooms and not the model.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from actors.runtime.wiring import profile_contracts
from actors.worker.backends.llama import LlamaBackend
from bench.report import header, table, write_json
from protocol.blocks import BlockType, ContextBlock, Role, text_block
from protocol.grammar import Grammar
from protocol.transform import fold_to_state
from tests.installations import Service, tiny_home
from tests.model_fixtures import tiny

MODEL = "tiny-gemma"
_MS = 1e3


# Turns of one conversation: what the tiny model's context of 2,048 tokens holds.
_TURNS = 16


def conversation(number: int) -> list[dict[str, str]]:
    """User and assistant in turn; the answers are fixed, so that both sides see one history."""
    messages = []
    for index in range(_TURNS):
        messages.append({"role": "user", "content": f"{number}.{index}: and what then?"})
        messages.append({"role": "assistant", "content": f"Thing {index} happened."})
    return messages


def bare_ms(rounds: int) -> list[float]:
    """Milliseconds for each turn's new work on the back end alone."""
    path, profile = tiny()
    backend = LlamaBackend(path, profile)
    grammar = profile_contracts(profile, backend.tokenizer).grammar
    samples = []
    for number in range(rounds):
        backend.truncate(0, 0)
        samples += _bare_conversation(backend, grammar, number)
    backend.close()
    return samples


def _bare_conversation(backend: LlamaBackend, grammar: Grammar, number: int) -> list[float]:
    blocks: list[tuple[ContextBlock, str]] = []
    samples = []
    fed = 0
    for index, message in enumerate(conversation(number)):
        role = Role.USER if message["role"] == "user" else Role.MODEL
        kind = BlockType.USER_TURN if role is Role.USER else BlockType.MODEL_TURN
        blocks.append((text_block(role, kind, message["content"]), message["content"]))
        stream, state = fold_to_state(grammar, blocks)
        ids = [token for tokens in stream for token in tokens.ids]
        if role is Role.USER:
            ids += grammar.opener(state)
        new = tuple(ids[fed:])
        if index % 2 == 0:
            began = time.perf_counter()
            logits = backend.advance(0, new, logits=True)
            assert logits is not None
            int(np.argmax(logits))
            samples.append((time.perf_counter() - began) * _MS)
        else:
            backend.advance(0, new, logits=False)
        fed = len(ids)
    return samples


def http_ms(shell: str, rounds: int) -> list[float]:
    """Milliseconds for each turn over HTTP, one connection, after the answer before has settled."""
    samples = []
    with tempfile.TemporaryDirectory(prefix="hgb-", dir="/tmp") as directory:
        home = tiny_home(Path(directory) / "home")
        with Service(home, shell=shell) as service:
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
            headers = {
                "Authorization": f"Bearer {service.key}",
                "Content-Type": "application/json",
            }
            for messages in map(conversation, range(rounds)):
                for end in range(1, len(messages), 2):
                    body = {"model": MODEL, "messages": messages[:end], "max_tokens": 1}
                    payload = json.dumps(body | {"temperature": 0})
                    began = time.perf_counter()
                    connection.request("POST", "/v1/chat/completions", payload, headers)
                    answer = connection.getresponse()
                    answer.read()
                    samples.append((time.perf_counter() - began) * _MS)
                    assert answer.status == 200
                    time.sleep(0.05)
            connection.close()
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="conversations of 16 turns")
    parser.add_argument("--shells", nargs="+", default=["embedded", "ray"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(header())
    # The first conversation pays for caches and imports on either side.
    bare = bare_ms(options.rounds)[_TURNS:]
    bare_p50 = statistics.median(bare)
    rows: list[dict[str, str | int | float | None]] = [
        {"what": "bare binding", "p50 ms": bare_p50, "p95 ms": p95(bare)}
    ]
    for shell in options.shells:
        samples = http_ms(shell, options.rounds)[_TURNS:]
        rows.append(
            {
                "what": f"HTTP, {shell}",
                "p50 ms": statistics.median(samples),
                "p95 ms": p95(samples),
                "overhead p50 ms": statistics.median(samples) - bare_p50,
            }
        )
    print(table(rows, ["what", "p50 ms", "p95 ms", "overhead p50 ms"]))
    if options.json:
        write_json(options.json, "gateway", rows)


def p95(samples: list[float]) -> float:
    return statistics.quantiles(samples, n=20)[-1]


if __name__ == "__main__":
    main()
