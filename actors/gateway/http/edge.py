"""The edge: what every request passes, whatever it asks for.

A request gets an id; a preflight is answered before anything else; then the key is looked at, also
for paths that do not exist, so that a stranger learns nothing of what is here. Whatever goes wrong
inside comes out as an error body. One line of log for each request: never content, never a key.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from aiohttp import web

from actors.gateway.http.errors import (
    ApiError,
    of_fault,
    of_http,
    of_huginn,
    too_many,
    unauthorized,
)
from actors.gateway.http.ids import fresh_id
from actors.gateway.http.parse import ignored_header
from actors.gateway.http.state import CALLER, GATEWAY, IGNORED, REQUEST_ID
from protocol.errors import AuthorityError, DiskFull, HuginnError, LimitExceeded

log = logging.getLogger("huginn.access")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

REQUEST_ID_HEADER: Final = "X-Request-Id"
# Served without a key: it says only that the service is there.
PUBLIC: Final = frozenset({"/health"})
# A key in a header is needed for everything, and browsers send none by themselves, so any origin
# may try.
_CORS: Final = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": (
        f"{REQUEST_ID_HEADER}, Huginn-Context, Huginn-Stored, Huginn-Session, Huginn-Turn, "
        "Huginn-Ignored"
    ),
}
_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": "*, Authorization",
    "Access-Control-Max-Age": "86400",
}
_CLIENT_GONE: Final = 499
_NS_PER_MS: Final = 1_000_000


@web.middleware
async def edge(request: web.Request, handler: Handler) -> web.StreamResponse:
    gateway = request.app[GATEWAY]
    started_ns = gateway.ports.clock.steady_ns()
    request[REQUEST_ID] = fresh_id("req-", gateway.ports.entropy)
    status = _CLIENT_GONE
    try:
        response = await _answered(request, handler)
        status = response.status
        return response
    finally:
        _log(request, status, gateway.ports.clock.steady_ns() - started_ns)


async def on_prepare(request: web.Request, response: web.StreamResponse) -> None:
    """Headers of every response, streams too."""
    response.headers[REQUEST_ID_HEADER] = request.get(REQUEST_ID, "")
    ignored = request.get(IGNORED, ())
    if ignored:
        response.headers["Huginn-Ignored"] = ignored_header(ignored)
    if "Origin" in request.headers:
        response.headers.update(_CORS)


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.method == "OPTIONS":
        return web.Response(status=204, headers=_PREFLIGHT)
    try:
        if request.path not in PUBLIC:
            _authenticate(request)
            with _entered(request):
                return await handler(request)
        return await handler(request)
    except ApiError as error:
        return error.response()
    except HuginnError as error:
        # What a room refused is an error of a further class, and on record there.
        if type(error) is AuthorityError:
            _note(request, error)
        if isinstance(error, DiskFull):
            request.app[GATEWAY].ports.space.lacked(f"{request.method} {_pattern(request)}")
        return of_huginn(error).response()
    except web.HTTPException as error:
        return of_http(error).response()
    except ConnectionError:
        # The client went away while its body was read: no answer reaches it.
        raise
    except Exception as error:
        return of_fault(error).response()


def _authenticate(request: web.Request) -> None:
    given = request.headers.get("Authorization")
    try:
        request[CALLER] = request.app[GATEWAY].authenticate(given, request[REQUEST_ID])
    except AuthorityError as error:
        _note(request, error)
        raise unauthorized() from error


def _note(request: web.Request, error: AuthorityError) -> None:
    """Puts on record that the gateway itself refused this request."""
    asked = f"{request.method} {_pattern(request)}".strip()
    request.app[GATEWAY].on_refusal(error.step, asked, request[REQUEST_ID])


def _pattern(request: web.Request) -> str:
    """The path's pattern, not the path: what a client puts into a path may be a secret of its."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical


@contextmanager
def _entered(request: web.Request) -> Iterator[None]:
    """Inside, the request counts as one of its principal's. ApiError 429 for one too many."""
    with ExitStack() as stack:
        try:
            stack.enter_context(request.app[GATEWAY].quotas.entered(request[CALLER].principal))
        except LimitExceeded as error:
            raise too_many(error) from error
        yield


def _log(request: web.Request, status: int, took_ns: int) -> None:
    caller = request.get(CALLER)
    fields = {
        "request_id": request[REQUEST_ID],
        "method": request.method,
        "path": _pattern(request),
        "status": status,
        "ms": round(took_ns / _NS_PER_MS, 1),
        "principal": "" if caller is None else caller.principal,
    }
    log.info("answered %d", status, extra=fields)
