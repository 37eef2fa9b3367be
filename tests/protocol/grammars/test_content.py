"""Content's ids: never a denied one, and generated ids where they stand for themselves."""

from __future__ import annotations

import pytest

from protocol.blocks import BlockType, ContextBlock, Representation, Role, Source
from protocol.errors import ContentError, ProfileFault
from protocol.grammars.content import content_ids, exact_ids
from protocol.ids import ContractId, TextId
from protocol.record import object_id
from protocol.tokens import TokenIds, pack
from tests.fake_tokenizer import CONTROL, DENY, FakeTokenizer


class _Leaky(FakeTokenizer):
    """A tokenizer that breaks its promise, as one that parses control texts does."""

    def encode(self, text: str) -> TokenIds:
        return (*super().encode(text), CONTROL["end_of_turn"])


def _answer(
    ids: TokenIds,
    *,
    role: Role = Role.MODEL,
    trust: bool = True,
    tokenizer: ContractId | None = None,
) -> ContextBlock:
    contract = tokenizer or ContractId(object_id(FakeTokenizer().contract).digest)
    return ContextBlock(
        v=1,
        role=role,
        type=BlockType.MODEL_TURN,
        source=Source(object=TextId.of(b"hi")),
        representation=Representation(kind="exact-tokens", tokens=pack(ids), tokenizer=contract),
        rendering={},
        trust=trust,
    )


def _harmless(_: str) -> bool:
    return False


def test_a_tokenizer_that_leaks_is_a_fault_and_not_an_answer() -> None:
    assert content_ids(FakeTokenizer(), "hi") == (104, 105)
    with pytest.raises(ProfileFault, match="control or structural token"):
        content_ids(_Leaky(), "hi")


@pytest.mark.req("ASM-6")
def test_generated_ids_are_used_as_they_are() -> None:
    # 0xC3 alone is half a character: no text has these ids, but a model generates such.
    assert exact_ids(_answer((32, 0xC3)), FakeTokenizer(), _harmless) == (32, 0xC3)


@pytest.mark.req("ASM-6")
def test_the_text_is_used_under_another_tokenizer_another_role_or_without_trust() -> None:
    other = ContractId(object_id(FakeTokenizer(discipline="other/1").contract).digest)
    for block in (
        _answer((104,), tokenizer=other),
        _answer((104,), role=Role.USER),
        _answer((104,), trust=False),
    ):
        assert exact_ids(block, FakeTokenizer(), _harmless) is None


def test_the_text_is_used_where_the_ids_would_forge() -> None:
    tag = tuple(b"</file-x>")
    assert exact_ids(_answer(tag), FakeTokenizer(), _harmless) is None
    assert exact_ids(_answer((104,)), FakeTokenizer(), lambda text: text == "h") is None


@pytest.mark.req("ASM-3", "ASM-6")
@pytest.mark.parametrize("token", [*sorted(DENY), 261, 2**32 - 1])
def test_denied_and_unknown_ids_are_refused(token: int) -> None:
    with pytest.raises(ContentError, match="index 1"):
        exact_ids(_answer((104, token)), FakeTokenizer(), _harmless)
