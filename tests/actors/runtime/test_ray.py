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
    from actors.runtime.plan import prepare
    from actors.runtime.ray_environment import set_environment
    from actors.runtime.world import SystemClock, SystemEntropy

    home = Path(sys.argv[1])
    found = {}

    async def main():
        plan = await prepare(
            Config(home=str(home), port=0, profile="tiny-gemma"), SystemClock(), SystemEntropy()
        )
        set_environment(home)
        from protocol.errors import HuginnError
        from actors.runtime.ray import RayMailbox, RayShell
        import ray
        shell = RayShell(plan)
        found["directory"] = len(str(shell._directory))
        await shell.start()
        mailbox = RayMailbox()
        # Bytes that are no envelope come back as an error record, not as an exception.
        reply = await mailbox.call("ropes", b"nonsense")
        found["refusal"] = b"encoding" in reply or b"record" in reply
        found["streamed"] = [
            b"encoding" in item or b"record" in item
            async for item in mailbox.stream("authority", b"nonsense")
        ]
        ray.kill(ray.get_actor("ropes", namespace="huginn"))
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
        try:
            await RayMailbox().call("cellar", b"")
        except HuginnError as error:
            found["absent"] = error.code
        await shell.stop()
        found["left"] = shell._directory.exists()

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
        "refusal": True,
        "streamed": [True],
        "dead": "unavailable",
        "revived": True,
        "absent": "unavailable",
        "left": False,
    }
