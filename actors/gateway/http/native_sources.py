"""`/huginn/v1/sources` and `/huginn/v1/kinds`: where events come from, and what they may say."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec
from aiohttp import web

from actors.gateway.event_feed import EVENTS, label, sources_in
from actors.gateway.http.answer import json_response
from actors.gateway.http.extension import HuginnFields, extension
from actors.gateway.http.parse import read_body
from actors.gateway.http.state import CALLER
from protocol.errors import ContentError
from protocol.events import custom_namespace
from protocol.messages import Empty
from protocol.messages.events import (
    AddSource,
    KindRow,
    Kinds,
    ListSources,
    RegisterKind,
    RemoveSource,
    SourceRow,
)

Json = dict[str, Any]


class SourceRequest(msgspec.Struct, kw_only=True):
    """With `url` the source is followed from another installation: `url` is its resource there,
    `public_key` (base64) the key of its entries, `api_key_file` the file in `remote-keys/`."""

    name: str
    url: str | None = None
    public_key: str | None = None
    api_key_file: str | None = None
    huginn: HuginnFields | None = None


class KindRequest(msgspec.Struct, kw_only=True):
    """`kind`: `namespace.Name`, or a name in the request's namespace."""

    kind: str
    schema: dict[str, Any]
    huginn: HuginnFields | None = None


async def add_source(request: web.Request) -> web.Response:
    """Make a source, or give it again."""
    body = await read_body(request, SourceRequest)
    namespace = extension(request, body.huginn).namespace
    ask = AddSource(
        namespace=namespace,
        name=body.name,
        url=body.url,
        public_key=None if body.public_key is None else _key(body.public_key),
        api_key_file=body.api_key_file,
    )
    row = await request[CALLER].ask(EVENTS, "add_source", ask, SourceRow)
    return json_response(_source(row, namespace))


async def list_sources(request: web.Request) -> web.Response:
    """The sources at and below the namespace that the caller may observe."""
    namespace = extension(request, None).namespace
    rows = await sources_in(request[CALLER], namespace)
    return json_response({"object": "list", "data": [_source(row, namespace) for row in rows]})


async def remove_source(request: web.Request) -> web.Response:
    """Forget a source and its log."""
    name = request.match_info["name"]
    path, _, last = name.rpartition("/")
    namespace = extension(request, None).namespace
    ask = RemoveSource(namespace=f"{namespace}/{path}" if path else namespace, name=last)
    await request[CALLER].ask(EVENTS, "remove_source", ask, Empty)
    return json_response({"name": name, "removed": True})


async def register_kind(request: web.Request) -> web.Response:
    """Register a kind of event with the JSON Schema of its body."""
    body = await read_body(request, KindRequest)
    namespace = extension(request, body.huginn).namespace
    kind = body.kind if "." in body.kind else f"{namespace}.{body.kind}"
    ask = RegisterKind(
        namespace=custom_namespace(kind) or namespace,
        kind=kind,
        # In one order, so that the same schema is the same bytes.
        schema=msgspec.json.encode(body.schema, order="sorted"),
    )
    row = await request[CALLER].ask(EVENTS, "register_kind", ask, KindRow)
    return json_response(_kind(row))


async def list_kinds(request: web.Request) -> web.Response:
    """The kinds registered at and below the namespace."""
    ask = ListSources(namespace=extension(request, None).namespace)
    found = await request[CALLER].ask(EVENTS, "kinds", ask, Kinds)
    return json_response({"object": "list", "data": [_kind(row) for row in found.kinds]})


def _source(row: SourceRow, namespace: str) -> Json:
    return {
        "name": label(row, namespace),
        "namespace": row.namespace,
        "id": str(row.id),
        "public_key": base64.b64encode(row.public_key).decode("ascii"),
        "first": row.first,
        "head": row.head,
        "state": row.state,
        "reason": row.reason,
        "equivocations": row.equivocations,
        "parked": row.parked,
        "url": row.url,
    }


def _kind(row: KindRow) -> Json:
    return {"kind": row.kind, "schema": msgspec.json.decode(row.schema)}


def _key(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ContentError("public_key is base64 of 32 bytes", param="public_key") from error
