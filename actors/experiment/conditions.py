"""The conditions of the experiment, in the order in which they are run.

In the first service, as the operator: `cold`, `warm` (the same messages), `append` (the answer and
one more turn), `middle-edit` (the message at half is another), `branch` (another turn after an
earlier one), `other-domain` (the first messages again, from another principal), `evicted` (after
as many other conversations as there are live streams, and one more), `restarted` (after `kill -9`
of the worker). Then in a second service that never saw any of it: `other-process`, and cold runs
of the other three prompts, each by a principal of its own, for the warm ones to be compared with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from actors.experiment.conversation import Message, Sizes, Writer
from actors.experiment.instance import Instance
from actors.experiment.measure import Row, measure
from profiles import loader
from protocol.errors import ContentError

Tell = Callable[[str], None]

# Runs that share nothing with any other: they have to reuse nothing.
ALONE: Final = ("cold", "other-domain", "other-process")
# Runs that have to reuse something, wherever it lies.
REUSING: Final = ("warm", "append", "middle-edit", "branch")
# Runs whose state no live stream holds any longer, and the tiers that have to give it.
KEPT: Final = {"evicted": ("host", "disk"), "restarted": ("disk",)}
STEPS: Final = (
    *("cold", "warm", "append", "middle-edit", "branch", "other-domain", "evicted", "restarted"),
    *("other-process", "other-process/append", "other-process/middle-edit"),
    "other-process/branch",
)


class Experiment:
    """One run for one profile. `rows` and `log` (what the services wrote on standard error) fill
    as it goes. Raises ContentError where the profile's
    context has no room for `tokens` and another turn."""

    def __init__(
        self, profile: str, shell: str, weights_file: Path, *, tokens: int, seed: int, tell: Tell
    ) -> None:
        self._spec = loader.load(profile)
        self._place = (profile, shell, weights_file)
        self._tokens = tokens
        self._seed = seed
        self._tell = tell
        self._sizes = Sizes.for_window(self._spec.model.window_tokens)
        sizes, context_tokens = self._sizes, self._spec.runtime.context_tokens
        tokens_max = context_tokens - 2 * sizes.message - 2 * sizes.answer - sizes.turn
        if tokens > tokens_max:
            raise ContentError(
                f"{tokens} tokens and one more turn do not fit in the context of {context_tokens} "
                f"that {profile} has: ask for at most {tokens_max}"
            )
        self._prompts: dict[str, list[Message]] = {}
        self._first_asked: dict[tuple[Path, str], float] = {}
        self.rows: list[Row] = []
        self.log: list[str] = []

    def run(self) -> list[Row]:
        """Every condition's row. Raises Failure or ContentError where one cannot be run."""
        with Instance(*self._place) as first:
            self._first_service(first)
            self.log += first.log()
        with Instance(*self._place) as second:
            self._second_service(second)
            self.log += second.log()
        return self.rows

    def _first_service(self, first: Instance) -> None:
        def count(messages: list[Message]) -> int:
            body = {"model": first.model, "messages": messages}
            return int(first.client().post("/v1/tokenize", body)["count"])

        writer = Writer(self._seed, self._sizes, count)
        whole = writer.conversation(self._tokens)
        self._prompts["base"] = whole
        answer = self._step(first, "cold", "base")
        self._step(first, "warm", "base")
        said = {"role": "assistant", "content": answer or "Yes."}
        turn = writer.message("user", self._sizes.turn)
        self._prompts["append"] = [*whole, said, turn]
        self._step(first, "append", "append")
        middle = len(whole) // 2
        changed = writer.message(whole[middle]["role"], self._sizes.message)
        self._prompts["edit"] = [*whole[:middle], changed, *whole[middle + 1 :]]
        self._step(first, "middle-edit", "edit")
        # An even number of messages: the next is the user's.
        earlier = len(whole) * 3 // 4 // 2 * 2
        other_turn = writer.message("user", self._sizes.turn)
        self._prompts["branch"] = [*whole[:earlier], other_turn]
        self._step(first, "branch", "branch")
        self._step(first, "other-domain", "base", key=first.key_of("other"))
        self._crowd_out(first, writer)
        self._step(first, "evicted", "base")
        self._tell("restarted")
        ready_s = first.kill_worker()
        self._step(first, "restarted", "base")
        self.rows[-1]["restart_s"] = ready_s

    def _second_service(self, second: Instance) -> None:
        self._step(second, "other-process", "base")
        for condition, prompt in (("append", "append"), ("middle-edit", "edit"), ("branch",) * 2):
            # Nothing of another domain is ever reused: so this run is cold.
            key = second.key_of(condition)
            self._step(second, f"other-process/{condition}", prompt, key=key)

    def _crowd_out(self, first: Instance, writer: Writer) -> None:
        self._tell("evicted")
        for _ in range(self._spec.runtime.streams + 1):
            body = {
                "model": first.model,
                "messages": [writer.message("user", self._sizes.message)],
                "temperature": 0,
                "max_tokens": 1,
            }
            first.client().post("/v1/chat/completions", body)
            first.wait_quiet()

    def _step(
        self, instance: Instance, condition: str, prompt: str, *, key: str | None = None
    ) -> str:
        self._tell(condition)
        now, place = time.monotonic(), (instance.home, prompt)
        row, text = measure(
            instance,
            condition,
            prompt,
            self._prompts[prompt],
            answer_tokens=self._sizes.answer,
            key=key,
        )
        # How old the state is that could be reused: since these messages were first asked here.
        first = self._first_asked.setdefault(place, now)
        self.rows.append(row | {"age_s": now - first if first != now else None})
        return text
