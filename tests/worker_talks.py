"""Conversations for tests of a worker on the strict fake, and what it must come to with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from protocol.tokens import TokenIds, pack, unpack
from tests.bare_worker import Bare, bare_answer
from tests.fake_backend import FakeBackend
from tests.worker_rooms import CHUNK, EOT, OPENER, Bench, Talk, text_ids


def expected(talk: Talk, *, tokens_max: int = 8, **backend: Any) -> Bare:
    """What a fresh back end with these options gives for that prompt, and nothing else ever fed."""
    return bare_answer(
        FakeBackend(chunk_tokens=CHUNK, **backend),
        talk.segments,
        OPENER,
        tokens_max=tokens_max,
        stop_ids=frozenset((EOT,)),
        chunk_tokens=CHUNK,
    )


def some_talk(turns: int = 3, *, size: int = 20) -> Talk:
    """So many turns, each with `size` more characters, and a question."""
    talk = Talk()
    for turn in range(turns):
        talk = talk.add("user", text_ids(f"question {turn} " + "x" * size))
        talk = talk.add("model", text_ids(f"answer {turn}"))
    return talk.add("user", text_ids("and now?"))


def next_talk(talk: Talk, kind: str, where: int, content: TokenIds, *, tokens_max: int) -> Talk:
    """The prompt after `talk`: one more question, behind a branch at `where` or an edit there, or
    (`again`) none; a new conversation once this one has more than `tokens_max` tokens."""
    at = where % (len(talk.segments) + 1)
    if kind == "branch":
        talk = Talk(talk.segments[: at // 2 * 2])
    elif kind == "edit" and at < len(talk.segments):
        edited = structs.replace(talk.segments[at], content=pack(content))
        talk = Talk([*talk.segments[:at], edited, *talk.segments[at + 1 :]])
    if kind != "again" or not talk.segments:
        if sum(len(unpack(s.content)) + 3 for s in talk.segments) > tokens_max:
            talk = Talk()
        talk = talk.add("user", content)
    return talk


def prompt_ids(talk: Talk) -> TokenIds:
    """The prompt of that conversation, all of it."""
    return tuple(i for s in talk.segments for i in unpack(s.head) + unpack(s.content)) + OPENER


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def check_no_residue(bench: Bench) -> None:
    """Every stream holds exactly its canonical prefix."""
    streams = bench.room._engine.streams
    for stream in streams:
        assert bench.backend.length(stream.index) == stream.tokens
        assert not stream.leased
