"""Ids from outside: inside the vocabulary, and never a control or structural one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ContentError
from protocol.record import object_id
from protocol.tokenizer import check_outside_ids
from tests.fake_tokenizer import DENY, VOCABULARY_TOKENS, FakeTokenizer

TOKENIZER = FakeTokenizer()


@pytest.mark.req("ASM-3")
@given(st.lists(st.integers(-2, VOCABULARY_TOKENS + 1) | st.integers()).map(tuple))
def test_the_first_id_that_content_may_not_hold_is_named(ids: tuple[int, ...]) -> None:
    bad = [
        index
        for index, token in enumerate(ids)
        if token not in range(VOCABULARY_TOKENS) or token in DENY
    ]
    if not bad:
        assert check_outside_ids(ids, TOKENIZER) == ids
        return
    with pytest.raises(ContentError) as caught:
        check_outside_ids(ids, TOKENIZER)
    assert caught.value.details == {"index": bad[0], "token": ids[bad[0]]}


@pytest.mark.req("ASM-3")
@pytest.mark.parametrize("token", sorted(DENY))
def test_every_denied_id_is_refused_wherever_it_stands(token: int) -> None:
    for ids in ((token,), (65, token), (token, 65), (65, token, 66)):
        with pytest.raises(ContentError, match=f"token {token} at index {ids.index(token)} is a c"):
            check_outside_ids(ids, TOKENIZER)


def test_outside_the_vocabulary_is_said_with_its_size() -> None:
    for token in (-1, VOCABULARY_TOKENS, 2**40):
        with pytest.raises(ContentError, match=f"vocabulary of {VOCABULARY_TOKENS} tokens"):
            check_outside_ids((65, token), TOKENIZER)
    assert check_outside_ids((), TOKENIZER) == ()


@pytest.mark.req("ASM-1")
@pytest.mark.parametrize(
    "change",
    [
        {"vocabulary_digest": b"v" * 32},
        {"vocabulary_tokens": 7},
        {"control": {"bos": 1}},
        {"deny_digest": b"d" * 32},
        {"discipline": "words/1"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_part_of_a_tokenizers_contract_is_in_its_id(change: dict[str, object]) -> None:
    contract = TOKENIZER.contract
    changed = msgspec.structs.replace(contract, **change)
    assert object_id(changed) != object_id(contract)
    assert object_id(FakeTokenizer().contract) == object_id(contract)
