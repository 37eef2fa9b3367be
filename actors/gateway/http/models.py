"""`GET /v1/models` and `/v1/models/{name}`: what this key may have answers from."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from actors.gateway.http.answer import json_response
from actors.gateway.http.extension import model_not_found
from actors.gateway.http.state import CALLER, GATEWAY
from actors.gateway.models import ServedModel


async def list_models(request: web.Request) -> web.Response:
    """Every model that is served under a profile with which the caller may generate."""
    caller = request[CALLER]
    models = [model for model in request.app[GATEWAY].models if caller.may_generate(model.profile)]
    return json_response({"object": "list", "data": [_model(model) for model in models]})


async def show_model(request: web.Request) -> web.Response:
    """One model by name."""
    name = request.match_info["name"]
    model = request.app[GATEWAY].models.find(name)
    if model is None or not request[CALLER].may_generate(model.profile):
        raise model_not_found(name)
    return json_response(_model(model))


def _model(model: ServedModel) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "huginn",
        # The name that several clients look for.
        "max_model_len": model.info.context_tokens,
        "huginn": {
            "profile": model.profile,
            "profile_id": str(model.info.profile),
            "instruct": model.info.instruct,
            "grammar": model.info.grammar,
        },
    }
