"""Sources and kinds over HTTP: made, listed, removed, and of nobody else's concern."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from aiohttp import ClientSession

from protocol.events import source_id
from tests.fake_rooms import Service

SOURCES = "/huginn/v1/sources"
KINDS = "/huginn/v1/kinds"
NUMBERED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def post(http: ClientSession, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    async with http.post(path, json=body, headers=headers) as response:
        return response.status, await response.json()


async def get(http: ClientSession, path: str) -> tuple[int, Any]:
    async with http.get(path) as response:
        return response.status, await response.json()


async def delete(http: ClientSession, path: str) -> tuple[int, Any]:
    async with http.delete(path) as response:
        return response.status, await response.json()


async def test_a_source_from_made_to_removed(http: ClientSession) -> None:
    status, made = await post(http, SOURCES, {"name": "builds"})
    assert status == 200
    assert (made["name"], made["namespace"], made["state"]) == ("builds", "operator", "local")
    assert (made["first"], made["head"], made["reason"]) == (1, 0, None)
    assert str(source_id(base64.b64decode(made["public_key"]))) == made["id"]
    # Asked for again it is the same: its key is its identity.
    assert await post(http, SOURCES, {"name": "builds"}) == (200, made)
    assert (await get(http, SOURCES))[1]["data"] == [made]
    assert await delete(http, f"{SOURCES}/builds") == (200, {"name": "builds", "removed": True})
    assert (await get(http, SOURCES))[1]["data"] == []
    assert (await delete(http, f"{SOURCES}/builds"))[0] == 404
    _, again = await post(http, SOURCES, {"name": "builds"})
    assert again["id"] != made["id"], "a removed source's numbers are never signed again"


async def test_a_source_below_is_called_by_its_path(http: ClientSession) -> None:
    below = {"name": "builds", "huginn": {"namespace": "operator/team"}}
    _, made = await post(http, SOURCES, below)
    assert made["name"] == "builds"
    _, listed = await get(http, SOURCES)
    assert [row["name"] for row in listed["data"]] == ["team/builds"]
    event = {"kind": "Close", "subject": "7"}
    status, _ = await post(http, f"{SOURCES}/team%2Fbuilds/events", event)
    assert status == 200
    assert (await delete(http, f"{SOURCES}/team%2Fbuilds"))[0] == 200


@pytest.mark.parametrize("name", ["", "a/b", "Builds", "-a", "a" * 64, "a b", "..", "é"])
async def test_names_that_are_none(http: ClientSession, name: str) -> None:
    status, answer = await post(http, SOURCES, {"name": name})
    assert status == 400
    assert answer["error"]["param"] == "name"


async def test_foreign_is_unknown(http: ClientSession, tenant: ClientSession) -> None:
    await post(http, SOURCES, {"name": "builds"})
    asks = [
        ("POST", f"{SOURCES}/{{}}/events", {"kind": "Close", "subject": "1"}),
        ("GET", f"{SOURCES}/{{}}/events", None),
        ("DELETE", f"{SOURCES}/{{}}", None),
    ]
    for method, path, body in asks:
        answers = []
        for name in ("builds", "nothing", "operator%2Fbuilds"):
            async with tenant.request(method, path.format(name), json=body) as response:
                answers.append((response.status, await response.read()))
        assert answers[0][0] == 404
        assert answers[0] == answers[1] == answers[2]
    assert (await get(tenant, SOURCES))[1]["data"] == []


async def test_other_names_of_ones_own_namespace_only(tenant: ClientSession) -> None:
    elsewhere = {"name": "builds", "huginn": {"namespace": "operator"}}
    status, answer = await post(tenant, SOURCES, elsewhere)
    assert (status, answer["error"]["code"]) == (403, "permission_denied")


async def test_a_remote_source_needs_the_operators_word(http: ClientSession) -> None:
    key = base64.b64encode(bytes(32)).decode()
    remote = {"name": "far", "url": "http://127.0.0.1:9/huginn/v1/sources/x", "public_key": key}
    for body in (remote, remote | {"api_key_file": "k"}, {"name": "far", "api_key_file": "k"}):
        assert (await post(http, SOURCES, body))[0] == 400
    assert (await post(http, SOURCES, remote | {"public_key": "?"}))[1]["error"]["param"] == (
        "public_key"
    )


@pytest.mark.req("EVT-1")
async def test_kinds_are_registered_and_checked(http: ClientSession) -> None:
    await post(http, SOURCES, {"name": "builds"})
    event = {"kind": "operator.Counted", "subject": "x", "body": {"n": 1}}
    status, answer = await post(http, f"{SOURCES}/builds/events", event)
    assert (status, "not registered" in answer["error"]["message"]) == (400, True)
    status, made = await post(http, KINDS, {"kind": "Counted", "schema": NUMBERED})
    assert (status, made) == (200, {"kind": "operator.Counted", "schema": NUMBERED})
    assert (await post(http, f"{SOURCES}/builds/events", event))[0] == 200
    status, answer = await post(http, f"{SOURCES}/builds/events", event | {"body": {"n": "1"}})
    assert (status, "$.n" in answer["error"]["message"]) == (400, True)
    # The same again is the same; another schema under the name would change what is recorded.
    swapped = dict(reversed(NUMBERED.items()))
    assert (await post(http, KINDS, {"kind": "Counted", "schema": swapped}))[0] == 200
    assert (await post(http, KINDS, {"kind": "Counted", "schema": {}}))[0] == 409
    assert (await get(http, KINDS))[1]["data"] == [made]


async def test_a_kind_of_another_namespace_does_not_exist(
    http: ClientSession, tenant: ClientSession
) -> None:
    await post(http, KINDS, {"kind": "Counted", "schema": NUMBERED})
    await post(tenant, SOURCES, {"name": "mine"})
    answers = set()
    for kind in ("operator.Counted", "operator.Nothing"):
        event = {"kind": kind, "subject": "x", "body": {"n": 1}}
        status, answer = await post(tenant, f"{SOURCES}/mine/events", event)
        answers.add((status, answer["error"]["message"].replace(kind, "")))
    assert len(answers) == 1
    assert (await get(tenant, KINDS))[1]["data"] == []
    theirs = {"kind": "operator.Mine", "schema": {}}
    assert (await post(tenant, KINDS, theirs))[0] == 404


async def test_while_the_room_is_down(service: Service, http: ClientSession) -> None:
    service.mailbox.down.add("events")
    assert (await get(http, SOURCES))[0] == 503
    assert service.gateway.is_ready, "what needs no events is served"
