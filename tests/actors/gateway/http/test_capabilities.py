"""Handles over HTTP: given out, shown in place of a key, listed, taken back; never wider."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from protocol.capability import attenuate, decode_link
from protocol.handle_text import decode_handle, encode_handle
from protocol.resource import Right
from protocol.signing import Signer, principal_seed
from tests.fake_rooms import Service
from tests.worker_rooms import until

PATH = "/huginn/v1/capabilities"
CONTEXT = {"model": "raven", "messages": [{"role": "user", "content": "hi"}]}
CHAT = {**CONTEXT, "temperature": 0}


async def call(
    http: ClientSession,
    method: str,
    path: str,
    body: Any = None,
    *,
    status: int = 200,
    key: str | None = None,
) -> dict[str, Any]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with http.request(method, path, json=body, headers=headers) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == status, answer
        return answer


async def given(http: ClientSession, **fields: Any) -> dict[str, Any]:
    return await call(http, "POST", PATH, {"lifetime_s": 600, **fields})


@pytest.mark.req("AUT-1")
async def test_a_handle_is_a_key_that_does_less(
    tenant: ClientSession, stranger: ClientSession
) -> None:
    whole = await given(tenant)
    reading = await given(tenant, rights=["read", "assemble"])
    assert reading["rights"] == ["assemble", "read"]
    for made in (whole, reading):
        assert made["handle"].startswith("hgh-")
        assert made["id"] == str(decode_link(decode_handle(made["handle"])[-1]).id)
    answer = await call(stranger, "POST", "/v1/chat/completions", CHAT, key=whole["handle"])
    assert answer["choices"][0]["message"]["content"]
    refused = await call(
        stranger, "POST", "/v1/chat/completions", CHAT, key=reading["handle"], status=403
    )
    assert refused["error"]["code"] == "permission_denied"
    rows = (await call(tenant, "GET", PATH))["data"]
    assert [row["id"] for row in rows] == [whole["id"], reading["id"]]
    assert not any(row["revoked"] or "handle" in row for row in rows)


@pytest.mark.req("AUT-4")
async def test_a_handle_taken_back_does_nothing_from_then_on(
    tenant: ClientSession, stranger: ClientSession, http: ClientSession
) -> None:
    made, other = await given(tenant), await given(tenant)
    below = await call(
        stranger, "POST", PATH, {"lifetime_s": 60, "rights": ["read"]}, key=made["handle"]
    )
    assert below["links"] == made["links"] + 1
    own = f"{PATH}/own"
    for handle in (made, other, below):
        await call(stranger, "GET", own, key=handle["handle"])
    # Nobody but the giver: not the operator, not the holder of another handle, not its own holder.
    await call(http, "DELETE", f"{PATH}/{made['id']}", status=404)
    for key in (other["handle"], below["handle"], made["handle"]):
        await call(stranger, "DELETE", f"{PATH}/{made['id']}", key=key, status=404)
    done = await call(tenant, "DELETE", f"{PATH}/{made['id']}")
    assert done == {"id": made["id"], "revoked": True, "rooms_waiting": []}
    context = "/huginn/v1/contexts"
    await call(stranger, "POST", context, CONTEXT, key=made["handle"], status=403)
    await call(stranger, "POST", context, CONTEXT, key=below["handle"], status=403)
    await call(stranger, "POST", context, CONTEXT, key=other["handle"])
    rows = (await call(tenant, "GET", PATH))["data"]
    assert [row["revoked"] for row in rows] == [True, False, True]


@pytest.mark.req("AUT-1", "AUT-4")
async def test_a_handle_made_offline_is_as_good_and_is_taken_back_whole(
    tenant: ClientSession, stranger: ClientSession, service: Service
) -> None:
    own = await call(tenant, "GET", f"{PATH}/own")
    signer = Signer(principal_seed(service.client_key))
    chain = attenuate(
        decode_handle(own["handle"]),
        signer,
        audience=bytes.fromhex(own["gateway_key"]),
        nonce=b"n" * 16,
        rights=[Right.ASSEMBLE, Right.READ, Right.WRITE],
    )
    handle = encode_handle(chain)
    await call(stranger, "POST", "/huginn/v1/contexts", CONTEXT, key=handle)
    assert (await call(tenant, "GET", PATH))["data"] == []
    await call(tenant, "POST", f"{PATH}/revocations", {"handle": handle})
    await call(stranger, "POST", "/huginn/v1/contexts", CONTEXT, key=handle, status=403)
    # A handle for another key opens nothing here, whoever shows it; nor does the giver's own.
    for text in (own["handle"], encode_handle(chain[:1]), "hgh-", "hgh-AAAA", handle[:-4]):
        await call(stranger, "GET", "/v1/models", key=text, status=401)


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"rights": ["telemetry"]}, 403),
        ({"rights": ["grant"]}, 403),
        ({"namespace": "operator"}, 403),
        ({"namespace": "clientele"}, 403),
        ({"rights": ["rule"]}, 400),
        ({"rights": []}, 400),
        ({"lifetime_s": 0}, 400),
        ({"lifetime_s": 366 * 86400 + 1}, 400),
        ({"audience": "xx"}, 400),
        ({"audience": "00"}, 400),
        ({"audience": "01" + "00" * 31}, 400),
        ({"services": []}, 400),
    ],
)
async def test_nothing_wider_and_nothing_unsound(
    tenant: ClientSession, fields: dict[str, Any], status: int
) -> None:
    await call(tenant, "POST", PATH, {"lifetime_s": 60, **fields}, status=status)
    assert (await call(tenant, "GET", PATH))["data"] == []


@pytest.mark.req("AUT-3")
async def test_a_handle_on_a_part_works_there_alone(
    tenant: ClientSession, stranger: ClientSession
) -> None:
    part = await given(tenant, namespace="client/part", profiles=["raven-exact"])
    assert part["resource"] == "namespace client/part"
    inside = await call(stranger, "POST", "/huginn/v1/contexts", CONTEXT, key=part["handle"])
    outside = await call(
        tenant,
        "POST",
        "/huginn/v1/contexts",
        {"model": "raven", "messages": [{"role": "user", "content": "outside"}]},
    )
    shown = f"/huginn/v1/contexts/{outside['context_id']}"
    await call(stranger, "GET", shown, key=part["handle"], status=404)
    await call(stranger, "GET", f"/huginn/v1/contexts/{inside['context_id']}", key=part["handle"])


@pytest.mark.req("AUT-3")
async def test_a_handle_that_may_not_read_answers_and_goes_on_with_nothing(
    tenant: ClientSession, stranger: ClientSession, service: Service
) -> None:
    made = await given(tenant, rights=["advance", "assemble", "generate", "write"])
    path = "/v1/responses"
    body = {"model": "raven", "input": "hi", "instructions": "Be brief.", "temperature": 0}
    first = await call(stranger, "POST", path, body, key=made["handle"])
    assert first["status"] == "completed"
    on = {**body, "previous_response_id": first["id"]}
    refused = await call(stranger, "POST", path, on, key=made["handle"], status=400)
    assert refused["error"]["code"] == "previous_response_not_found"
    # It was kept, and whoever may read goes on with it.
    second = await call(tenant, "POST", path, on)
    assert len(service.worker.asked[-1].segments) == 4
    # What the caller was not told the worker was not asked to prepare for.
    settled = service.worker.settled
    await until(lambda: bool(settled))
    assert [asked.response for asked in settled] == [second["id"]]


async def test_a_handle_never_administers(http: ClientSession, stranger: ClientSession) -> None:
    made = await given(http)
    for path in ("/huginn/v1/keys", "/huginn/v1/audit"):
        await call(stranger, "GET", path, key=made["handle"], status=403)


async def test_a_revoked_principals_handles_open_nothing(
    http: ClientSession, service: Service
) -> None:
    made = await call(http, "POST", "/huginn/v1/keys", {"principal": "carol"})
    async with aiohttp.ClientSession(service.base_url) as nobody:
        handle = (await call(nobody, "POST", PATH, {"lifetime_s": 60}, key=made["key"]))["handle"]
        await call(nobody, "GET", "/v1/models", key=handle)
        await call(http, "DELETE", "/huginn/v1/keys/carol")
        await call(nobody, "GET", "/v1/models", key=handle, status=401)
