"""Prompts: what is refused before anything is queued."""

from __future__ import annotations

import pytest

from actors.worker.chain import chains
from actors.worker.limits import SEGMENTS_MAX
from actors.worker.prompt import PromptReader
from actors.worker.schedule import advances
from protocol.errors import BudgetExceeded, ContentError, LimitExceeded
from protocol.tokens import pack
from tests.fake_backend import FakeBackend
from tests.worker_rooms import OPENER, PROFILE, Talk, segment, text_ids

READER = PromptReader(PROFILE, FakeBackend().tokenizer, context_tokens=20, chunk_tokens=4)


def test_a_prompt_is_its_schedule_and_its_chains() -> None:
    talk = Talk().add("user", text_ids("hello"))
    prompt = READER.read(talk.segments, pack(OPENER), answer_tokens=1)
    wanted = advances(talk.segments, pack(OPENER), chunk_tokens=4)
    assert list(prompt.advances) == wanted
    assert list(prompt.chains) == chains(PROFILE, wanted)
    assert prompt.ids == (2, 3, 117, *text_ids("hello"), *OPENER)
    assert prompt.tokens == len(prompt.ids) == prompt.advances[-1].stop


@pytest.mark.req("KV-12")
def test_too_long_names_both_numbers() -> None:
    block = segment("user", (2,), text_ids("x" * 19))
    READER.read([block], b"", answer_tokens=0)
    with pytest.raises(BudgetExceeded, match="20 tokens and the context of 20 has room for 19"):
        READER.read([block], b"", answer_tokens=1)
    with pytest.raises(LimitExceeded, match="segments"):
        READER.read([segment("user", (), ())] * (SEGMENTS_MAX + 1), b"", answer_tokens=1)


@pytest.mark.req("ASM-3")
@pytest.mark.parametrize(
    ("head", "content", "message"),
    [
        ((2,), (9, 3), "control"),
        ((2,), (9, 5000), "outside the vocabulary"),
        ((5000,), (9,), "outside the vocabulary"),
    ],
)
def test_ids_that_may_not_stand_there_are_named(
    head: tuple[int, ...], content: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ContentError, match=message):
        READER.read([segment("user", head, content)], b"", answer_tokens=1)


def test_empty_prompts_and_broken_ids_are_refused() -> None:
    with pytest.raises(ContentError, match="empty"):
        READER.read([segment("user", (), ())], b"", answer_tokens=1)
    with pytest.raises(ContentError, match="multiple"):
        READER.read([segment("user", (2,), (9,))], b"abc", answer_tokens=1)
