"""What is known of a derivation, for who may know it; samples and checks, for who operates."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from aiohttp import ClientSession

from protocol.derivation import DerivationInvocation, invocation_id
from protocol.messages.muninn import Origin
from protocol.record import decode_record
from tests.fake_rooms import Service

CHAT = {"model": "raven", "messages": [{"role": "user", "content": "Hello"}]}
PATH = "/huginn/v1/derivations"
UNKNOWN = "inv:" + "a" * 51 + "q"


async def derived(client: ClientSession, operator: ClientSession) -> str:
    """The invocation of the assembly that a chat of `client` was, once the memo knows it."""
    async with client.post("/v1/chat/completions", json=CHAT) as response:
        context = response.headers["Huginn-Context"]
    async with client.get(f"/huginn/v1/contexts/{context}") as response:
        found: str = (await response.json())["invocation_id"]
    async with asyncio.timeout(60):
        counters: dict[str, int] = {}
        while not counters.get("report inserted"):
            await asyncio.sleep(0.02)
            counters = (await memo(operator))["counters"]
    return found


async def memo(operator: ClientSession) -> dict[str, Any]:
    async with operator.get("/huginn/v1/status") as response:
        found: dict[str, Any] = (await response.json())["muninn"]
        return found


async def posted(client: ClientSession, path: str, body: object) -> tuple[int, Any]:
    async with client.post(f"{PATH}/{path}", json=body) as response:
        return response.status, await response.json()


@pytest.mark.req("DRV-6")
async def test_who_derived_it_and_what_it_gave(http: ClientSession, service: Service) -> None:
    wanted = await derived(http, http)
    async with http.get(f"{PATH}/{wanted}") as response:
        assert response.status == 200
        found = await response.json()
    assert (found["invocation_id"], found["family"]) == (wanted, "assemble")
    assert [each["label"] for each in found["outputs"]] == ["context", "stream"]
    assert found["inputs"][0]["id"].startswith("seq:")
    assert (found["executor"], found["testimonies"], found["verified"]) == ("assembler", 1, 0)
    assert found["first_ns"] > 0
    # An output that cannot be shown to be there is none, and comes back.
    service.mailbox.down.add("ropes")
    async with http.get(f"{PATH}/{wanted}") as response:
        assert response.status == 404
    service.mailbox.down.discard("ropes")
    async with http.get(f"{PATH}/{wanted}") as response:
        assert response.status == 200


@pytest.mark.req("DRV-6", "AUT-3", "AUT-5", "AUT-7")
async def test_a_miss_and_a_caller_who_may_not_know_are_one_answer(
    http: ClientSession, tenant: ClientSession
) -> None:
    mine = await derived(http, http)
    theirs = await derived(tenant, http)
    bodies = set()
    for client, wanted in (
        (http, UNKNOWN),
        (http, "inv:short"),
        (http, "ctx:" + "a" * 51 + "q"),
        (tenant, mine),
        (tenant, theirs),
        (tenant, UNKNOWN),
    ):
        async with client.get(f"{PATH}/{wanted}") as response:
            assert response.status == 404, wanted
            bodies.add(await response.read())
    assert len(bodies) == 1


@pytest.mark.req("DRV-6")
async def test_a_hit_and_a_miss_are_charged_alike(http: ClientSession) -> None:
    known = await derived(http, http)
    accounts = []
    for wanted in (known, UNKNOWN, known):
        async with http.get(f"{PATH}/{wanted}") as response:
            await response.read()
        (account,) = (await memo(http))["asked"].values()
        accounts.append(account)
    assert accounts == [1, 2, 3]


@pytest.mark.req("DRV-4")
async def test_a_sample_says_what_to_execute_again(http: ClientSession) -> None:
    wanted = await derived(http, http)
    status, drawn = await posted(http, "sample", {"count": 5, "seed": "s"})
    assert (status, drawn["domain"], drawn["authority_epoch"]) == (200, "operator", 0)
    (entry,) = [each for each in drawn["entries"] if each["invocation_id"] == wanted]
    invocation = decode_record(DerivationInvocation, base64.b64decode(entry["invocation"]))
    assert str(invocation_id(invocation)) == wanted
    origin = decode_record(Origin, base64.b64decode(entry["origin"]))
    assert str(origin.context) == entry["context_id"]
    assert await posted(http, "sample", {"count": 5, "seed": "s"}) == (200, drawn)

    # Evidence that is none, and inputs that are gone.
    check = {"invocation": entry["invocation"], "origin": entry["origin"]}
    nothing = check | {"evidence": base64.b64encode(b"nothing").decode()}
    body = {"domain": "operator", "checks": [nothing, check]}
    status, said = await posted(http, "checks", body)
    assert (status, [each["result"] for each in said["results"]]) == (200, ["refused", "expired"])
    assert said["results"][0]["reason"]
    async with http.get(f"{PATH}/{wanted}") as response:
        assert response.status == 404


async def test_only_who_operates_draws_and_checks(
    http: ClientSession, tenant: ClientSession
) -> None:
    for path, body in (
        ("sample", {"count": 1, "seed": ""}),
        ("checks", {"domain": "tenant", "checks": []}),
    ):
        status, said = await posted(tenant, path, body)
        assert (status, said["error"]["code"]) == (403, "permission_denied")
    status, said = await posted(http, "sample", {"count": 5000, "seed": ""})
    assert (status, said["error"]["code"]) == (400, "limit_exceeded")
    for spoilt in ("?", "aGVsbG8="):
        body = {"domain": "operator", "checks": [{"invocation": spoilt}]}
        status, _ = await posted(http, "checks", body)
        assert status == 400
