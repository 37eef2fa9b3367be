"""What has to hold between the rows of an experiment, and the conditions where it does not.

Rows of the same messages have the same context, token ids, state (where the profile says
`bitwise`) and greedy answer (where it says that generation is reproducible). Runs that share no
domain or no process with an earlier one reuse nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from actors.experiment.conditions import ALONE
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
    alone = [row for row in rows if row["condition"].partition("/")[0] in ALONE]
    found.append(
        Check(
            "reuses nothing",
            [row["condition"] for row in alone],
            [row["condition"] for row in alone if row["reused_tokens"] != 0],
        )
    )
    return found
