"""`huginn ctx`: contexts by id: what is in them, where two part, and what of one was reused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from actors.cli.asked import Asked, verb
from actors.cli.why import why

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.tree import Tree

_CONTEXTS = "/huginn/v1/contexts"
_EXCERPT_CHARS = 60


@click.group()
def ctx() -> None:
    """Look into contexts: their blocks, tree, tokens and differences."""


ctx.add_command(why)


@ctx.command()
@verb
@click.argument("context")
@click.option("--full", is_flag=True, help="The whole content of each block.")
def show(asked: Asked, context: str, full: bool) -> None:
    """Show the assembly of CONTEXT and its blocks."""
    from actors.cli.client import connect, segment

    shown = connect(asked).get(f"{_CONTEXTS}/{segment(context)}")
    asked.show(shown, lambda: context_people(shown, full=full))


@ctx.command()
@verb
@click.argument("context")
def tree(asked: Asked, context: str) -> None:
    """Show the rope of CONTEXT: the tree that its sequence is."""
    from actors.cli.client import connect, segment

    shown = connect(asked).get(f"{_CONTEXTS}/{segment(context)}/tree")
    asked.show(shown, lambda: _tree(shown))


@ctx.command()
@verb
@click.argument("context")
def tokens(asked: Asked, context: str) -> None:
    """Print the token ids that CONTEXT is for the model, in order."""
    from actors.cli.client import connect, segment

    shown = connect(asked).get(f"{_CONTEXTS}/{segment(context)}?tokens=1")
    ids = shown["tokens"]
    document = {"context_id": shown["context_id"], "tokens": ids, "count": len(ids)}
    asked.show(document, lambda: " ".join(map(str, ids)))


@ctx.command()
@verb
@click.argument("context")
def origin(asked: Asked, context: str) -> None:
    """Say who assembled CONTEXT first and when, and how often that was verified."""
    from actors.cli.client import connect, segment

    client = connect(asked)
    invocation = client.get(f"{_CONTEXTS}/{segment(context)}")["invocation_id"]
    found = client.get(f"/huginn/v1/derivations/{segment(invocation)}")
    asked.show(found, lambda: _origin(found))


@ctx.command()
@verb
@click.argument("a")
@click.argument("b")
def diff(asked: Asked, a: str, b: str) -> None:
    """Say where the contexts A and B part, and why."""
    from actors.cli.client import connect

    found = connect(asked).post(f"{_CONTEXTS}/diff", {"a": a, "b": b})
    asked.show(found, lambda: _difference(found))


def context_people(shown: Any, *, full: bool = False) -> RenderableType:
    """A context for people."""
    from rich.console import Group

    from actors.cli.output import facts, table

    rows = [
        (index, block["role"], block["type"], block["block_id"], _excerpt(block["content"], full))
        for index, block in enumerate(shown["blocks"])
    ]
    names = ("context_id", "sequence_id")
    assembly = [(name, value) for name, value in shown["assembly"].items() if name != "sequence"]
    return Group(
        facts([*((name, shown[name]) for name in names), *assembly]),
        "",
        table(("", "role", "type", "block", "content"), rows),
    )


def _origin(found: Any) -> RenderableType:
    from actors.cli.output import facts

    first_ns = found["first_ns"]
    first = None if first_ns is None else datetime.fromtimestamp(first_ns / 1e9, UTC)
    outputs = [(each["label"], each["id"]) for each in found["outputs"]]
    return facts(
        [
            ("derivation", found["invocation_id"]),
            *outputs,
            ("first by", f"{found['executor']} ({found['engine_build']})"),
            ("first at", None if first is None else first.isoformat(timespec="seconds")),
            ("testimonies", found["testimonies"]),
            ("verified", f"{found['verified']} times"),
        ]
    )


def _excerpt(content: str, full: bool) -> str:
    if full:
        return content
    line = " ".join(content.split())
    return line if len(line) <= _EXCERPT_CHARS else f"{line[: _EXCERPT_CHARS - 1]}…"


def _tree(shown: Any) -> RenderableType:
    from rich.tree import Tree

    id_to_node = {node["node_id"]: node for node in shown["nodes"]}

    def grow(id: str, into: Tree | None) -> Tree:
        node = id_to_node.get(id)
        label = id
        if node is not None:
            label = f"{id}  {node['blocks']} blocks, {node['content_bytes']} bytes"
        made = Tree(label) if into is None else into.add(label)
        for child in [] if node is None else node["children"]:
            grow(child, made)
        return made

    return grow(shown["root"], None)


def _difference(found: Any) -> str:
    contracts = found["contracts"]
    also = f"; they differ in these contracts: {', '.join(contracts)}" if contracts else ""
    first = found["first_difference"]
    if first is None:
        return f"equal: {found['equal_blocks']} blocks{also}"
    return (
        f"{found['equal_blocks']} blocks are equal; they part at block {first['index']}, token "
        f"{first['token_index']}, for this reason: {first['reason']}{also}"
    )
