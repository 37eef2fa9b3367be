"""The extension: what only this service knows, and nothing of it is authority."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from tests.fake_rooms import Service

CHAT = "/v1/chat/completions"
ASK = {"model": "raven", "messages": [{"role": "user", "content": "hi"}]}


async def chat(
    http: ClientSession, *, headers: dict[str, str] | None = None, **huginn: Any
) -> tuple[int, dict[str, Any]]:
    async with http.post(CHAT, json=ASK | {"huginn": huginn}, headers=headers) as response:
        return response.status, await response.json()


@pytest.mark.req("AUT-3")
async def test_a_namespace_lies_inside_the_callers_own(http: ClientSession) -> None:
    for inside in ("operator", "operator/a", "operator/a/b"):
        assert (await chat(http, namespace=inside))[0] == 200
        assert (await chat(http, headers={"Huginn-Namespace": inside}))[0] == 200
    for outside in ("client", "operators", "client/operator"):
        for given in ({"namespace": outside}, {"headers": {"Huginn-Namespace": outside}}):
            status, body = await chat(http, **given)  # type: ignore[arg-type]
            assert status == 403
            assert body["error"]["param"] == "huginn.namespace"
    for nonsense in ("../operator", "Operator", "operator/", "operator//a", "a b"):
        status, body = await chat(http, namespace=nonsense)
        assert status == 400
        assert body["error"]["param"] == "huginn.namespace"


@pytest.mark.req("AUT-5")
async def test_no_request_names_a_domain(http: ClientSession, tenant: ClientSession) -> None:
    """What another domain has warm is not found, whatever a request says."""
    await chat(http)
    for extra in ({"domain": "operator"}, {"cache_salt": "operator"}):
        async with tenant.post(CHAT, json=ASK | {"huginn": extra, "temperature": 0}) as response:
            assert response.status == 200
    status, body = await chat(http, domain="client", receipt=True)
    assert status == 200
    assert body["huginn"]["receipt"]["reused_tokens"] == body["usage"]["prompt_tokens"] - 1


async def test_a_profile_selects_the_model_or_is_refused(http: ClientSession) -> None:
    assert (await chat(http, profile="raven-exact"))[0] == 200
    assert (await chat(http, headers={"Huginn-Profile": "raven-exact"}))[0] == 200
    status, body = await chat(http, profile="raven-fast")
    assert status == 400
    assert body["error"]["param"] == "huginn.profile"


async def test_a_receipt_by_header(http: ClientSession, tenant: ClientSession) -> None:
    for client, shown in ((http, True), (tenant, False)):
        _, body = await chat(client, headers={"Huginn-Receipt": "1"})
        assert ("huginn" in body) == shown
        _, body = await chat(client, headers={"Huginn-Receipt": "0"})
        assert "huginn" not in body


async def test_what_is_not_here_yet_is_refused_by_header_too(
    http: ClientSession, service: Service
) -> None:
    status, body = await chat(http, headers={"Huginn-Compile": "x"})
    assert status == 400
    assert body["error"]["param"] == "huginn.compile"
    assert service.worker.asked == []
