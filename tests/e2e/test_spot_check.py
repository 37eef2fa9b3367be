"""Spot checks of a whole installation: what it knows is executed again, what is wrong caught."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from actors.muninn.room import MuninnRoom
from actors.room import World
from actors.runtime.plan import database_path, prepare, room_signer
from actors.runtime.world import SystemClock, SystemEntropy
from profiles import loader
from protocol.derivation import Derivation, attest
from protocol.envelope import open_reply, seal, seal_reply
from protocol.families import advanced, assembled
from protocol.ids import ChainId, ContextId, PageId, ProfileId, StateId, TokensId
from protocol.messages.authority import Revocations
from protocol.messages.muninn import Execution, Origin, Report, Results
from protocol.record import decode_record, encode_record
from store.sqlite import Database
from store.sqlite_tables import SqliteTables
from tests.derivations import assembly
from tests.huginn import answered, huginn, refused
from tests.installations import Service, tiny_config, tiny_home

MODEL = "tiny-gemma"
PROFILES = Path(loader.__file__).parent
TURN = [
    {"role": "user", "content": "Who are you?"},
    {"role": "assistant", "content": "A raven."},
    {"role": "user", "content": "Which one?"},
]


def said(service: Service, **more: Any) -> str:
    """An answer to the turn, and its context."""
    body = {"model": MODEL, "messages": TURN, "max_tokens": 6, **more}
    answer = service.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    return answer.headers["Huginn-Context"]


def reach(service: Service) -> dict[str, str]:
    return {"HUGINN_PORT": str(service.port)}


def drawn(service: Service, *words: str) -> Any:
    return answered("verify", "--sample", "20", *words, home=service.home, **reach(service))


class Silence:
    """A mailbox behind which there is an authority that has revoked nothing."""

    async def call(self, room: str, message: bytes) -> bytes:
        assert room == "authority"
        return seal_reply(encode_record(Revocations(epoch=0, revoked=[])))

    def stream(self, room: str, message: bytes) -> AsyncIterator[bytes]:
        raise AssertionError(f"nothing of {room} is streamed to a memo")


async def reported(home: Path, derivation: Derivation, context: ContextId, room: str) -> str:
    """What the memo of a service that is stopped makes of a report that `room` signed."""
    clock, entropy = SystemClock(), SystemEntropy()
    plan = await prepare(tiny_config(home), clock, entropy)

    def world(name: str) -> World:
        return World(
            clock=clock,
            entropy=entropy,
            mailbox=Silence(),
            signer=room_signer(home, name, entropy),
            anchors=frozenset(plan.anchors),
            room_to_key=plan.room_to_key,
            service_chain=tuple(plan.service_chains[name]),
        )

    memo = MuninnRoom(world("muninn"), SqliteTables(Database(database_path(home, "muninn"))))
    await memo.start()
    signer = room_signer(home, room, entropy)
    execution = Execution(
        outcome="complete",
        invocation=derivation.invocation,
        evidence=attest(
            signer,
            derivation,
            engine_build="a build that errs",
            authority_epoch=0,
            domain="operator",
            measurements={},
        ),
        origin=Origin(context=context),
    )
    message = seal(
        tuple(plan.service_chains[room]),
        signer,
        room="muninn",
        op="report",
        body=encode_record(Report(entries=[execution])),
        ts_ns=clock.wall_ns(),
        nonce=entropy.draw(16),
        request_id="planted",
    )
    results = decode_record(Results, open_reply(await memo.receive(message))).results
    await memo.drain()
    return results[0].result


@pytest.mark.slow
@pytest.mark.req("DRV-4", "DRV-6", "DRV-7", "KV-9")
def test_what_a_service_did_is_executed_again(tmp_path: Path) -> None:
    with Service(tiny_home(tmp_path / "home")) as service:
        assert drawn(service)["drawn"] == 0
        context = said(service, temperature=0)
        said(service, temperature=0.9, seed=7)
        # Three assemblies (the turn, and with each answer), their advances, two answers.
        service.memo(9)
        found = drawn(service, "--seed", "one")
        assert found["ok"]
        assert (found["different"], found["expired"], found["skipped"]) == (0, 0, 0)
        assert found["equal"] == found["drawn"] >= 9
        assert {entry["family"] for entry in found["entries"]} == {
            "assemble",
            "advance",
            "generate",
        }
        again = huginn("verify", "--sample", "2", home=service.home, **reach(service))
        assert again.exit_code == 0, again.output
        assert "2 drawn: 2 equal" in again.stdout

        # Another installation's word counts for nothing here.
        other = tiny_home(tmp_path / "other")
        variables = {**reach(service), "HUGINN_API_KEY": service.key}
        refused("verify", "--sample", "1", home=other, code="check_refused", **variables)

        # Who may be told sees that it was checked; who may not gets what an unknown id gets.
        origin = answered("ctx", "origin", context, home=service.home, **reach(service))
        assert (origin["family"], origin["executor"]) == ("assemble", "assembler")
        assert origin["verified"] >= 1
        assert origin["outputs"][0] == {"label": "context", "id": context}
        for entry in found["entries"]:
            path = f"/huginn/v1/derivations/{entry['invocation_id']}"
            assert service.get(path).json()["verified"] >= 1
        asked = {"principal": "mallory", "domain": "operator", "namespace": "operator"}
        key = service.post("/huginn/v1/keys", asked).json()["key"]
        unknown = f"/huginn/v1/derivations/{found['entries'][0]['invocation_id'][:-8]}aaaaaaaa"
        answers = [
            service.get(path, of)
            for path, of in ((path, key), (unknown, key), (unknown, None), (path[:-1], None))
        ]
        assert [each.status_code for each in answers] == [404] * 4
        assert len({each.content for each in answers}) == 1


@pytest.mark.slow
@pytest.mark.req("KV-2", "DRV-2", "DRV-4", "DRV-7")
def test_states_without_the_promise_are_compared_from_their_snapshot_alone(tmp_path: Path) -> None:
    home, profile = tiny_home(tmp_path / "home"), tmp_path / "tiny-token.toml"
    text = (PROFILES / "tiny-gemma.toml").read_text("utf-8")
    for promise, weaker in (('"bitwise"', '"token"'), ("generation = true", "generation = false")):
        assert promise in text
        text = text.replace(promise, weaker)
    profile.write_text(text, "utf-8")
    service = Service(home, profile=str(profile))

    def checked() -> Any:
        variables = {**reach(service), "HUGINN_PROFILE": str(profile)}
        words = ("verify", "--sample", "20", "--json")
        result = huginn(*words, home=home, **variables)
        return json.loads(result.stdout)

    with service:
        context = said(service, temperature=0)
        service.memo(4)
        found = checked()
        assert found["ok"]
        assert found["equal"] == found["drawn"] >= 4
        assert {each["family"] for each in found["entries"]} == {"assemble", "advance"}
        advances = [each for each in found["entries"] if each["family"] == "advance"]
        shown = [
            service.get(f"/huginn/v1/derivations/{each['invocation_id']}").json()
            for each in advances
        ]
        assert {each["execution_class"] for each in shown} == {"snapshot-bound"}
        assert len({each["snapshot"] for each in shown}) == len(shown)
        ran = huginn("verify", context, home=home, HUGINN_PROFILE=str(profile), **reach(service))
        assert ran.exit_code == 0, ran.output

    # The same advances, by a worker that started from other pages.
    elsewhere = StateId.of(b"other pages")
    for entry, each in zip(advances, shown, strict=True):
        named = {one["label"]: one["id"] for one in (*each["inputs"], *each["outputs"])}
        previous = named.get("previous")
        other = advanced(
            ProfileId.parse(each["profile_id"]),
            None if previous is None else ChainId.parse(previous),
            TokensId.parse(named["tokens"]),
            ChainId.parse(named["chain"]),
            [PageId.of(b"another page")],
            snapshot=elsewhere,
        )
        of = ContextId.parse(entry["context_id"])
        assert asyncio.run(reported(home, other, of, "worker")) == "inserted"
    with service:
        found = checked()
        assert found["ok"]
        counts = (found["different"], found["expired"], found["incomparable"])
        assert counts == (0, 0, len(advances))
        assert service.get("/huginn/v1/status").json()["muninn"]["quarantined"] == 0


@pytest.mark.slow
@pytest.mark.req("DRV-4")
def test_what_is_wrong_is_caught_and_what_is_lost_is_no_success(tmp_path: Path) -> None:
    home = tiny_home(tmp_path / "home")
    service = Service(home)
    with service:
        said(service, temperature=0)
        service.memo(4)
        advances = [each for each in drawn(service)["entries"] if each["family"] == "advance"]
        first = service.get(f"/huginn/v1/derivations/{advances[0]['invocation_id']}").json()
    for path in (home / "rooms").glob("muninn.sqlite*"):
        path.unlink()

    # The same advance, as a worker reports it whose pages are not what they should be.
    named = {each["label"]: each["id"] for each in (*first["inputs"], *first["outputs"])}
    previous = named.get("previous")
    wrong = advanced(
        ProfileId.parse(first["profile_id"]),
        None if previous is None else ChainId.parse(previous),
        TokensId.parse(named["tokens"]),
        ChainId.parse(named["chain"]),
        [PageId.of(b"another page")],
    )
    of = ContextId.parse(advances[0]["context_id"])
    assert asyncio.run(reported(home, wrong, of, "worker")) == "inserted"
    # And an assembly whose context nobody has any more.
    lost = assembled(assembly(1), TokensId.of(b"stream"))
    gone = ContextId.of(b"gone")
    assert asyncio.run(reported(home, lost, gone, "assembler")) == "inserted"

    with service:
        words = ("verify", "--sample", "20", "--json")
        result = huginn(*words, home=home, **reach(service))
        assert result.exit_code == 1, result.output
        document = json.loads(result.stdout)
        counts = {name: document[name] for name in ("drawn", "equal", "different", "expired")}
        assert counts == {"drawn": 2, "equal": 0, "different": 1, "expired": 1}
        assert not document["ok"]
        caught = next(each for each in document["entries"] if each["outcome"] == "different")
        assert caught["invocation_id"] == first["invocation_id"]
        builds = [each["engine_build"] for each in caught["said"]]
        assert builds[0] == "a build that errs"
        assert builds[1].endswith("verify")
        assert [["chain", named["chain"]], ["page", named["page"]]] == caught["recomputed"]
        memo = service.get("/huginn/v1/status").json()["muninn"]
        assert memo["quarantined"] == 1
        assert memo["conflicts"][0]["invocation"] == first["invocation_id"]
        # Neither is served, and neither is drawn again.
        path = f"/huginn/v1/derivations/{first['invocation_id']}"
        assert service.get(path).status_code == 404
        assert drawn(service)["drawn"] == 0
        deadline = time.monotonic() + 60
        said(service, temperature=0)
        while service.get("/huginn/v1/status").json()["muninn"]["domains"][0]["resident"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # What the service says now agrees with the check, and stays in quarantine all the same.
        assert service.get(path).status_code == 404
