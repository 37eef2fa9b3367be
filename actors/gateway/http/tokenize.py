"""`POST /v1/tokenize` and `/v1/detokenize`: text or a conversation as ids, and ids as text."""

from __future__ import annotations

import msgspec
from aiohttp import web

from actors.gateway.http.answer import json_response
from actors.gateway.http.extension import HuginnFields, extension, served_model
from actors.gateway.http.parse import read_body
from actors.gateway.http.state import CALLER
from actors.gateway.messages import Message, message_blocks
from actors.gateway.turns import assemble, encode_text, stream_ids
from protocol.errors import ContentError
from protocol.tokens import unpack


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """Either `content` or `messages`. `template`: a grammar's name in place of the model's own."""

    model: str | None = None
    content: str | None = None
    messages: list[Message] | None = None
    add_generation_prompt: bool | None = None
    template: str | None = None
    huginn: HuginnFields | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    tokens: list[int]
    model: str | None = None


async def tokenize(request: web.Request) -> web.Response:
    """`content` as content, with control tokens out of its reach; or `messages` as the prompt
    that a chat would read. Nothing is stored: `context_id` is the id that a chat would have."""
    body = await read_body(request, TokenizeRequest)
    more = extension(request, body.huginn)
    model = served_model(request, body.model, more.profile)
    if (body.content is None) == (body.messages is None):
        raise ContentError("send either content or messages", param="content")
    if body.content is not None:
        tokens = list(await encode_text(model.tokenizer, body.content))
        return json_response({"tokens": tokens, "count": len(tokens)})
    made = await assemble(
        request[CALLER],
        model,
        message_blocks(body.messages or []),
        more.namespace,
        template=body.template,
        store=False,
    )
    tokens = stream_ids(made.segments)
    if body.add_generation_prompt is not False:
        tokens.extend(unpack(made.opener))
    return json_response({"tokens": tokens, "count": len(tokens), "context_id": str(made.context)})


async def detokenize(request: web.Request) -> web.Response:
    """The text of ids: control ids are silent, bytes that are not UTF-8 become U+FFFD."""
    body = await read_body(request, DetokenizeRequest)
    model = served_model(request, body.model)
    try:
        content = model.tokenizer.decode(tuple(body.tokens)).decode("utf-8", "replace")
    except ContentError as error:
        raise ContentError(f"tokens: {error.message}", param="tokens") from error
    return json_response({"content": content})
