"""The Ray shell's own parts. What it serves is in `tests/contract/test_shell.py`.

Run in a process of its own: Ray reads its environment when it is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.installations import tiny_home

PROGRAM = """
    import asyncio, json, sys
    from pathlib import Path
    from actors.config import Config
    from actors.runtime.plan import prepare, room_signer
    from actors.runtime.ray_environment import set_environment
    from actors.runtime.world import SystemClock, SystemEntropy

    home = Path(sys.argv[1])
    found = {}

    def stale(mailbox, handle):
        # As one that asked ropes when `handle` was the actor of that name.
        mailbox._handles["ropes"] = handle
        return mailbox

    async def main():
        plan = await prepare(
            Config(home=str(home), port=0, profile="tiny-gemma"), SystemClock(), SystemEntropy()
        )
        set_environment(home)
        from protocol.envelope import open_reply, seal
        from protocol.errors import HuginnError
        from protocol.messages import Empty
        from protocol.record import encode_record
        from actors.runtime.ray import RayMailbox, RayShell
        import ray
        shell = RayShell(plan)
        found["directory"] = len(str(shell._folder.session))
        await shell.start()
        # Ray opens its own folder to everybody: it lies in one that nobody else enters.
        found["mode"] = oct(shell._folder.path.stat().st_mode & 0o777)
        found["in it"] = sorted(path.name for path in shell._folder.path.iterdir())
        mailbox = RayMailbox()
        # Two who asked ropes before it died, and ask again when another is in its place.
        calling, streaming = RayMailbox(), RayMailbox()
        await calling.call("ropes", b"nonsense")
        await streaming.call("ropes", b"nonsense")
        clock, entropy = SystemClock(), SystemEntropy()

        def asked():
            return seal(
                tuple(plan.service_chains["worker"]),
                room_signer(home, "worker", entropy),
                room="ropes",
                op="publications",
                body=encode_record(Empty()),
                ts_ns=clock.wall_ns(),
                nonce=entropy.draw(16),
                request_id="test",
            )

        old = asked()
        # Bytes that are no envelope come back as an error record, not as an exception.
        reply = await mailbox.call("ropes", b"nonsense")
        found["refusal"] = b"encoding" in reply or b"record" in reply
        found["streamed"] = [
            b"encoding" in item or b"record" in item
            async for item in mailbox.stream("authority", b"nonsense")
        ]
        handle = ray.get_actor("ropes", namespace="huginn")
        ray.kill(handle)
        try:
            await mailbox.call("ropes", b"nonsense")
        except HuginnError as error:
            found["dead"] = error.code
        # A room that died is started again, by the same hand as the worker.
        async with asyncio.timeout(60):
            while "revived" not in found:
                try:
                    reply = await mailbox.call("ropes", b"nonsense")
                    found["revived"] = b"encoding" in reply or b"record" in reply
                except HuginnError:
                    await asyncio.sleep(0.1)
        # Until its door is open to what is signed now.
        async with asyncio.timeout(60):
            while True:
                try:
                    open_reply(await mailbox.call("ropes", asked()))
                    break
                except HuginnError:
                    await asyncio.sleep(0.1)
        message = asked()
        open_reply(await calling.call("ropes", message))
        found["first call"] = True
        found["first stream"] = [
            b"asked as the wrong kind" in item async for item in streaming.stream("ropes", asked())
        ]
        # What may have reached the old room is not given to the new one.
        try:
            await stale(RayMailbox(), handle).call("ropes", old)
        except HuginnError as error:
            found["old call"] = error.code
        try:
            [item async for item in stale(RayMailbox(), handle).stream("ropes", old)]
        except HuginnError as error:
            found["old stream"] = error.code
        try:
            await RayMailbox().call("cellar", b"")
        except HuginnError as error:
            found["absent"] = error.code
        await shell.stop()
        found["left"] = shell._folder.path.exists()

    asyncio.run(main())
    sys.stderr.write("FOUND" + json.dumps(found))
"""


@pytest.mark.ray
@pytest.mark.req("OPS-1")
def test_errors_cross_as_records_and_a_death_is_told(tmp_path: Path) -> None:
    home = tiny_home(tmp_path / "home")
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(home)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        # Another Ray that the user works with is none of ours.
        env={**os.environ, "RAY_ADDRESS": "127.0.0.1:1"},
    )
    assert "FOUND" in ran.stderr, ran.stderr[-3000:]
    found = json.loads(ran.stderr.partition("FOUND")[2])
    assert found.pop("directory") <= 40
    assert found == {
        "mode": "0o700",
        "in it": ["huginn.lock", "ray"],
        "refusal": True,
        "streamed": [True],
        "dead": "unavailable",
        "revived": True,
        "first call": True,
        "first stream": [True],
        "old call": "unavailable",
        "old stream": "unavailable",
        "absent": "unavailable",
        "left": False,
    }
