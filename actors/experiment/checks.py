"""What has to hold between the rows of an experiment, and the conditions where it does not.

Rows of the same messages have the same context, token ids, state (where the profile says
`bitwise`) and greedy answer (where it says that generation is reproducible). Runs that share no
domain or no process with an earlier one reuse nothing; the others reuse something, since equal
rows of runs that all began anew would prove nothing: `evicted` as much as `warm`, out of host
memory or off the disk, and `restarted` as much, off the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from actors.experiment.conditions import ALONE, KEPT, REUSING
from actors.experiment.measure import Row

IDS: Final = ("context_id", "ids_digest")


@dataclass(frozen=True)
class Check:
    """`failed` names the conditions that differ; `compared` all that were compared."""

    name: str
    compared: list[str]
    failed: list[str]

    @property
    def ok(self) -> bool:
        return not self.failed

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}


def fields_of(*, equality: str, reproducible: bool) -> tuple[str, ...]:
    """What a profile with these promises has equal."""
    state = ("state_digest",) if equality == "bitwise" else ()
    return (*IDS, *state, *(("answer_digest",) if reproducible else ()))


def check(rows: Sequence[Row], fields: Sequence[str]) -> list[Check]:
    """Every check of these rows. A value that is missing equals nothing."""
    found = []
    prompts = list(dict.fromkeys(row["prompt"] for row in rows))
    for field in fields:
        for prompt in prompts:
            same = [row for row in rows if row["prompt"] == prompt]
            wanted = same[0][field]
            found.append(
                Check(
                    f"{field} of {prompt}",
                    [row["condition"] for row in same],
                    [row["condition"] for row in same if wanted is None or row[field] != wanted],
                )
            )
    return [*found, *_reuse(rows)]


def _reuse(rows: Sequence[Row]) -> list[Check]:
    """Who must reuse nothing, and who something. A run that is missing reused nothing."""
    alone = [row for row in rows if row["condition"].partition("/")[0] in ALONE]
    by_name = {row["condition"]: row for row in rows}
    warm = by_name["warm"]["reused_tokens"] if "warm" in by_name else 0
    found = [
        Check(
            "reuses nothing",
            [row["condition"] for row in alone],
            [row["condition"] for row in alone if row["reused_tokens"] != 0],
        ),
        Check(
            "reuses something",
            list(REUSING),
            [name for name in REUSING if name not in by_name or not by_name[name]["reused_tokens"]],
        ),
    ]
    for name, tiers in KEPT.items():
        given = sum(by_name[name]["tiers"].get(tier, 0) for tier in tiers) if name in by_name else 0
        # What warm had to feed all the same, the last advance, nobody is spared.
        held = given >= warm and given > 0
        said = f"reuses as much as warm, from {' or '.join(tiers)}"
        found.append(Check(said, [name], [] if held else [name]))
    return found
