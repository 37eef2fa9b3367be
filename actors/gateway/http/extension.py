"""What only this service knows: the body field `huginn`, or headers of the same names.

None of it is authority: a namespace has to lie inside the caller's own, a receipt is shown to
those whose key may see it, and the domain is never asked for at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web

from actors.gateway.http.errors import ApiError, unsupported
from actors.gateway.http.state import CALLER, GATEWAY
from actors.gateway.models import ServedModel
from actors.gateway.turns import Prompt
from protocol.errors import RecordError
from protocol.resource import check_path, path_covers

_TRUE: Final = frozenset({"1", "true", "yes"})


SESSION_HEADER: Final = "Huginn-Session"
TURN_HEADER: Final = "Huginn-Turn"
CONTEXT_HEADER: Final = "Huginn-Context"
STORED_HEADER: Final = "Huginn-Stored"
# What an answer says whose context found no room on the disk.
UNSTORED: Final[dict[str, Any]] = {"stored": False, "reason": "disk_full"}
_NS_PER_S: Final = 10**9


class HuginnFields(msgspec.Struct, kw_only=True):
    """The body field `huginn`; null is absent."""

    namespace: str | None = None
    profile: str | None = None
    receipt: bool | None = None
    session: str | None = None
    compile: Any = None


@dataclass(frozen=True, slots=True)
class Extension:
    """Where a request works, what it goes on with, and what it wants besides its answer."""

    namespace: str
    profile: str | None
    receipt: bool
    session: str | None = None


def extension(
    request: web.Request, fields: HuginnFields | None, *, sessions: bool = False
) -> Extension:
    """The extension of a request: its body's fields, else its headers, else the caller's own.

    `sessions`: whether what is asked for can be a turn of a session. Raises ApiError 400 for a
    session where it cannot, and for what this version does not implement or cannot read, 403 for
    a namespace outside the caller's.
    """
    fields = fields or HuginnFields()
    headers = request.headers
    session = fields.session or headers.get(SESSION_HEADER) or None
    if session is not None and not sessions:
        raise unsupported("huginn.session", "only a chat or a response is a turn of a session")
    if fields.compile is not None or "Huginn-Compile" in headers:
        raise unsupported("huginn.compile", "not implemented in this version")
    own = request[CALLER].namespace
    namespace = fields.namespace or headers.get("Huginn-Namespace") or own
    try:
        check_path(namespace)
    except RecordError as error:
        raise ApiError(
            400, error.message, code="invalid_value", param="huginn.namespace"
        ) from error
    if not path_covers(own, namespace):
        raise ApiError(
            403,
            f"huginn.namespace lies outside the namespace of this key, {own}.",
            code="permission_denied",
            param="huginn.namespace",
        )
    receipt = fields.receipt
    if receipt is None:
        receipt = headers.get("Huginn-Receipt", "").lower() in _TRUE
    profile = fields.profile or headers.get("Huginn-Profile")
    return Extension(namespace, profile, receipt, session)


def served_model(request: web.Request, name: str | None, profile: str | None = None) -> ServedModel:
    """The model that a request names; None takes the first.

    Raises ApiError 404 for a model that is not served, 400 for one that is not served under that
    profile.
    """
    gateway = request.app[GATEWAY]
    model = gateway.models.find(name, profile)
    if model is None:
        if profile is not None and gateway.models.find(name) is not None:
            raise ApiError(
                400,
                f"The model {name!r:.80} is not served under the profile {profile!r:.80}.",
                code="profile_not_found",
                param="huginn.profile",
            )
        raise model_not_found(name)
    return model


def model_not_found(name: str | None) -> ApiError:
    """The answer for a model that is not served, or not to this caller."""
    return ApiError(
        404,
        f"The model {name!r:.80} is not served here; see /v1/models.",
        code="model_not_found",
        param="model",
    )


def context_headers(prompt: Prompt) -> dict[str, str]:
    """The header that names the context, or the one that says that it is not stored."""
    if prompt.unstored:
        return {STORED_HEADER: "false"}
    return {} if prompt.context is None else {CONTEXT_HEADER: str(prompt.context)}


async def answering_model(request: web.Request, name: str, profile: str | None) -> ServedModel:
    """As `served_model`, for a request that needs an answer. Waits for a worker that is being
    started; WorkerFault if that takes longer than the gateway's limits allow."""
    model = served_model(request, name, profile)
    gateway = request.app[GATEWAY]
    await gateway.ports.readiness.wait(gateway.limits.worker_wait_ns / _NS_PER_S)
    return model
