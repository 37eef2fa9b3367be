"""`huginn run`: one question, one answer."""

from __future__ import annotations

import sys

import click

from actors.cli.asked import Asked, Json, emit, verb


@click.command()
@verb
@click.argument("prompt")
@click.option("--model", help="By default the first that is served.")
@click.option("--system", help="A system message before the prompt.")
@click.option("--complete", is_flag=True, help="Continue the prompt as text, without a chat.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="At most so many tokens.")
@click.option("--temperature", type=float, help="0 takes the likeliest token each time.")
@click.option("--seed", type=int, help="The same seed, the same answer.")
@click.option("--stop", "stops", multiple=True, help="End the answer at this text; repeatable.")
def run(
    asked: Asked,
    *,
    prompt: str,
    model: str | None,
    system: str | None,
    complete: bool,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    stops: tuple[str, ...],
) -> None:
    """Ask PROMPT ('-': standard input) and print the answer as it comes. Ctrl-C stops it."""
    from actors.cli.answers import CHAT, COMPLETE, ask, served_model
    from actors.cli.client import connect

    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise click.UsageError("the prompt is empty")
    if complete and system:
        raise click.UsageError("--system belongs to a chat, --complete has none")
    client = connect(asked)
    body: Json = {
        "model": served_model(client, model),
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
        "stop": list(stops) or None,
    }
    if complete:
        body["prompt"] = text
    else:
        before = [{"role": "system", "content": system}] if system else []
        body["messages"] = [*before, {"role": "user", "content": text}]
    answer = ask(client, COMPLETE if complete else CHAT, body, asked.pieces())
    if asked.json:
        emit({"model": body["model"], **answer.document()})
    else:
        print(flush=True)
