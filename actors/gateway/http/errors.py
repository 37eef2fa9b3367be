"""Errors as clients get them: `{"error": {message, type, param, code}}`, one table for all.

What the caller can cure is 4xx and says how. SDKs try 409, 429 and 5xx again, so nothing under
`/v1` that will fail again the same way has such a status; 409 is for names under `/huginn/v1`, for
a turn of a session while another is being answered, which trying again cures, and for a key that
came with another input, which says itself that SDKs shall not try it again. What is ours is 5xx and
says nothing of the inside; of a full disk (507) it says how to go on. An id that is unknown,
malformed or somebody else's is one answer, byte for byte.
"""

from __future__ import annotations

import http
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec
from aiohttp import web

from protocol.errors import (
    AuthorityError,
    BudgetExceeded,
    Conflict,
    DiskFull,
    FaultError,
    HuginnError,
    LimitExceeded,
    NotVisible,
    RequestError,
    Unavailable,
    WorkerFault,
)
from protocol.messages.events import KEY_REUSED

log = logging.getLogger("huginn.gateway")

YOURS: Final = "invalid_request_error"
OURS: Final = "server_error"


class ErrorFields(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    error: ErrorFields


class ApiError(Exception):
    """An answer that is an error: its HTTP status and what the body says."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        kind = YOURS if status < http.HTTPStatus.INTERNAL_SERVER_ERROR else OURS
        self.body = ErrorBody(ErrorFields(message=message, type=kind, param=param, code=code))

    def response(self) -> web.Response:
        return web.Response(
            status=self.status,
            body=msgspec.json.encode(self.body),
            content_type="application/json",
            headers=self.headers,
        )


class _Rule(NamedTuple):
    """`message` None: the error's own words, which are for the caller."""

    kind: type[HuginnError]
    status: int
    code: str
    message: str | None = None


class _Refusal(NamedTuple):
    """The rule for one step of verification."""

    step: str
    rule: _Rule


_NOT_FOUND: Final = "There is nothing under that name that this key may see."
_FULL: Final = (
    "The disk that holds Huginn's data directory is full. What is acknowledged here is durable, so "
    "this was refused, and nothing of it was kept: free some space, then ask again. What keeps "
    "nothing is answered meanwhile: a chat without a session, a completion, a response with store "
    "false."
)
# The first rule whose class fits.
_RULES: Final = (
    _Rule(BudgetExceeded, 400, "context_length_exceeded"),
    _Rule(LimitExceeded, 400, "limit_exceeded"),
    _Rule(NotVisible, 404, "not_found", _NOT_FOUND),
    _Rule(Conflict, 409, "conflict"),
    _Rule(AuthorityError, 403, "permission_denied", "This key may not do that."),
    _Rule(RequestError, 400, "invalid_request"),
    _Rule(WorkerFault, 503, "worker_unavailable"),
    _Rule(Unavailable, 503, "unavailable"),
    _Rule(DiskFull, 507, "disk_full", _FULL),
    _Rule(FaultError, 500, "internal_error", "Huginn failed; the request may be right."),
    _Rule(HuginnError, 500, "internal_error", "Huginn failed; the request may be right."),
)
# What a caller is told whose handle fell while it was used: its own affair, and nobody else's.
_REVOKED: Final = _Refusal(
    "revocation",
    _Rule(AuthorityError, 403, "key_revoked", "This key was revoked; nothing more is answered."),
)


def of_huginn(error: HuginnError) -> ApiError:
    """The answer for an error of the tree. Its detail `param` names the parameter at fault, and
    the detail `reason` of a Conflict is its code."""
    rule = next(rule for rule in _RULES if isinstance(error, rule.kind))
    if isinstance(error, AuthorityError) and error.step == _REVOKED.step:
        rule = _REVOKED.rule
    param = error.details.get("param")
    said = error.details.get("reason") if isinstance(error, Conflict) else None
    headers = {"Retry-After": "1"} if rule.status == http.HTTPStatus.SERVICE_UNAVAILABLE else {}
    if said == KEY_REUSED:
        headers["x-should-retry"] = "false"
    if rule.message is not None:
        log.info("answered %d for %s: %s", rule.status, error.code, error.message)
    return ApiError(
        rule.status,
        error.message if rule.message is None else rule.message,
        code=said if isinstance(said, str) else rule.code,
        param=param if isinstance(param, str) else None,
        headers=headers,
    )


def of_http(error: web.HTTPException) -> ApiError:
    """The answer for an error of the framework."""
    status = http.HTTPStatus(error.status)
    code = status.phrase.lower().replace(" ", "_").replace("-", "_")
    headers = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
    messages = {
        404: "There is no such path here.",
        405: f"The method is not allowed here; allowed: {headers.get('Allow', '')}.",
        413: f"The body is too large: {error.text}",
    }
    message = messages.get(error.status, status.phrase)
    return ApiError(error.status, message, code=code, headers=headers)


def of_fault(error: BaseException) -> ApiError:
    """The answer for what nobody expected; logged with its traceback."""
    log.error("a fault in a request", exc_info=error)
    return of_huginn(FaultError(f"{type(error).__name__}"))


def unauthorized() -> ApiError:
    """The one answer for a key that is missing, misspelled or unknown."""
    return ApiError(
        401,
        "An API key is needed: send the header 'Authorization: Bearer <key>'.",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def too_many(error: LimitExceeded) -> ApiError:
    """The answer for a principal that asks too much at a time: SDKs try again by themselves."""
    return ApiError(
        429,
        error.message,
        code="rate_limit_exceeded",
        headers={"Retry-After": str(error.details.get("retry_s", 1))},
    )


def unsupported(param: str, reason: str) -> ApiError:
    """The answer for a parameter that this version does not implement."""
    return ApiError(400, f"{param}: {reason}", code="unsupported_parameter", param=param)


@contextmanager
def one_answer() -> Iterator[None]:
    """Whatever is wrong with an id inside the block: exactly what an unknown id gets."""
    try:
        yield
    except (NotVisible, AuthorityError) as error:
        log.info("answered 404 for %s: %s", error.code, error.message)
        raise NotVisible(_NOT_FOUND) from error
