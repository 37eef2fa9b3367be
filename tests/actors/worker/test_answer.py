"""One answer: what is delivered, with which ids, and why it ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from actors.worker.answer import Answer, Finish
from protocol.messages.worker import GREEDY, Item
from protocol.tokens import TokenIds, unpack
from tests.fake_backend import FakeBackend
from tests.worker_rooms import EOT, asked, text_ids

TOKENIZER = FakeBackend().tokenizer
VOCABULARY = TOKENIZER.contract.vocabulary_tokens


def logits_for(token: int) -> Any:
    row = np.zeros(VOCABULARY, dtype=np.float32)
    row[token] = 5
    return row


def answer(tokens: TokenIds, **changes: Any) -> tuple[list[Item], Finish | None, Answer]:
    """Drive an answer to generate `tokens`, as far as it goes."""
    made = Answer(
        asked([], **{"tokens_max": 100, **changes}),
        TOKENIZER,
        prompt=(2, 3),
        context_tokens=50,
        seed=1,
    )
    items: list[Item] = []
    for token in tokens:
        item, finish = made.take(logits_for(token))
        items += [item] if item else []
        if finish:
            return items, finish, made
    return items, None, made


def joined(items: list[Item]) -> tuple[str, TokenIds]:
    return "".join(i.text or "" for i in items), unpack(b"".join(i.ids or b"" for i in items))


def test_a_stop_id_ends_the_answer_and_is_not_part_of_it() -> None:
    items, finish, made = answer((*text_ids("hi"), EOT))
    assert joined(items) == ("hi", text_ids("hi"))
    assert (finish, made.tokens) == ("stop", 2)


def test_a_stop_text_ends_the_answer_and_its_tokens_are_not_delivered() -> None:
    items, finish, made = answer(text_ids("Paris.\nQ: more"), stop_texts=["\nQ:"], stops=["zzz"])
    assert joined(items) == ("Paris.", text_ids("Paris."))
    assert (finish, made.tokens) == ("stop", 9)


def test_the_token_limit_gives_out_what_was_held_back() -> None:
    items, finish, _ = answer((*text_ids("ab\nQ"), 9), stops=["\nQ:"], tokens_max=4)
    assert joined(items) == ("ab\nQ", text_ids("ab\nQ"))
    assert finish == "length"


def test_the_context_is_a_limit_too() -> None:
    items, finish, made = answer(text_ids("x" * 60))
    assert (finish, made.tokens) == ("length", 48)
    assert joined(items)[0] == "x" * 48


def test_trimming_takes_white_space_but_no_ids() -> None:
    items, finish, _ = answer((*text_ids(" \n hi you \n"), EOT), deliver_trim=True)
    assert finish == "stop"
    assert joined(items) == ("hi you", text_ids(" \n hi you \n"))


def test_no_delta_is_empty_but_the_last() -> None:
    items, _, _ = answer((*text_ids("é€"), EOT))
    assert [item.text for item in items] == ["é", "€"]
    items, _, _ = answer((*text_ids("  "), EOT), deliver_trim=True)
    assert [(item.text, unpack(item.ids or b"")) for item in items] == [("", text_ids("  "))]


@pytest.mark.req("KV-9")
def test_a_draw_belongs_to_the_position_in_the_whole_stream() -> None:
    sampler = structs.replace(GREEDY, temperature_ppm=1_000_000, seed=3)
    even = np.zeros(VOCABULARY, dtype=np.float32)

    def drawn(prompt: TokenIds, count: int) -> list[int]:
        made = Answer(
            asked([], sampler=sampler, tokens_max=99, stop_ids=[]),
            TOKENIZER,
            prompt=prompt,
            context_tokens=500,
            seed=3,
        )
        found = []
        for _ in range(count):
            made.take(even.copy())
            found.append(made.pending)
        return found

    assert drawn((2, 3), 6)[4:] == drawn((2, 3, 9, 9, 9, 9), 2)
    assert len(set(drawn((2, 3), 6))) > 1


@given(
    text=st.text(st.sampled_from("ab\n é"), max_size=20),
    stops=st.lists(st.text(st.sampled_from("ab\n"), min_size=1, max_size=3), max_size=2),
    trim=st.booleans(),
)
def test_ids_are_a_prefix_of_what_was_generated_and_spell_the_text(
    text: str, stops: list[str], trim: bool
) -> None:
    ids = text_ids(text)
    items, finish, made = answer((*ids, EOT), stops=stops, deliver_trim=trim)
    assert finish == "stop"
    out, given_ids = joined(items)
    assert given_ids == ids[: len(given_ids)]
    raw = TOKENIZER.decode(given_ids).decode()
    assert out == (raw.strip() if trim else raw)
    # Streamed or not, once it has ended it gives nothing more.
    assert made.rest() is None


@pytest.mark.parametrize("top", [0, 3])
def test_each_id_has_its_logprob(top: int) -> None:
    items, _, _ = answer((*text_ids("é\nQz"), EOT), logprobs_top=top, stops=["\nQ:"])
    for item in items:
        assert item.logprobs is not None
        assert tuple(entry.token for entry in item.logprobs) == unpack(item.ids or b"")
        assert all(len(entry.top) == top for entry in item.logprobs)
