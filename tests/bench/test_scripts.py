"""`make bench` runs every script that prints figures, but the peers."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_make_bench_runs_every_script_but_the_peers() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (listed,) = re.findall(r"^BENCHES := (.+)$", makefile, re.MULTILINE)
    scripts = {
        path.stem
        for path in (ROOT / "bench").glob("*.py")
        # The peers want other builds, and part of an hour.
        if '__name__ == "__main__"' in path.read_text("utf-8") and not path.stem.startswith("peer")
    }
    assert listed.split() == list(dict.fromkeys(listed.split()))
    assert set(listed.split()) == scripts
