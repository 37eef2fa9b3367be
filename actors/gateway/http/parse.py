"""Request bodies: JSON into structs, strictly, with messages that name the parameter.

Null is absent. Fields that a struct does not know are ignored and listed in the response header
`Huginn-Ignored`, so that a client can find out that a wish of its own was not read.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import web

from actors.gateway.http.errors import ApiError
from actors.gateway.http.state import GATEWAY, IGNORED

S = TypeVar("S", bound=msgspec.Struct)

# A header line has its limits: so many names, each so long.
_IGNORED_MAX: Final = 32
_IGNORED_CHARS_MAX: Final = 64
_BEGIN_VALUES: Final = (b",", b"[", b"{")
_AT: Final = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING: Final = re.compile(r"^Object missing required field `([^`]*)`")


async def read_json(request: web.Request) -> Any:
    """The body of `request` as the JSON that it is.

    Raises ApiError 400 for a body that is not JSON, or of too many values, and
    HTTPRequestEntityTooLarge over the limit, before reading where the length is announced.
    """
    limits = request.app[GATEWAY].limits
    limit = limits.body_bytes_max
    announced = request.content_length
    if announced is not None and announced > limit:
        raise web.HTTPRequestEntityTooLarge(max_size=limit, actual_size=announced)
    try:
        body = await request.read()
    except web.RequestPayloadError as error:
        raise ApiError(
            400, "The body is not in the encoding that its headers name.", code="bad_request"
        ) from error
    return _json(body, limits.body_values_max)


async def read_body(request: web.Request, kind: type[S]) -> S:
    """The body of `request` as a `kind`.

    Raises as `read_json` does, and ApiError 400 for a body that is not that struct: the message
    and `param` name the field by its path.
    """
    document = await read_json(request)
    if not isinstance(document, dict):
        raise ApiError(400, "The body is a JSON object.", code="invalid_json")
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    request[IGNORED] = tuple(name for name in document if name not in known)
    return converted(document, kind)


def converted(document: Any, kind: type[S]) -> S:
    """JSON that was read, as a `kind`; ApiError 400 as `read_body` raises it."""
    try:
        return msgspec.convert(document, kind, strict=True)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error


def query_integer(request: web.Request, name: str, default: int, least: int, most: int) -> int:
    """The query's parameter `name`; ApiError 400 unless it is `least` to `most`."""
    given = request.query.get(name)
    if given is None or given == "":
        return default
    if not given.isascii() or not given.isdigit() or not least <= int(given[:20]) <= most:
        raise ApiError(
            400, f"{name} is an integer from {least} to {most}.", code="invalid_value", param=name
        )
    return int(given)


def ignored_header(names: tuple[str, ...]) -> str:
    """The value of `Huginn-Ignored`: names as they stand, percent-encoded where a header or a
    list needs it."""
    shown = [quote(name[:_IGNORED_CHARS_MAX], safe="") for name in names[:_IGNORED_MAX]]
    return ", ".join(shown)


def _json(body: bytes, values_max: int) -> Any:
    # Counted in texts too, where they are no values: no prompt that a model can read has so many.
    if sum(map(body.count, _BEGIN_VALUES)) > values_max:
        raise ApiError(
            400,
            f"The body holds more than {values_max} values (commas and brackets are counted).",
            code="limit_exceeded",
        )
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"The body is not JSON: {error}.", code="invalid_json") from error
    except RecursionError as error:
        raise ApiError(400, "The body is nested too deep.", code="invalid_json") from error


def _invalid(message: str) -> ApiError:
    at = _AT.search(message)
    path = at[1] if at else ""
    # Keys that are data (token ids, say) are shown as `[...]`: the field is what is named.
    path = path.replace("[...]", "")
    missing = _MISSING.match(message)
    if missing:
        path = f"{path}.{missing[1]}" if path else missing[1]
        return ApiError(400, f"{path}: this field is needed.", code="missing_parameter", param=path)
    what = message[: at.start()] if at else message
    return ApiError(400, f"{path or 'body'}: {what}.", code="invalid_type", param=path or None)
