"""The application: every path, and the server that runs it.

Clients get JSON for every error, also for those that the framework finds before any handler runs (a
request line that is no HTTP, a wrong Expect): the server class below sees to these.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from aiohttp import web

from actors.gateway.http import (
    api_keys,
    audit,
    capabilities,
    derivations,
    health,
    kept_responses,
    ledgers,
    models,
    native_contexts,
    native_erasures,
    native_events,
    native_publications,
    native_sessions,
    native_sources,
    openai_chat,
    openai_completions,
    openai_responses,
    receipts,
    tokenize,
)
from actors.gateway.http.edge import REQUEST_ID_HEADER, edge, on_prepare
from actors.gateway.http.errors import ApiError, of_fault, of_http
from actors.gateway.http.ids import fresh_id
from actors.gateway.http.state import ENDLESS, GATEWAY
from actors.gateway.room import Gateway
from actors.ports import Entropy

log = logging.getLogger("huginn.gateway")

_BAD_REQUEST: Final = 400


def make_app(gateway: Gateway) -> web.Application:
    """The application over `gateway`, which is drained when the application is cleaned up."""
    app = web.Application(middlewares=[edge], client_max_size=gateway.limits.body_bytes_max)
    app[GATEWAY] = gateway
    app.on_response_prepare.append(on_prepare)
    app[ENDLESS] = set()
    app.on_shutdown.append(_end_the_endless)
    app.on_cleanup.append(_drain)
    app.add_routes([*_openai(), *_native()])
    return app


def _openai() -> list[web.RouteDef]:
    """What other services have too, and whether this one is there."""
    return [
        web.get("/health", health.health),
        web.get("/v1/models", models.list_models),
        web.get("/v1/models/{name:.+}", models.show_model),
        web.post("/v1/chat/completions", openai_chat.chat_completions),
        web.post("/v1/completions", openai_completions.completions),
        web.post("/v1/responses", openai_responses.create_response),
        web.get("/v1/responses/{id}", kept_responses.show_response),
        web.delete("/v1/responses/{id}", kept_responses.delete_response),
        web.get("/v1/responses/{id}/input_items", kept_responses.list_input),
        web.post("/v1/responses/{id}/cancel", kept_responses.cancel_response),
        web.post("/v1/tokenize", tokenize.tokenize),
        web.post("/v1/detokenize", tokenize.detokenize),
    ]


def _native() -> list[web.RouteDef]:
    """What only this service has."""
    return [
        web.post("/huginn/v1/contexts", native_contexts.assemble_context),
        web.post("/huginn/v1/contexts/diff", native_contexts.diff_contexts),
        web.get("/huginn/v1/contexts/{id}", native_contexts.show_context),
        web.get("/huginn/v1/contexts/{id}/tree", native_contexts.show_tree),
        web.post("/huginn/v1/sessions", native_sessions.create_session),
        web.get("/huginn/v1/sessions", native_sessions.list_sessions),
        web.get("/huginn/v1/sessions/{id}", native_sessions.show_session),
        web.delete("/huginn/v1/sessions/{id}", native_sessions.delete_session),
        web.get("/huginn/v1/sessions/{id}/marks", native_sessions.show_marks),
        web.get("/huginn/v1/sessions/{id}/prompt-context", native_sessions.show_prompt_context),
        web.post("/huginn/v1/sources", native_sources.add_source),
        web.get("/huginn/v1/sources", native_sources.list_sources),
        web.delete("/huginn/v1/sources/{name}", native_sources.remove_source),
        web.post("/huginn/v1/sources/{name}/events", native_events.append_events),
        web.get("/huginn/v1/sources/{name}/events", native_events.read_events),
        web.get("/huginn/v1/events", native_events.merged_events),
        web.post("/huginn/v1/kinds", native_sources.register_kind),
        web.get("/huginn/v1/kinds", native_sources.list_kinds),
        web.get("/huginn/v1/receipts/{id}", receipts.show_receipt),
        web.post("/huginn/v1/derivations/sample", derivations.draw_sample),
        web.post("/huginn/v1/derivations/checks", derivations.take_checks),
        web.get("/huginn/v1/derivations/{id}", derivations.show_derivation),
        web.post("/huginn/v1/publications", native_publications.publish),
        web.get("/huginn/v1/publications", native_publications.list_publications),
        web.delete("/huginn/v1/publications/{block}", native_publications.withdraw),
        web.post("/huginn/v1/erasures", native_erasures.erase),
        web.get("/huginn/v1/erasures", native_erasures.list_erasures),
        web.get("/huginn/v1/erasures/{id}", native_erasures.show_erasure),
        web.get("/huginn/v1/retention", native_erasures.list_retention),
        web.put("/huginn/v1/retention/{domain}", native_erasures.set_retention),
        web.post("/huginn/v1/keys", api_keys.create_key),
        web.get("/huginn/v1/keys", api_keys.list_keys),
        web.delete("/huginn/v1/keys/{principal}", api_keys.revoke_key),
        web.post("/huginn/v1/capabilities", capabilities.give_out),
        web.get("/huginn/v1/capabilities", capabilities.list_handles),
        web.get("/huginn/v1/capabilities/own", capabilities.show_own),
        web.post("/huginn/v1/capabilities/revocations", capabilities.take_back_whole),
        web.delete("/huginn/v1/capabilities/{id}", capabilities.take_back),
        web.get("/huginn/v1/audit", audit.read_audit),
        web.get("/huginn/v1/ledgers/logical", ledgers.show_logical),
        web.get("/huginn/v1/ledgers/physical", ledgers.show_physical),
        web.get("/huginn/v1/status", health.status),
    ]


async def serve(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Serve `app`; the runner (`await runner.cleanup()` stops it) and the port that is listened
    on, which is the system's choice for port 0. Raises OSError if it cannot be bound."""
    # A client that goes away cancels its handler: that is what stops its answer.
    runner = JsonRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=5.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner, int(runner.addresses[0][1])


