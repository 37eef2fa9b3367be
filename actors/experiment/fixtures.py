"""What a profile promises, tried on this machine: `python -m actors.experiment.fixtures`.

Reads `{profile, home}` as JSON from standard input, and writes one line of JSON for each fixture
as it ends, `{name, ok, detail, seconds}`, after a first line `{profile_id, build_digest}`.

Tokens are drawn from the vocabulary; pieces are as long as a schedule's, and together longer than
the model's sliding window where the context allows it.

Prefix states are tried under every profile: bit by bit where that is promised, else by the greedy
token that follows. Where generation is not promised to be reproducible, a
group may decode to other bits than each of it alone; what is tried then is that it leaves nothing
behind: cut back, every stream goes on as if nothing had been decoded.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np

from actors.worker.backend import Backend, Logits, PageRows
from actors.worker.backends.llama import LlamaBackend
from actors.worker.backends.llama_library import build_digest
from actors.worker.pages import page_digest, state_digest
from profiles import loader, weights
from protocol.record import object_id
from protocol.tokens import TokenIds

# Around the kernels' own thresholds (1, 64), and up to a whole chunk.
_PIECES: Final = (3, 70, 1, 33, 256, 256)
_DECODED: Final = 8
_CUT: Final = 3  # pieces that stay when a stream is cut back

Open = Callable[[int], Backend]


class Fed(NamedTuple):
    """A stream's state after some pieces: its pages, and the logits after the last."""

    pages: list[PageRows]
    logits: Logits

    @property
    def digest(self) -> str:
        return str(state_digest([page_digest(page) for page in self.pages]))

    def differs(self, other: Fed, *, bitwise: bool = True) -> str:
        """What of the two is not the same bytes; empty for nothing. Not `bitwise`: whether other
        greedy tokens follow."""
        if not bitwise:
            first, second = int(np.argmax(self.logits)), int(np.argmax(other.logits))
            return "" if first == second else f"greedy tokens differ: {first} and {second}"
        if self.digest != other.digest:
            return f"states differ: {self.digest} and {other.digest}"
        if self.logits.tobytes() != other.logits.tobytes():
            return "states are equal and logits differ"
        return ""


class Fixtures:
    """The fixtures of one profile. `open_backend` takes the number of prefill threads;
    `reproducible` is whether the profile promises the same answers each time, `bitwise` whether it
    promises the same states."""

    def __init__(
        self,
        open_backend: Open,
        threads: int,
        *,
        reproducible: bool = True,
        bitwise: bool = True,
    ) -> None:
        self._open = open_backend
        self._bitwise = bitwise
        self._reproducible = reproducible
        self._threads = max(2, threads)
        self._backend = open_backend(1)
        self._pieces = _drawn(self._backend)
        self._fresh = feed(self._backend, 0, self._pieces)

    def run(self) -> Iterator[tuple[str, str]]:
        """The name of each fixture, and what is wrong (empty: nothing), as they end."""
        yield "the same schedule twice", self._twice()
        yield "cut back and fed again", self._cut_back()
        yield "restored from pages", self._restored()
        if self._reproducible:
            for group in range(2, self._backend.group_max + 1):
                yield f"decoded in a group of {group}", self._grouped(group)
        else:
            group = self._backend.group_max
            yield f"cut back after decoding in a group of {group}", self._left_behind(group)
        # Two models at once would need twice the memory.
        self._backend.close()
        self._backend = self._open(self._threads)
        yield f"prefilled with {self._threads} threads", self._twice()
        self._backend.close()

    def _twice(self) -> str:
        return self._differs(feed(self._backend, 1, self._pieces))

    def _cut_back(self) -> str:
        other = [*self._pieces[:_CUT], *(piece[::-1] for piece in self._pieces[_CUT:])]
        feed(self._backend, 1, other)
        kept = sum(map(len, self._pieces[:_CUT]))
        self._backend.truncate(1, kept)
        again = feed(self._backend, 1, self._pieces[_CUT:], empty=False)
        pages = [*self._fresh.pages[:_CUT], *again.pages]
        return self._differs(Fed(pages, again.logits))

    def _restored(self) -> str:
        before, last = self._fresh.pages[:-1], self._pieces[-1]
        tokens = sum(map(len, self._pieces[:-1]))
        self._backend.truncate(1, 0)
        start = self._backend.sliding_start(tokens)
        self._backend.restore(1, before, tokens=tokens, sliding_from=start)
        again = feed(self._backend, 1, [last], empty=False)
        return self._differs(Fed([*before, *again.pages], again.logits))

    def _differs(self, other: Fed) -> str:
        return self._fresh.differs(other, bitwise=self._bitwise)

    def _left_behind(self, group: int) -> str:
        before, last = self._pieces[:-1], self._pieces[-1]
        tokens = sum(map(len, before))
        fed = [feed(self._backend, index, before) for index in range(group)]
        decode(self._backend, [(index, each.logits) for index, each in enumerate(fed)])
        for index, each in enumerate(fed):
            self._backend.truncate(index, tokens)
            again = feed(self._backend, index, [last], empty=False)
            wrong = self._differs(Fed([*each.pages, *again.pages], again.logits))
            if wrong:
                return f"stream {index}: {wrong}"
        return ""

    def _grouped(self, group: int) -> str:
        prompts = [self._pieces[: 1 + index % len(self._pieces)] for index in range(group)]
        solo = [
            decode(self._backend, [(0, feed(self._backend, 0, each).logits)])[0] for each in prompts
        ]
        fed = [feed(self._backend, index, each) for index, each in enumerate(prompts)]
        together = decode(self._backend, [(index, each.logits) for index, each in enumerate(fed)])
        apart = [index for index in range(group) if solo[index] != together[index]]
        return f"streams {apart} decode otherwise than alone" if apart else ""


