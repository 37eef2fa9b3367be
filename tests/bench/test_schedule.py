"""The bench of schedules, on the tests' model: what each feeds for a turn."""

from __future__ import annotations

import json
from pathlib import Path

from bench import schedule


def test_blocks_feed_what_is_new_and_pages_the_last_page_again(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    asked = ["--tiny", "--history", "300", "--turns", "3", "--blocks", "40", "--pages", "64"]
    schedule.main([*asked, "--json", str(found)])
    blocks, pages = json.loads(found.read_text("utf-8"))["rows"]
    assert (blocks["schedule"], pages["schedule"]) == ("blocks of 40", "pages of 64")
    assert blocks["turn fed tokens"] == schedule.TURN_TOKENS
    # Turns end at 324, 388 and 452; the last full page before them ended at 256, 320 and 384.
    assert pages["turn fed tokens"] == 68
    for row in (blocks, pages):
        assert row["cold tokens/cpu s"] > 0
        assert row["turn cpu s, longest"] >= row["turn cpu s, mean"] > 0
