"""Contexts by id: for those who may read all of one; for others there is nothing."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from protocol.ids import ContextId

PATH = "/huginn/v1/contexts"
TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "bye"},
]


async def assembled(http: ClientSession, messages: list[Any], **more: Any) -> dict[str, Any]:
    async with http.post(PATH, json={"messages": messages} | more) as response:
        assert response.status == 200
        made: dict[str, Any] = await response.json()
        assert response.headers["Huginn-Context"] == made["context_id"]
        return made


async def diff(http: ClientSession, a: str, b: str) -> dict[str, Any]:
    async with http.post(f"{PATH}/diff", json={"a": a, "b": b}) as response:
        assert response.status == 200
        found: dict[str, Any] = await response.json()
        return found


@pytest.mark.req("SRV-2")
async def test_a_context_is_the_one_that_a_chat_has(http: ClientSession) -> None:
    made = await assembled(http, TALK, model="raven", tokens=True)
    chat = {"model": "raven", "messages": TALK}
    async with http.post("/v1/chat/completions", json=chat) as response:
        assert response.headers["Huginn-Context"] == made["context_id"]
    assert made["tokens_count"] == len(made["tokens"]) == sum(b["tokens"] for b in made["blocks"])
    assert [block["role"] for block in made["blocks"]] == ["system", "user", "model", "user"]
    # Stored twice is stored once: an id is what it is made of.
    assert (await assembled(http, TALK, tokens=True)) == made


@pytest.mark.req("SRV-2")
async def test_a_context_is_shown_whole(http: ClientSession) -> None:
    made = await assembled(http, TALK, tokens=True)
    async with http.get(f"{PATH}/{made['context_id']}") as response:
        shown = await response.json()
    assert shown["context_id"] == made["context_id"]
    assert shown["sequence_id"] == made["sequence_id"] == shown["assembly"]["sequence"]
    assert shown["assembly"]["format_version"] == 1
    assert shown["assembly"]["model_contract"].startswith("contract:")
    assert [block["content"] for block in shown["blocks"]] == [m["content"] for m in TALK]
    assert [block["block_id"] for block in shown["blocks"]] == [
        block["block_id"] for block in made["blocks"]
    ]
    assert "tokens" not in shown
    async with http.get(f"{PATH}/{made['context_id']}?tokens=1") as response:
        assert (await response.json())["tokens"] == made["tokens"]


@pytest.mark.req("SRV-2")
async def test_the_tree_of_a_context(http: ClientSession) -> None:
    made = await assembled(http, TALK)
    async with http.get(f"{PATH}/{made['context_id']}/tree") as response:
        tree = await response.json()
    assert tree["nodes"][0]["node_id"] == tree["root"]
    leaves = [child for node in tree["nodes"] if node["level"] == 0 for child in node["children"]]
    assert leaves == [block["block_id"] for block in made["blocks"]]


@pytest.mark.req("SRV-2")
async def test_where_two_contexts_part(http: ClientSession) -> None:
    a = await assembled(http, TALK, tokens=True)
    b = await assembled(http, [*TALK[:3], {"role": "user", "content": "go on"}], tokens=True)
    found = await diff(http, a["context_id"], b["context_id"])
    assert found["equal_blocks"] == 3
    first = found["first_difference"]
    assert (first["index"], first["reason"]) == (3, "content")
    at = first["token_index"]
    assert a["tokens"][:at] == b["tokens"][:at]
    assert a["tokens"][at] != b["tokens"][at]
    same = await diff(http, a["context_id"], a["context_id"])
    assert (same["equal_blocks"], same["first_difference"]) == (4, None)


@pytest.mark.req("AUT-3")
async def test_unknown_malformed_and_somebody_elses_are_one_answer(
    http: ClientSession, tenant: ClientSession
) -> None:
    theirs = (await assembled(http, TALK))["context_id"]
    own = (await assembled(tenant, TALK[:2]))["context_id"]
    unknown = str(ContextId(bytes(32)))
    bodies, heads = set(), set()
    for wrong in (theirs, unknown, "nonsense", theirs.upper(), theirs.replace("ctx", "seq"), "%00"):
        for method, path, body in [
            ("GET", f"{PATH}/{wrong}", None),
            ("GET", f"{PATH}/{wrong}?tokens=1", None),
            ("GET", f"{PATH}/{wrong}/tree", None),
            ("POST", f"{PATH}/diff", {"a": own, "b": wrong}),
            ("POST", f"{PATH}/diff", {"a": wrong, "b": own}),
            ("GET", f"/huginn/v1/receipts/{wrong}", None),
        ]:
            async with tenant.request(method, path, json=body) as response:
                assert response.status == 404
                bodies.add(await response.read())
                skipped = {"Date", "X-Request-Id"}
                kept = {k: v for k, v in response.headers.items() if k.title() not in skipped}
                heads.add(tuple(sorted(kept.items())))
    assert len(bodies) == 1
    assert len(heads) == 1
    # Of what is the caller's own, everything is there.
    async with tenant.get(f"{PATH}/{own}") as response:
        assert response.status == 200


@pytest.mark.req("AUT-3")
async def test_the_same_words_are_each_tenants_own(
    http: ClientSession, tenant: ClientSession
) -> None:
    """An id is content: two who say the same have the same, and neither learns it."""
    mine = (await assembled(http, TALK))["context_id"]
    async with tenant.get(f"{PATH}/{mine}") as response:
        assert response.status == 404
    assert (await assembled(tenant, TALK))["context_id"] == mine
    async with tenant.get(f"{PATH}/{mine}") as response:
        assert response.status == 200
