"""A JSON answer, encoded as every other is."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web


def json_response(
    body: Any, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """`body` as JSON with that status."""
    return web.Response(
        status=status,
        body=msgspec.json.encode(body),
        content_type="application/json",
        headers=headers,
    )