def feed(backend: Backend, stream: int, pieces: Sequence[TokenIds], *, empty: bool = True) -> Fed:
    """Feed `pieces` to the stream, emptied first unless told otherwise; pages as they are made."""
    if empty:
        backend.truncate(stream, 0)
    pages, logits = [], None
    for piece in pieces:
        start = backend.length(stream)
        logits = backend.advance(stream, piece, logits=True)
        pages.append(backend.export(stream, start, start + len(piece)))
    assert logits is not None
    return Fed(pages, logits.copy())


def decode(
    backend: Backend, started: Sequence[tuple[int, Logits]]
) -> list[list[tuple[int, bytes]]]:
    """A few greedy tokens for each stream, all in one group: (token, logits after it)."""
    found: list[list[tuple[int, bytes]]] = [[] for _ in started]
    latest = [logits for _, logits in started]
    for _ in range(_DECODED):
        chosen = [int(np.argmax(logits)) for logits in latest]
        streams = [stream for stream, _ in started]
        latest = backend.decode(list(zip(streams, chosen, strict=True)))
        for index, token in enumerate(chosen):
            found[index].append((token, latest[index].tobytes()))
    return found


def _drawn(backend: Backend) -> list[TokenIds]:
    longest = min(backend.chunk_tokens, backend.export_tokens_max)
    random = Random(0)
    allowed = sorted(
        set(range(backend.tokenizer.contract.vocabulary_tokens)) - backend.tokenizer.deny
    )
    return [tuple(random.choices(allowed, k=min(longest, count))) for count in _PIECES]


def main() -> None:
    asked = json.load(sys.stdin)
    spec = loader.load(asked["profile"])
    path = weights.weights_path(spec, Path(asked["home"]))
    profile = loader.bind(spec, path, build_digest())
    _say({"profile_id": str(object_id(profile)), "build_digest": build_digest().hex()})
    began = time.monotonic()
    fixtures = Fixtures(
        lambda threads: LlamaBackend(path, profile, threads_batch=threads),
        2,
        reproducible=profile.reproducible_generation,
        bitwise=profile.equality == "bitwise",
    )
    for name, wrong in fixtures.run():
        now = time.monotonic()
        seconds, began = round(now - began, 3), now
        _say({"name": name, "ok": not wrong, "detail": wrong, "seconds": seconds})


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
