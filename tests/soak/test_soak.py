"""Many clients for a while: every answer is the one that its prompt has alone, and nothing stays.

Solo answers come first, one at a time; then clients ask the same prompts in any order at once, as
streams and not, whole turns of conversations that alternate, and some leave in the middle. Memory
and disk have room for a part of the prefix states, so that they are evicted and come back all the
time. At the end the service is as idle and as large as before, no page is leased, and every file
under `pages` is one that is counted. HUGINN_SOAK_SECONDS, _CLIENTS and _PROFILE say how long, how
many and on which model; a count bounds it as well as the time.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx2 as httpx
import pytest

from actors.cli.processes import look
from actors.experiment.conversation import Message, Sizes, Writer
from profiles import loader, weights
from tests.installations import Service, processes_below, tiny_home
from tests.model_fixtures import real

SECONDS = float(os.environ.get("HUGINN_SOAK_SECONDS", "5"))
CLIENTS = int(os.environ.get("HUGINN_SOAK_CLIENTS", "8"))
PROFILE = os.environ.get("HUGINN_SOAK_PROFILE", "tiny-gemma")
SEED = int(os.environ.get("HUGINN_SOAK_SEED", "0"))
CONVERSATIONS = 12
TURNS = 4
# Room for a few conversations of the tests' model in memory, for about half of them on disk.
HOST_BYTES, DISK_BYTES = 1_200_000, 2_400_000
# However fast a machine is: this many requests of one client, and it is done.
REQUESTS_MAX = max(200, int(20 * SECONDS))
RSS_GROWTH_BYTES_MAX = 256_000_000
# What a full queue answers: the client's to repeat, and no failure.
BUSY = (429, 503)


class PrivateService(Service):
    """A service whose temporary files are in a directory of their own."""

    def __init__(self, home: Path, temporary: Path) -> None:
        super().__init__(home, profile=PROFILE)
        self.temporary = temporary

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "TMPDIR": str(self.temporary),
            "HUGINN_HOST_BYTES": str(HOST_BYTES),
            "HUGINN_DISK_BYTES": str(DISK_BYTES),
        }


class Asked:
    """A prompt, and the answer that it has when nobody else is there."""

    def __init__(self, messages: list[Message], tokens_max: int) -> None:
        self.messages = messages
        self.tokens_max = tokens_max
        self.answer = ""

    def body(self, model: str, *, stream: bool) -> dict[str, Any]:
        return {
            "model": model,
            "messages": self.messages,
            # Sampled: the greedy answers of a small model are much alike.
            "temperature": 1.5,
            "seed": SEED,
            "max_tokens": self.tokens_max,
            "stream": stream,
        }


class Clients:
    """What the clients of a soak share: the prompts, the clock, and what they found."""

    def __init__(self, service: Service, model: str, prompts: list[Asked]) -> None:
        self._service = service
        self._key = service.key
        self._model = model
        self._prompts = prompts
        self._until = time.monotonic() + SECONDS
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._client, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS + 300)
        assert not any(thread.is_alive() for thread in threads), "a client never got its answer"

    def _client(self, number: int) -> None:
        random = Random(f"{SEED}-{number}")
        headers = {"Authorization": f"Bearer {self._key}"}
        try:
            with httpx.Client(base_url=self._service.url, headers=headers, timeout=240) as client:
                for _ in range(REQUESTS_MAX):
                    if time.monotonic() > self._until:
                        return
                    asked = random.choice(self._prompts)
                    kind = random.choice(("plain", "stream", "stream", "leave", "again"))
                    for _ in range(2 if kind == "again" else 1):
                        self._ask(client, asked, kind, random)
        except Exception as error:
            self._found("error", f"client {number}: {error!r}")

    def _ask(self, client: httpx.Client, asked: Asked, kind: str, random: Random) -> None:
        streamed = kind in ("stream", "leave")
        request = client.build_request(
            "POST", "/v1/chat/completions", json=asked.body(self._model, stream=streamed)
        )
        response = client.send(request, stream=streamed)
        try:
            if response.status_code in BUSY:
                self._found("busy")
                time.sleep(0.05)
            elif response.status_code != 200:
                response.read()
                self._found("error", f"{response.status_code} {response.text[:200]}")
            elif not streamed:
                said = response.json()["choices"][0]["message"]["content"]
                self._found(kind, "" if said == asked.answer else f"{said!r} {asked.answer!r}")
            else:
                leave_after = random.randrange(3) if kind == "leave" else None
                said, whole = _read(response, leave_after)
                same = said == asked.answer if whole else asked.answer.startswith(said)
                self._found(kind, "" if same else f"{said!r} {asked.answer!r}")
        finally:
            response.close()

    def _found(self, kind: str, wrong: str = "") -> None:
        with self._lock:
            self.counts[kind] += 1
            if wrong:
                self.wrong.append(f"{kind}: {wrong}")


def _read(response: httpx.Response, leave_after: int | None) -> tuple[str, bool]:
    """The text of a stream, and whether it was read to its end: `leave_after` pieces are enough."""
    pieces: list[str] = []
    for line in response.iter_lines():
        if not line.startswith("data:"):
            continue
        data = line[len("data:") :].strip()
        if data == "[DONE]":
            return "".join(pieces), True
        event = json.loads(data)
        assert "error" not in event, event
        pieces += [choice["delta"].get("content") or "" for choice in event["choices"]]
        if leave_after is not None and sum(map(bool, pieces)) >= leave_after:
            return "".join(pieces), False
    raise AssertionError("a stream broke off before its end")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[PrivateService]:
    if PROFILE == "tiny-gemma":
        home = tiny_home(tmp_path / "home")
    else:
        home = tmp_path / "home"
        target = weights.weights_path(loader.load(PROFILE), home)
        home.mkdir(mode=0o700)
        target.parent.mkdir(mode=0o700)
        target.symlink_to(real()[0])
    # Short: the path of a Unix socket has about 100 characters.
    temporary = Path(tempfile.mkdtemp(prefix="hg-s-"))
    try:
        with PrivateService(home, temporary) as running:
            yield running
        assert list(temporary.iterdir()) == [], "temporary files are left"
    finally:
        shutil.rmtree(temporary)


def prompts_of(service: Service, model: str) -> list[Asked]:
    """Every turn of a few conversations of mixed lengths, and what follows each, alone."""
    sizes = Sizes.for_window(loader.load(PROFILE).model.window_tokens)

    def count(messages: list[Message]) -> int:
        asked = {"model": model, "messages": messages}
        return int(service.post("/v1/tokenize", asked).json()["count"])

    writer, random = Writer(SEED, sizes, count), Random(SEED)
    found = []
    for _ in range(CONVERSATIONS):
        messages: list[Message] = []
        for _ in range(random.randint(2, TURNS)):
            length = random.randint(sizes.message // 4, sizes.message)
            messages = [*messages, writer.message("user", length)]
            asked = Asked(messages, random.randint(1, 2 * sizes.answer))
            answer = service.post("/v1/chat/completions", asked.body(model, stream=False))
            assert answer.status_code == 200, answer.text
            asked.answer = answer.json()["choices"][0]["message"]["content"]
            found.append(asked)
            messages = [*messages, writer.message("assistant", length)]
    return found


def size_of(service: Service) -> dict[str, int]:
    """What a leak would make larger."""
    assert service.process is not None
    worker, service_process = look(service.worker_pid()), look(service.process.pid)
    assert worker is not None
    assert service_process is not None
    return {
        "processes": len(processes_below(service.process.pid)),
        "worker_rss_bytes": worker.rss_bytes,
        "service_rss_bytes": service_process.rss_bytes,
        "worker_files": len(list(Path(f"/proc/{worker.pid}/fd").iterdir())),
        "service_files": len(list(Path(f"/proc/{service.process.pid}/fd").iterdir())),
    }


def check_pages(service: Service) -> None:
    """Prefix states were evicted, none is leased, and on disk lies what is counted."""
    deadline = time.monotonic() + 60
    while True:
        # Pages are exported and written behind the last answer.
        tiers = service.quiet()["tiers"]
        sizes = [path.stat().st_size for path in service.home.glob("pages/*/*")]
        counted = tiers["disk"]["pages"], tiers["disk"]["bytes"], tiers["disk"]["queued"]
        if counted == (len(sizes), sum(sizes), 0):
            break
        assert time.monotonic() < deadline, f"{counted} are counted, {len(sizes)} files lie there"
        time.sleep(0.2)
    for name, budget in (("host", HOST_BYTES), ("disk", DISK_BYTES)):
        assert tiers[name]["evicted"] > 0, f"{name}: nothing was evicted: {tiers[name]}"
        assert tiers[name]["leased"] == tiers[name]["refused"] == tiers[name]["write_errors"] == 0
        assert 0 < tiers[name]["bytes"] <= budget


@pytest.mark.slow
@pytest.mark.req("KV-9", "KV-12")
def test_many_clients_for_a_while(service: PrivateService) -> None:
    model = service.get("/v1/models").json()["data"][0]["id"]
    prompts = prompts_of(service, model)
    # Most can be told apart by their answers: a mix-up would be seen.
    assert len({asked.answer for asked in prompts}) > len(prompts) // 2
    service.quiet()
    before = size_of(service)
    sockets = sorted(path.name for path in service.temporary.iterdir())

    clients = Clients(service, model, prompts)
    clients.run()
    stats = service.quiet()
    # Connections that the clients closed are noticed within a moment.
    deadline = time.monotonic() + 20
    while size_of(service)["service_files"] > before["service_files"] + 8:
        assert time.monotonic() < deadline, f"files stay open: {before}, {size_of(service)}"
        time.sleep(0.2)
    after = size_of(service)
    grown = {
        who: after[f"{who}_rss_bytes"] - before[f"{who}_rss_bytes"] for who in ("worker", "service")
    }
    sizes = "; ".join(
        f"{who} {before[f'{who}_rss_bytes'] / 1e6:.0f} MB, {more / 1e6:+.0f} MB"
        for who, more in grown.items()
    )
    sys.stdout.write(
        f"\nsoak: seed {SEED}, {SECONDS:.0f} s, {CLIENTS} clients, {dict(clients.counts)}; "
        f"{sizes}; {stats}\n"
    )
    assert clients.wrong == []
    answered = clients.counts["plain"] + clients.counts["stream"] + clients.counts["again"]
    assert answered >= CLIENTS
    assert clients.counts["leave"] > 0
    assert stats["jobs_failed"] == 0
    assert max(grown.values()) < RSS_GROWTH_BYTES_MAX
    check_pages(service)
    assert after["processes"] == before["processes"]
    assert after["worker_files"] <= before["worker_files"] + 8
    assert sorted(path.name for path in service.temporary.iterdir()) == sockets
    # And each prompt still has its own answer.
    for asked in prompts:
        again = service.post("/v1/chat/completions", asked.body(model, stream=False)).json()
        assert again["choices"][0]["message"]["content"] == asked.answer
