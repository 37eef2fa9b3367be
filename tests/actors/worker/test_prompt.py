"""Prompts: what is refused before anything is queued."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.req("AUT-5")
@given(
    sizes=st.lists(st.tuples(st.sampled_from(["user", "model"]), st.integers(0, 9)), max_size=5),
    public=st.integers(0, 5),
    opened=st.booleans(),
)
def test_an_advance_is_public_if_all_its_ids_are(
    sizes: list[tuple[str, int]], public: int, opened: bool
) -> None:
    """And then it is the same advance, of the same chain, whatever follows what is public."""
    reader = PromptReader(PROFILE, FakeBackend().tokenizer, context_tokens=500, chunk_tokens=4)
    talk = Talk().add("user", text_ids("first"))
    for role, size in sizes:
        talk = talk.add(role, text_ids("x" * size))
    public = min(public, len(talk.segments))
    prompt = reader.read(
        talk.segments, pack(OPENER) if opened else b"", answer_tokens=1, public=public
    )
    ids = sum(len(s.head) + len(s.content) for s in talk.segments[:public]) // 4
    assert all(advance.stop <= ids for advance in prompt.advances[: prompt.public])
    assert all(advance.stop > ids for advance in prompt.advances[prompt.public :])
    assert prompt.public_tokens == ([0] + [a.stop for a in prompt.advances])[prompt.public]
    if public:
        alone = reader.read(talk.segments[:public], b"", answer_tokens=1, public=public)
        assert alone.public == len(alone.advances)
        assert prompt.chains[: prompt.public] == alone.chains[: prompt.public]
