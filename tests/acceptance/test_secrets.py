"""Secrets and contents are nowhere in logs, and keys in no answer but the one that makes them."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import pytest
from aiohttp import ClientSession

from actors.runtime.logs import JsonLines
from protocol.signing import principal_seed
from tests.presence_house import TEXTS, House, chat, house, responded
from tests.presence_seen import Seen

MARKER = "xyzzy-plugh-of-alice"
SAID = f"{MARKER}: the gate opens at nine"
KEY_LIKE = f"hg-{MARKER}"


class Lines(logging.Handler):
    """Everything that is logged, as it would be written."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def naming(self, secrets: list[str]) -> list[str]:
        return [line for line in self.lines if any(secret in line for secret in secrets)]


async def _trouble(made: House, seen: Seen) -> None:
    """What goes well and what does not, with secrets wherever a client may put them."""
    for body in (chat(SAID, SAID), chat(SAID, SAID, stream=True)):
        await made.http("alice", ("POST", "/v1/chat/completions", body), seen)
    await made.http("alice", ("POST", "/v1/responses", responded(SAID)), seen)
    made.backend.fault = "clear"
    await made.http("alice", ("POST", "/v1/chat/completions", chat(SAID, TEXTS[1])), seen)
    await made.quiet()
    long = chat(SAID, SAID * 2000)
    await made.http("alice", ("POST", "/v1/chat/completions", long), seen)
    wrong = ({"model": SAID}, {"messages": SAID}, {"model": "raven", "messages": [SAID]})
    for each in wrong:
        await made.http("alice", ("POST", "/v1/chat/completions", each), seen)
    for path in (f"/v1/{MARKER}", f"/huginn/v1/sessions/{MARKER}", f"/v1/models?{MARKER}=1"):
        await made.http("alice", ("GET", path, None), seen)
    event = {"kind": SAID, "subject": SAID, "body": {"text": SAID}}
    await made.http("alice", ("POST", "/huginn/v1/sources", {"name": "sled"}), seen)
    await made.http("alice", ("POST", "/huginn/v1/sources/sled/events", event), seen)


@pytest.mark.req("AUT-8", "SRV-7")
async def test_nothing_secret_is_logged_whatever_goes_wrong() -> None:
    lines = Lines()
    root = logging.getLogger()
    level = root.level
    root.addHandler(lines)
    root.setLevel(logging.DEBUG)
    try:
        with tempfile.TemporaryDirectory() as place:
            async with house(Path(place)) as made:
                seen = Seen()
                await _trouble(made, seen)
                keys = [person.key for person in made.people.values()]
                address = made.runner_address
                async with ClientSession(address) as stranger:
                    for given in (f"Bearer {KEY_LIKE}", f"Basic {KEY_LIKE}", KEY_LIKE):
                        headers = {"Authorization": given}
                        async with stranger.get("/v1/models", headers=headers) as refused:
                            assert refused.status == 401
                            assert MARKER not in await refused.text()
    finally:
        root.removeHandler(lines)
        root.setLevel(level)
    seeds = [principal_seed(key) for key in keys]
    secrets = [*keys, MARKER, *(seed.hex() for seed in seeds), *(repr(seed) for seed in seeds)]
    logged = [line for line in lines.lines if '"huginn' in line]
    assert len(logged) > 10, "the service logs what it answered"
    assert any("the test asked for" in line for line in logged), "and its faults"
    assert lines.naming(secrets) == []
    for label, said in seen.said:
        assert not any(key in said for key in keys), label


def test_a_secret_that_is_logged_would_be_found() -> None:
    lines = Lines()
    log = logging.getLogger("huginn.control")
    log.addHandler(lines)
    log.setLevel(logging.DEBUG)
    try:
        log.debug("the key is %s", KEY_LIKE)
        log.info("fields", extra={"key": KEY_LIKE})
        raise ValueError(KEY_LIKE)
    except ValueError:
        log.exception("a fault")
    finally:
        log.removeHandler(lines)
    assert len(lines.naming([KEY_LIKE])) == 3
