"""Sessions by hand: made, listed, looked into and ahead of, and forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from tests.fake_rooms import Service
from tests.happenings import happen

SESSIONS = "/huginn/v1/sessions"
CHAT = {"model": "raven", "messages": [{"role": "user", "content": "hi"}]}


async def call(
    http: ClientSession, method: str, path: str = "", body: Any = None, status: int = 200
) -> Any:
    async with http.request(method, SESSIONS + path, json=body) as response:
        answer = await response.json()
        assert response.status == status, answer
        return answer


async def take_turn(http: ClientSession, session: str) -> None:
    body = CHAT | {"huginn": {"session": session}}
    async with http.post("/v1/chat/completions", json=body) as response:
        assert response.status == 200


@pytest.mark.req("SRV-2", "EVT-3")
async def test_a_session_is_made_listed_and_forgotten(http: ClientSession) -> None:
    made = await call(http, "POST", body={"persona": "sally", "scope": "all"})
    assert (made["persona"], made["scope"], made["place"]) == ("sally", "all", None)
    assert (made["head"], made["turns_count"], made["marks"]) == (None, 0, {})
    assert made["created_at"] == made["used_at"]
    assert (await call(http, "GET"))["data"] == [made]
    assert await call(http, "GET", f"/{made['id']}") == made | {"turns": []}
    gone = await call(http, "DELETE", f"/{made['id']}")
    assert gone == {"id": made["id"], "deleted": True}
    await call(http, "GET", f"/{made['id']}", status=404)
    await call(http, "DELETE", f"/{made['id']}", status=404)
    assert (await call(http, "GET"))["data"] == []


@pytest.mark.req("EVT-4", "EVT-5")
async def test_looking_ahead_moves_nothing(http: ClientSession, service: Service) -> None:
    await happen(service, "1122")
    session = (await call(http, "POST", body={"scope": "all"}))["id"]
    for _ in range(2):
        ahead = await call(http, "GET", f"/{session}/prompt-context")
        assert ahead["text"].count("1122 merged") == 1
        assert (ahead["events"], ahead["folded"], ahead["gaps"]) == (1, 0, [])
        assert list(ahead["marks"].values()) == [1]
        assert (await call(http, "GET", f"/{session}/marks"))["marks"] == {}
    await take_turn(http, session)
    ahead = await call(http, "GET", f"/{session}/prompt-context")
    assert (ahead["text"], ahead["events"]) == ("", 0)
    marks = await call(http, "GET", f"/{session}/marks")
    assert list(marks["marks"].values()) == [1]
    shown = await call(http, "GET", f"/{session}")
    (turn,) = shown["turns"]
    assert marks["head"] == shown["head"] == turn["id"]
    assert (turn["number"], turn["state"], turn["injected"]) == (1, "finished", 1)
    assert len(turn["reminders"]) == 1
    assert turn["context_id"].startswith("ctx:")
    assert turn["sequence_id"].startswith("seq:")


async def test_looking_ahead_from_an_earlier_turn(http: ClientSession, service: Service) -> None:
    session = (await call(http, "POST", body={}))["id"]
    await take_turn(http, session)
    await happen(service, "1122")
    await take_turn(http, session)
    first = (await call(http, "GET", f"/{session}"))["turns"][0]["id"]
    ahead = await call(http, "GET", f"/{session}/prompt-context?parent={first}")
    assert "1122 merged" in ahead["text"]
    await call(http, "GET", f"/{session}/prompt-context?parent=x", status=404)


@pytest.mark.req("EVT-8")
async def test_a_budget_folds(http: ClientSession, service: Service) -> None:
    await happen(service, *map(str, range(200)))
    session = (await call(http, "POST", body={}))["id"]
    ahead = await call(http, "GET", f"/{session}/prompt-context?tokens_max=600")
    assert 0 < ahead["folded"] < ahead["events"] == 200
    assert ahead["tokens"] <= 600
    for wrong in ("0", "-1", "x", "1" * 30, "1"):
        path = f"/{session}/prompt-context?tokens_max={wrong}"
        error = (await call(http, "GET", path, status=400))["error"]
        assert error["param"] == "tokens_max"


@pytest.mark.req("EVT-10")
async def test_a_scope_is_all_or_some_sources(http: ClientSession, service: Service) -> None:
    await happen(service, "1", source="a")
    await happen(service, "2", source="b")
    some = await call(http, "POST", body={"scope": ["a"]})
    assert some["scope"] == ["a"]
    ahead = await call(http, "GET", f"/{some['id']}/prompt-context")
    assert "1 merged" in ahead["text"]
    assert "2 merged" not in ahead["text"]
    error = await call(http, "POST", body={"scope": "a"}, status=400)
    assert error["error"]["param"] == "scope"
    await call(http, "POST", body={"scope": ["c"]}, status=404)


async def test_since_now_the_past_is_no_news(http: ClientSession, service: Service) -> None:
    await happen(service, "1122")
    session = (await call(http, "POST", body={"since": "now"}))["id"]
    assert (await call(http, "GET", f"/{session}/prompt-context"))["text"] == ""
    error = await call(http, "POST", body={"since": "then"}, status=400)
    assert error["error"]["param"] == "since"


@pytest.mark.req("EVT-7")
async def test_a_place_has_one_session(http: ClientSession) -> None:
    one, two, three = [
        (await call(http, "POST", body={"place": place}))["id"] for place in ("a", "a", "b")
    ]
    assert one == two != three


async def test_forgetting_takes_the_right_to_erase(http: ClientSession, service: Service) -> None:
    asked = {"principal": "sally", "namespace": "operator/sally"}
    async with http.post("/huginn/v1/keys", json=asked) as made:
        headers = {"Authorization": f"Bearer {(await made.json())['key']}"}
    async with ClientSession(service.base_url, headers=headers) as sally:
        session = (await call(sally, "POST", body={}))["id"]
        for name in (session, "session-x"):
            await call(sally, "DELETE", f"/{name}", status=403)
        assert len((await call(sally, "GET"))["data"]) == 1


@pytest.mark.req("AUT-3")
async def test_a_session_of_somebody_else_is_not_there(
    http: ClientSession, tenant: ClientSession
) -> None:
    session = (await call(http, "POST", body={}))["id"]
    answers = []
    for name in (session, "session-x"):
        for method, path in (
            ("GET", ""),
            ("GET", "/marks"),
            ("GET", "/prompt-context"),
            ("DELETE", ""),
        ):
            answers.append(await call(tenant, method, f"/{name}{path}", status=404))
    assert all(answer == answers[0] for answer in answers)
    assert (await call(tenant, "GET"))["data"] == []
