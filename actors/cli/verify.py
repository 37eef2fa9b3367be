"""`huginn verify`: compute again, in another process, and compare.

With a context: what the running service answers for it, against a cold run that shares nothing
with the service but the weights. With `--profile`: the profile's promises, tried on this machine;
the result is kept as evidence under the data directory. With `--sample`: what the memo knows, drawn
at random (`spot_check.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from actors.cli.asked import Asked, Failure, Json, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

    from actors.cli.client import Client

_DIRECTORY = "verified"
_ROLES = {"system": "system", "user": "user", "model": "assistant"}
_TEXTS = {"instruction", "user turn", "model turn"}


@click.command()
@verb
@click.argument("ctx", required=False)
@click.option("--profile", help="Try the promises of this profile instead of a context.")
@click.option(
    "--sample",
    type=click.IntRange(1, 1024),
    help="Execute so many of the derivations that are remembered again.",
)
@click.option("--seed", help="Draws the sample; by default at random.")
@click.pass_context
def verify(
    context: click.Context,
    asked: Asked,
    *,
    ctx: str | None,
    profile: str | None,
    sample: int | None,
    seed: str | None,
) -> None:
    """Recompute CTX cold in a new process and compare with the service; exit 1 if unequal."""
    if sum(each is not None for each in (ctx, profile, sample)) != 1:
        raise click.UsageError("say either a context, --profile or --sample")
    if seed is not None and sample is None:
        raise click.UsageError("--seed draws a sample: say --sample too")
    if ctx is not None:
        ok = _context(asked, ctx)
    elif profile is not None:
        ok = _profile(asked, profile)
    else:
        from actors.cli.spot_check import spot_check

        ok = spot_check(asked, sample or 1, seed)
    if not ok:
        context.exit(1)


def _context(asked: Asked, ctx: str) -> bool:
    from actors.cli.client import connect, segment
    from actors.cli.fetch import ensure_library
    from actors.experiment.recompute import recompute

    client = connect(asked, seconds_max=600.0)
    shown = client.get(f"/huginn/v1/contexts/{segment(ctx)}?tokens=1")
    served = served_model(client)
    answer = _answered(client, served["model"], ctx, messages_of(shown["blocks"]))
    ensure_library(asked)
    cold = recompute(profile_of(asked, served), asked.config().home_path, shown["blocks"])
    rows = compare(answer, shown["tokens"], cold)
    equal = all(row["equal"] for row in rows)
    document = {
        "context_id": ctx,
        "equal": equal,
        "reused_tokens": answer["receipt"]["reused_tokens"],
        "compared": rows,
    }

    def people() -> RenderableType:
        from rich.console import Group

        from actors.cli.output import table

        columns = ("what", "served", "recomputed", "equal")
        shown_rows = [[row[name] for name in columns] for row in rows]
        return Group(table(columns, shown_rows), "", "equal" if equal else "UNEQUAL")

    asked.show(document, people)
    return equal


def compare(answer: Json, tokens: list[int], cold: Json) -> list[Json]:
    """What the service says of a context beside what the cold run says, thing by thing.

    `tokens` are the context's ids as the service shows them, without the opener of an answer. Under
    a profile that does not promise equal states, states are not compared.
    """
    computed = cold["tokens"][: len(cold["tokens"]) - cold["opener_tokens"]]
    first = None if cold["stops"] else cold["first_bytes"]
    pairs = {
        "profile": (answer["receipt"]["profile_id"], cold["profile_id"]),
        "token ids": (_digest(tokens), _digest(computed)),
        "state": (answer["receipt"]["state_digest"], cold["state_digest"]),
        "first token": (_bytes(answer["first"]), _bytes(first)),
    }
    if cold.get("equality") == "token":
        del pairs["state"]
    # Two values that are both missing prove nothing: a block longer than the model's sliding
    # window has no state digest.
    return [
        {
            "what": what,
            "served": served,
            "recomputed": again,
            "equal": served is not None and served == again,
        }
        for what, (served, again) in pairs.items()
    ]


def served_model(client: Client) -> Json:
    """The model and the profile that the service runs."""
    workers = client.get("/huginn/v1/status")["workers"]
    if not workers:
        raise Failure("the service has no worker", code="no_worker")
    found: Json = workers[0]
    return found


def profile_of(asked: Asked, served: Json) -> str:
    """What the profile that is served can be loaded by here: the file of that name that this
    command is configured with, or the shipped one."""
    from pathlib import Path

    configured, name = asked.config().profile, str(served["profile"])
    return configured if Path(configured).stem == name else name


def _answered(client: Client, model: str, ctx: str, messages: list[Json]) -> Json:
    """What the service makes of the context now: its receipt, and the first token's bytes (None:
    the answer ended before any)."""
    from actors.experiment.measure import receipt_of

    body = {
        "model": model,
        "messages": messages,
        "temperature": 0,
        "max_tokens": 1,
        "logprobs": True,
    }
    answer = client.post("/v1/chat/completions", body)
    receipt = receipt_of(client, answer["id"])
    if receipt["context_id"] != ctx:
        raise Failure(
            f"the same messages are {receipt['context_id']} now: {ctx} was made under another "
            "profile, grammar or budget than the service has",
            code="other_contract",
        )
    said = (answer["choices"][0]["logprobs"] or {}).get("content") or []
    return {"receipt": receipt, "first": said[0]["bytes"] if said else None}


def messages_of(blocks: list[Json]) -> list[Json]:
    """The chat messages that have these blocks. Raises Failure for a block that no message has."""
    messages: list[Json] = []
    for index, block in enumerate(blocks):
        rendering, text = block["rendering"], block["content"]
        kind = block["type"]
        if kind in _TEXTS and block["role"] in _ROLES and not rendering:
            named = {} if block["name"] is None else {"name": block["name"]}
            messages.append({"role": _ROLES[block["role"]], "content": text, **named})
        elif kind == "tool call" and "call" in rendering:
            function = {"name": rendering["tool"], "arguments": text}
            call = {"id": rendering["call"], "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "tool result" and "call" in rendering:
            said = {"role": "tool", "tool_call_id": rendering["call"], "content": text}
            messages.append(said)
        else:
            raise Failure(
                f"block {index} ({block['type']}) is not one that a chat message makes: this "
                "context cannot be asked for over HTTP",
                code="not_a_chat",
            )
    return messages


def _digest(tokens: list[int]) -> str:
    from actors.experiment.measure import digest

    return digest(json.dumps(tokens))


def _bytes(piece: list[int] | None) -> str:
    return "(the answer ends)" if piece is None else repr(bytes(piece))


def _profile(asked: Asked, name: str) -> bool:
    from actors.cli.fetch import ensure_library, ensure_weights
    from actors.experiment.report import machine
    from profiles import loader

    home = asked.config().home_path
    spec = loader.load(name)
    ensure_weights(spec, home, asked)
    ensure_library(asked)
    lines = _fixtures(name, home)
    head = next(lines)
    found = []
    for line in lines:
        found.append(line)
        if not asked.json:
            print(f"{'ok    ' if line['ok'] else 'FAILED'} {line['name']}", flush=True)
            if line["detail"]:
                print(f"       {line['detail']}", flush=True)
    document = {
        "profile": spec.name,
        **head,
        "ok": all(line["ok"] for line in found),
        "fixtures": found,
        "machine": machine(),
        "verified_ns": time.time_ns(),
    }
    path = keep(home, document)
    asked.show(
        {**document, "path": str(path)},
        lambda: (
            f"{spec.name} ({head['profile_id']}), library build {head['build_digest']}: "
            f"{'holds' if document['ok'] else 'DOES NOT HOLD'} here; evidence in {path}"
        ),
    )
    return bool(document["ok"])


def _fixtures(profile: str, home: Path) -> Iterator[dict[str, Any]]:
    """What the fixtures' process says, line by line. Raises Failure if it fails."""
    command = [sys.executable, "-m", "actors.experiment.fixtures"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"profile": profile, "home": str(home)}))
            process.stdin.close()
            for line in process.stdout:
                yield json.loads(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise Failure(
            f"the fixtures' process ended with status {process.returncode}: see above",
            code="fixtures",
        )


def keep(home: Path, document: Json) -> Path:
    """Write the evidence, whole or not at all; it replaces what there was for this profile."""
    from store.files import make_directory, sync_directory, write_unfinished

    directory = home / _DIRECTORY
    make_directory(directory)
    path = directory / f"{document['profile_id']}.json"
    fresh = directory / f".{path.name}.{os.getpid()}.unfinished"
    body = (json.dumps(document, indent=2) + "\n").encode("utf-8")
    write_unfinished(fresh, body, mode=0o600)
    os.replace(fresh, path)
    sync_directory(directory)
    return path
