"""`huginn ctx why`: what of a prompt was reused, where reuse ended, and what is known of the cause.

Reuse ends where no state was held for what follows. With an earlier answer or context to compare
with, the place where the two part is set beside the place where reuse ended.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from actors.cli.asked import Asked, Failure, Json, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

    from actors.cli.client import Client

_CONTEXT_PREFIX = "ctx:"


@dataclass(frozen=True)
class Ended:
    """Where reuse ended: in block `index` (None: after the last), `token_index` tokens into the
    prompt. `reason` is `whole`, `not-held`, `other-source`, or why the contexts part there."""

    index: int | None
    token_index: int
    reason: str
    explanation: str


@click.command()
@verb
@click.argument("response")
@click.option("--against", help="An earlier response or context to compare with.")
def why(asked: Asked, response: str, against: str | None) -> None:
    """Say what RESPONSE's prompt reused, block by block, and where and why reuse ended."""
    from actors.cli.client import connect

    client = connect(asked)
    receipt = _receipt(client, response)
    difference = None
    if against is not None:
        if receipt["context_id"] is None:
            raise Failure(f"{response} is not the answer of a chat: it has no context")
        pair = {"a": _context(client, against), "b": receipt["context_id"]}
        difference = client.post("/huginn/v1/contexts/diff", pair)
    ended = explain(receipt, difference)
    document = {"receipt": receipt, "difference": difference, "ended": asdict(ended)}

    def people() -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        return Group(receipt_people(receipt), "", Text(ended.explanation))

    asked.show(document, people)


def explain(receipt: Json, difference: Json | None) -> Ended:
    """Where the reuse of `receipt` ended and why, as far as the two tell. `difference` is what
    `contexts/diff` says of an earlier context (a) and this one (b)."""
    reused = receipt["reused_tokens"]
    blocks = receipt["blocks"]
    index = next((i for i, each in enumerate(blocks) if each["reused"] < each["tokens"]), None)
    if index is None:
        text = (
            f"All {len(blocks)} blocks were reused; what opens the answer "
            f"({receipt['prefilled_tokens']} tokens) was fed."
        )
        return Ended(None, reused, "whole", text)
    place = f"Reuse ended after {reused} tokens, in block {index} ({blocks[index]['role']})"
    if difference is None:
        text = (
            f"{place}: no state was held for what follows. It is new, it was changed, or its state "
            "was given up; --against EARLIER says where this context parts from an earlier one."
        )
        return Ended(index, reused, "not-held", text)
    first = difference["first_difference"]
    if first is None or index < first["index"]:
        same = "throughout" if first is None else f"up to token {first['token_index']}"
        text = (
            f"{place}. The two contexts are the same {same}, so the state was not held any more, "
            "or not yet: answers are advanced when nothing else waits."
        )
        return Ended(index, reused, "not-held", text)
    if index > first["index"]:
        text = (
            f"{place}. The two contexts part before, at block {first['index']} "
            f"({first['reason']}): what was reused came from another turn."
        )
        return Ended(index, reused, "other-source", text)
    text = (
        f"{place}. There the two contexts part: {_REASONS.get(first['reason'], first['reason'])}. "
        f"Their common prefix has {first['token_index']} tokens; state is kept at the ends of "
        "blocks and at fixed cuts inside them."
    )
    return Ended(index, reused, first["reason"], text)


_REASONS = {
    "order": "a block was moved",
    "role": "the block speaks in another role",
    "content": "the block has other content",
    "rendering": "the block is rendered otherwise",
    "inserted": "blocks were added",
    "removed": "blocks were removed",
    "contract": "the same blocks were assembled under other contracts",
}


def receipt_people(receipt: Any) -> RenderableType:
    """A receipt for people."""
    from rich.console import Group

    from actors.cli.answers import reuse_line
    from actors.cli.output import facts, table

    names = ("response_id", "context_id", "profile_id", "state_digest", "finish_reason")
    tiers = ", ".join(f"{name} {count}" for name, count in receipt["tiers"].items())
    rows = [
        (index, each["role"], each["type"], each["tokens"], each["reused"], each["block_id"])
        for index, each in enumerate(receipt["blocks"])
    ]
    return Group(
        facts([*((name, receipt[name]) for name in names), ("tiers", tiers)]),
        "",
        table(("", "role", "type", "tokens", "reused", "block"), rows),
        "",
        reuse_line(receipt),
    )


def _receipt(client: Client, response: str) -> Json:
    from actors.cli.client import segment

    found: Json = client.get(f"/huginn/v1/receipts/{segment(response)}")
    if found.get("withheld"):
        raise Failure(
            f"{response} begins with public blocks, and this key has no telemetry on what is "
            "public: ask with the operator's key",
            code="withheld",
        )
    return found


def _context(client: Client, named: str) -> str:
    """The context id that `named` is, or that the response of that name has."""
    if named.startswith(_CONTEXT_PREFIX):
        return named
    context = _receipt(client, named)["context_id"]
    if context is None:
        raise Failure(f"{named} is not the answer of a chat: it has no context")
    return str(context)
