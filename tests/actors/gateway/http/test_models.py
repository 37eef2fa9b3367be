"""The list of models, and who sees it."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from tests.fake_rooms import Service
from tests.scripted_worker import CONTEXT_TOKENS


@pytest.mark.req("SRV-1")
async def test_the_models_by_list_and_by_name(http: ClientSession) -> None:
    async with http.get("/v1/models") as response:
        listed = await response.json()
    assert listed["object"] == "list"
    (model,) = listed["data"]
    assert model["id"] == "raven"
    assert model["object"] == "model"
    assert model["max_model_len"] == CONTEXT_TOKENS
    async with http.get("/v1/models/raven") as response:
        assert await response.json() == model
    for name in ("nope", "a/b"):
        async with http.get(f"/v1/models/{name}") as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "model_not_found"


async def test_who_may_not_generate_sees_none(http: ClientSession, service: Service) -> None:
    body = {"principal": "reader", "rights": ["read"]}
    async with http.post("/huginn/v1/keys", json=body) as response:
        headers = {"Authorization": f"Bearer {(await response.json())['key']}"}
    async with ClientSession(service.base_url, headers=headers) as reader:
        async with reader.get("/v1/models") as response:
            assert await response.json() == {"object": "list", "data": []}
        async with reader.get("/v1/models/raven") as response:
            assert response.status == 404


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize("profiles", [["another"], []])
async def test_a_model_of_a_profile_that_a_key_does_not_reach_is_none_of_its(
    http: ClientSession, service: Service, profiles: list[str]
) -> None:
    body = {"principal": "elsewhere", "profiles": profiles}
    async with http.post("/huginn/v1/keys", json=body) as response:
        headers = {"Authorization": f"Bearer {(await response.json())['key']}"}
    async with ClientSession(service.base_url, headers=headers) as elsewhere:
        async with elsewhere.get("/v1/models") as response:
            assert await response.json() == {"object": "list", "data": []}
        answers = []
        for name in ("raven", "nope"):
            async with elsewhere.get(f"/v1/models/{name}") as response:
                assert response.status == 404
                answers.append((await response.text()).replace(name, "…"))
        assert answers[0] == answers[1]
