"""Keys over HTTP: made once, listed without secrets, gone when revoked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientSession

from actors.room import Room
from protocol.envelope import decode_envelope, seal_error
from protocol.errors import Unavailable
from tests.fake_rooms import Service
from tests.worker_rooms import until

PATH = "/huginn/v1/keys"
CHAT = "/v1/chat/completions"
ASK = {"model": "raven", "messages": [{"role": "user", "content": "hi"}]}


async def created(http: ClientSession, **fields: Any) -> dict[str, Any]:
    async with http.post(PATH, json=fields) as response:
        assert response.status == 200
        made: dict[str, Any] = await response.json()
        return made


def client(service: Service, key: str) -> ClientSession:
    return ClientSession(service.base_url, headers={"Authorization": f"Bearer {key}"})


@pytest.mark.req("AUT-4")
async def test_a_key_works_from_its_making_to_its_revocation(
    http: ClientSession, service: Service
) -> None:
    made = await created(http, principal="ada")
    assert made["key"].startswith("hg-")
    assert made["principal"] == "ada"
    assert "telemetry" not in made["rights"]
    async with client(service, made["key"]) as ada:
        async with ada.post(CHAT, json=ASK) as response:
            assert response.status == 200
        async with http.delete(f"{PATH}/ada") as response:
            assert response.status == 200
            assert (await response.json())["keys_removed"] == 1
        async with ada.post(CHAT, json=ASK) as response:
            assert response.status == 401
    # The name is free again, for another key.
    again = await created(http, principal="ada")
    assert again["key"] != made["key"]
    async with client(service, again["key"]) as ada, ada.post(CHAT, json=ASK) as response:
        assert response.status == 200


@dataclass
class Deaf:
    """The worker, which runs and takes no revocations."""

    room: Room

    async def receive(self, message: bytes) -> bytes:
        if decode_envelope(message).op == "revocations":
            return seal_error(Unavailable("too many messages: try later"))
        return await self.room.receive(message)


@pytest.mark.req("AUT-4")
async def test_the_answer_says_which_room_does_not_know_of_it_yet(
    http: ClientSession, service: Service
) -> None:
    await created(http, principal="eve")
    worker = service.mailbox.rooms["worker"]
    service.mailbox.rooms["worker"] = Deaf(worker)  # type: ignore[assignment]
    async with http.delete(f"{PATH}/eve") as response:
        assert response.status == 200
        assert await response.json() == {
            "principal": "eve",
            "keys_removed": 1,
            "rooms_waiting": ["worker"],
        }
    service.mailbox.rooms["worker"] = worker
    epoch = service.mailbox.rooms["authority"].epoch
    await until(lambda: worker.epoch == epoch, pause_s=0.005)


@pytest.mark.req("AUT-4")
async def test_the_rooms_refuse_a_revoked_chain_whatever_the_gateway_kept(
    http: ClientSession, service: Service
) -> None:
    """The row may outlive the revocation (a crash in between): it is worth nothing."""
    made = await created(http, principal="ada")
    holder = service.gateway.keys.find(made["key"])
    assert holder is not None
    # Handles made before the revocation are kept, and verified in the rooms: they fall with it.
    async with client(service, made["key"]) as ada, ada.post(CHAT, json=ASK) as response:
        assert response.status == 200
        context = response.headers["Huginn-Context"]
    async with http.delete(f"{PATH}/ada") as response:
        assert response.status == 200
    service.gateway.keys.add(made["key"], holder.row)
    async with client(service, made["key"]) as ada:
        async with ada.post(CHAT, json=ASK) as response:
            assert response.status == 403
            assert "Huginn-Context" not in response.headers
        async with ada.get(f"/huginn/v1/contexts/{context}") as response:
            assert response.status == 404


@pytest.mark.req("SRV-2")
async def test_the_list_shows_principals_and_no_key(http: ClientSession) -> None:
    made = await created(http, principal="ada", rights=["read"])
    async with http.get(PATH) as response:
        text = await response.text()
        listed = await response.json()
    assert made["key"] not in text
    ada = next(row for row in listed["data"] if row["principal"] == "ada")
    assert ada == {
        "principal": "ada",
        "namespace": made["namespace"],
        "domain": made["domain"],
        "rights": ["read"],
        "revoked": False,
    }


@pytest.mark.req("AUT-5")
async def test_each_principal_has_a_namespace_and_domain_of_its_own(http: ClientSession) -> None:
    made = [await created(http, principal=name) for name in ("ada", "bob")]
    assert len({row["namespace"] for row in made}) == 2
    assert len({row["domain"] for row in made}) == 2


async def test_only_those_who_administer_come_in(tenant: ClientSession) -> None:
    for method, path, body in [
        ("GET", PATH, None),
        ("POST", PATH, {"principal": "eve"}),
        ("DELETE", f"{PATH}/operator", None),
        ("GET", "/huginn/v1/status", None),
    ]:
        async with tenant.request(method, path, json=body) as response:
            assert response.status == 403
            assert (await response.json())["error"]["code"] == "permission_denied"


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({}, 400, "principal"),
        ({"principal": "Ada"}, 400, "principal"),
        ({"principal": "../x"}, 400, "principal"),
        ({"principal": "x" * 64}, 400, "principal"),
        ({"principal": "ada", "rights": ["fly"]}, 400, None),
        ({"principal": "ada", "rights": ["grant"]}, 400, None),
        ({"principal": "ada", "rights": []}, 400, None),
        ({"principal": "ada", "namespace": "../x"}, 400, None),
        ({"principal": "ada", "domain": "a b"}, 400, None),
        ({"principal": "ada", "lifetime_s": 0}, 400, "lifetime_s"),
        ({"principal": "ada", "lifetime_s": 10**12}, 400, "lifetime_s"),
        ({"principal": "operator"}, 409, None),
    ],
)
async def test_what_cannot_be_made_is_refused(
    http: ClientSession, fields: dict[str, Any], status: int, param: str | None
) -> None:
    async with http.post(PATH, json=fields) as response:
        assert response.status == status
        assert (await response.json())["error"]["param"] == param


async def test_revoking_nobody_is_a_404(http: ClientSession) -> None:
    async with http.delete(f"{PATH}/nobody") as response:
        assert response.status == 404