class JsonRunner(web.AppRunner):
    """A runner whose connections answer in JSON whatever happens."""

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _JsonServer(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            entropy=self.app[GATEWAY].ports.entropy,
            **made._kwargs,
        )


class _JsonServer(web.Server):
    def __init__(self, handler: Any, *, entropy: Entropy, **options: Any) -> None:
        super().__init__(handler, **options)
        self.entropy = entropy

    def __call__(self) -> web.RequestHandler:
        return _JsonConnection(self, loop=self._loop, **self._kwargs)


class _JsonConnection(web.RequestHandler):
    """One connection. What the framework would answer in text or HTML becomes an error body."""

    __slots__ = ("_entropy",)

    def __init__(self, manager: _JsonServer, **options: Any) -> None:
        super().__init__(manager, **options)
        self._entropy = manager.entropy

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was begun: there is no other to give")
        if status == _BAD_REQUEST:
            # Not the error's own text: it quotes the bytes that could not be read.
            log.info("answered 400 for a request that is not HTTP: %s", type(exc).__name__)
            error = ApiError(status, "The request is not HTTP.", code="bad_request")
        else:
            error = of_fault(exc or RuntimeError(message))
        response = self._as_json(error)
        response.force_close()
        return response

    async def finish_response(
        self,
        request: web.BaseRequest,
        resp: web.StreamResponse,
        start_time: float | None,
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException):
            resp = self._as_json(of_http(resp))
        return await super().finish_response(request, resp, start_time)

    def _as_json(self, error: ApiError) -> web.Response:
        response = error.response()
        response.headers[REQUEST_ID_HEADER] = fresh_id("req-", self._entropy)
        return response


async def _end_the_endless(app: web.Application) -> None:
    for task in app[ENDLESS]:
        task.cancel()


async def _drain(app: web.Application) -> None:
    await app[GATEWAY].drain()
