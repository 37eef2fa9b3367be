"""`/huginn/v1/contexts`: assemble, show, tree and diff.

An id grants nothing. One that is unknown, malformed, or of a context that the caller may not read
whole is answered the same, byte for byte, on every path here (AUT-3).
"""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from actors.gateway.http.answer import json_response
from actors.gateway.http.errors import one_answer
from actors.gateway.http.extension import HuginnFields, extension, served_model
from actors.gateway.http.parse import read_body
from actors.gateway.http.state import CALLER
from actors.gateway.messages import Message, message_blocks
from actors.gateway.turns import ASSEMBLER, assemble, packed_count, stream_ids, stream_tokens
from protocol.assembly import ContextAssembly
from protocol.derivation import invocation_id
from protocol.errors import ContentError, NotVisible
from protocol.families import assembling
from protocol.ids import BlockId, ContextId, NodeId
from protocol.messages.assembler import (
    ContextDifference,
    DiffContexts,
    Show,
    Shown,
    ShowTree,
)
from protocol.messages.ropes import NewBlock, Tree
from protocol.record import object_id

Json = dict[str, Any]


class AssembleRequest(msgspec.Struct, kw_only=True):
    """`tokens`: whether the token stream is wanted in the answer."""

    messages: list[Message]
    model: str | None = None
    tokens: bool | None = None
    huginn: HuginnFields | None = None


class DiffRequest(msgspec.Struct, kw_only=True):
    a: str
    b: str


async def assemble_context(request: web.Request) -> web.Response:
    """Store a conversation as a context, the one that a chat with these messages has."""
    body = await read_body(request, AssembleRequest)
    more = extension(request, body.huginn)
    model = served_model(request, body.model, more.profile)
    made = await assemble(request[CALLER], model, message_blocks(body.messages), more.namespace)
    answer: Json = {
        "context_id": str(made.context),
        "sequence_id": str(made.sequence),
        "tokens_count": stream_tokens(made.segments),
        "blocks": [
            {
                "block_id": str(part.block),
                "role": part.role,
                "type": part.type,
                "tokens": packed_count(part.head) + packed_count(part.content),
            }
            for part in made.segments
        ],
    }
    if body.tokens:
        answer["tokens"] = stream_ids(made.segments)
    return json_response(answer, headers={"Huginn-Context": str(made.context)})


async def show_context(request: web.Request) -> web.Response:
    """The assembly, its sequence and its blocks; `?tokens=1` adds the ids of its token stream."""
    wanted = request.query.get("tokens", "").lower() in ("1", "true")
    with one_answer():
        context = _context(request.match_info["id"])
        shown = await request[CALLER].ask(
            ASSEMBLER, "show", Show(context=context, tokens=wanted), Shown, delegate=("ropes",)
        )
    answer: Json = {
        "context_id": str(context),
        "sequence_id": str(shown.sequence),
        "invocation_id": str(invocation_id(assembling(shown.assembly))),
        "assembly": _assembly(shown.assembly),
        "blocks": [_block(new) for new in shown.blocks],
    }
    if wanted:
        answer["tokens"] = stream_ids(shown.segments or [])
    return json_response(answer)


async def show_tree(request: web.Request) -> web.Response:
    """The rope of a context's sequence: its nodes, depth first, as a tree of ids."""
    with one_answer():
        ask = ShowTree(context=_context(request.match_info["id"]))
        tree = await request[CALLER].ask(ASSEMBLER, "tree", ask, Tree, delegate=("ropes",))
    return json_response(
        {
            "root": str(tree.root),
            "nodes": [
                {
                    "node_id": str(node.node),
                    "level": node.level,
                    "blocks": node.blocks,
                    "content_bytes": node.content_bytes,
                    "children": [
                        str(BlockId(child) if node.level == 0 else NodeId(child))
                        for child in node.children
                    ],
                }
                for node in tree.nodes
            ],
        }
    )


async def diff_contexts(request: web.Request) -> web.Response:
    """Where two contexts part: the block, the reason, and the token."""
    body = await read_body(request, DiffRequest)
    with one_answer():
        ask = DiffContexts(a=_context(body.a), b=_context(body.b))
        found = await request[CALLER].ask(
            ASSEMBLER, "diff", ask, ContextDifference, delegate=("ropes",)
        )
    first: Json | None = None
    if found.index is not None:
        first = {
            "index": found.index,
            "reason": found.reason,
            "token_index": found.token_index,
        }
    return json_response(
        {
            "equal_blocks": found.equal_blocks,
            "first_difference": first,
            "contracts": found.contracts,
        }
    )


def _context(text: str) -> ContextId:
    try:
        return ContextId.parse(text)
    except ContentError as error:
        raise NotVisible("not a context id") from error


def _assembly(assembly: ContextAssembly) -> Json:
    return {
        name: value if isinstance(value := getattr(assembly, name), int) else str(value)
        for name in ContextAssembly.__struct_fields__
    }


def _block(new: NewBlock) -> Json:
    block = new.block
    source: Json = {"object": str(block.source.object)}
    if block.source.semantic is not None:
        source |= {"semantic": block.source.semantic.hex(), "contract": str(block.source.contract)}
    return {
        "block_id": str(object_id(block)),
        "role": block.role.value,
        "type": block.type.value,
        "source": source,
        "representation": block.representation.kind,
        "rendering": block.rendering,
        "trust": block.trust,
        "name": block.name,
        "content": new.content.decode("utf-8", "replace"),
    }
