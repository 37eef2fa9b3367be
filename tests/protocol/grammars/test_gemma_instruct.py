"""`gemma3-it`: its shape, its deliberate differences, and equality with the model's template."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given

from protocol.blocks import BlockType, ContextBlock, Representation, Role, Source
from protocol.grammar import State
from protocol.grammars.fence import nonce
from protocol.grammars.gemma_instruct import GemmaInstruct
from protocol.grammars.tools import call_block, declarations_block, result_block
from protocol.ids import ContractId, TextId
from protocol.record import object_id
from protocol.tokens import TokenIds, pack
from protocol.transform import fold, fold_to_state
from tests import default_gemma
from tests.block_samples import Pair, conversations, file, model, system, user
from tests.fake_tokenizer import CONTROL, FakeTokenizer, shown
from tests.template_oracle import Message, TemplateError, TemplateOracle

_GRAMMAR = GemmaInstruct(FakeTokenizer())
_USER, _MODEL, _END = "<start_of_turn>user\n", "<start_of_turn>model\n", "<end_of_turn>\n"
_ROLE_TO_PAIR = {"system": system, "user": user, "assistant": model}


def prompt(grammar: GemmaInstruct, *pairs: Pair) -> TokenIds:
    stream, state = fold_to_state(grammar, pairs)
    return sum((tokens.ids for tokens in stream), ()) + grammar.opener(state)


def reads(*pairs: Pair) -> str:
    """The context without opener, control ids by name."""
    return shown(sum((tokens.ids for tokens in fold(_GRAMMAR, pairs)), ()))


def test_a_conversation_with_system_text() -> None:
    pairs = (system("Be kind."), user(" Hello\n"), model("Hi!"), user("Bye"))
    assert shown(prompt(_GRAMMAR, *pairs)) == (
        f"<bos>{_USER}Be kind.\n\nHello{_END}{_MODEL}Hi!{_END}{_USER}Bye{_END}{_MODEL}"
    )


def test_no_blocks_at_all_still_open_the_models_turn() -> None:
    assert shown(prompt(_GRAMMAR)) == f"<bos>{_MODEL}"


def test_nothing_follows_content_in_a_context() -> None:
    assert reads(user("a")) == f"<bos>{_USER}a"
    assert reads(user("")) == f"<bos>{_USER}"


@pytest.mark.req("ASM-5")
@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        # The numbers are those of the grammar's docstring.
        pytest.param([user("<end_of_turn>")], f"{_USER}<end_of_turn>", id="1"),
        pytest.param([user("<file-x>")], f"{_USER}&lt;file-x>", id="2"),
        pytest.param([user("a"), user("b")], f"{_USER}a\n\nb", id="3-user"),
        pytest.param([model("a"), model("b")], f"{_MODEL}a\n\nb", id="3-model"),
        pytest.param(
            [user("a"), model("b"), system("c"), user("d")],
            f"{_USER}a{_END}{_MODEL}b{_END}{_USER}c\n\nd",
            id="4",
        ),
        pytest.param([model("a"), user("b")], f"{_MODEL}a{_END}{_USER}b", id="5"),
        pytest.param([system("a")], f"{_USER}a", id="6"),
        pytest.param([system("\n a \n"), user("b")], f"{_USER}a\n\nb", id="7"),
        pytest.param([system(" "), user("b")], f"{_USER}b", id="8"),
        pytest.param([user("a"), model("b")], f"{_USER}a{_END}{_MODEL}b", id="9"),
        pytest.param([user("x", name="Ada")], f"{_USER}x", id="12"),
    ],
)
def test_deliberate_differences(pairs: list[Pair], text: str) -> None:
    assert reads(*pairs) == f"<bos>{text}"


@pytest.mark.req("ASM-5")
def test_deliberate_difference_10_the_opener_continues_a_models_turn() -> None:
    assert shown(prompt(_GRAMMAR, user("a"), model("b"))) == f"<bos>{_USER}a{_END}{_MODEL}b\n\n"


@pytest.mark.req("ASM-5")
def test_deliberate_difference_11_files_and_tools_have_a_rendering() -> None:
    declared = declarations_block([{"name": "weather"}])
    call = call_block("weather", '{"city": "Oslo"}')
    result = result_block("21", name="weather")
    text = reads(declared, file("key = 1", "a.ini"), user("Warm?"), call, result, model("Yes"))
    tools, ini, answer = (nonce(each) for each in (declared[1], "key = 1", "21"))
    assert text == (
        f"<bos>{_USER}You can call these tools. Each line describes one, as JSON:\n"
        f'<tools-{tools}>\n{{"name": "weather"}}\n</tools-{tools}>\n'
        "To call a tool, answer with nothing but one line of JSON for each call:\n"
        '{"name": the tool\'s name, "parameters": an object with its arguments}\n\n'
        f'<file-{ini} path="a.ini" trust="none">\nkey = 1\n</file-{ini}>\n\nWarm?{_END}'
        f'{_MODEL}{{"name": "weather", "parameters": {{"city": "Oslo"}}}}{_END}'
        f'{_USER}<tool-result-{answer} tool="weather" trust="none">\n21\n'
        f"</tool-result-{answer}>{_END}{_MODEL}Yes"
    )


def test_an_empty_part_takes_no_separator_after_it() -> None:
    assert reads(user("a"), user(""), user("b")) == f"<bos>{_USER}a\n\nb"
    assert reads(user(""), user(" "), user("b")) == f"<bos>{_USER}b"


@given(conversations)
def test_a_models_head_is_the_opener_of_the_state_before_it(pairs: list[Pair]) -> None:
    """An answer stands on the tokens that it was generated on, whatever stood before."""
    _, state = fold_to_state(_GRAMMAR, pairs)
    for answer in (model("x"), model(""), model("<file-"), call_block("t", "{}")):
        tokens, _ = _GRAMMAR.step(state, *answer)
        assert tokens.head == _GRAMMAR.opener(state)


@given(conversations)
def test_a_head_depends_on_the_state_and_the_role_alone(pairs: list[Pair]) -> None:
    state = _GRAMMAR.initial()
    for block, text in pairs:
        other = model("other") if block.role is Role.MODEL else system("other")
        tokens, after = _GRAMMAR.step(state, block, text)
        assert tokens.head == _GRAMMAR.step(state, *other)[0].head
        state = after


@given(conversations)
def test_turns_alternate_and_are_closed_before_the_next(pairs: list[Pair]) -> None:
    ids = prompt(_GRAMMAR, *pairs)
    controls = [token for token in ids if token >= 256]
    opens, ends = CONTROL["start_of_turn"], CONTROL["end_of_turn"]
    assert controls[0] == CONTROL["bos"]
    assert set(controls[1::2]) == {opens}
    assert set(controls[2::2]) <= {ends}
    turns = [bytes(ids[index + 1 : index + 3]) for index, token in enumerate(ids) if token == opens]
    assert all(a != b for a, b in pairwise(turns))
    assert turns[-1] == b"mo"


def test_generated_ids_stand_where_their_text_would() -> None:
    block = ContextBlock(
        v=1,
        role=Role.MODEL,
        type=BlockType.MODEL_TURN,
        source=Source(object=TextId.of(b"x")),
        representation=Representation(
            kind="exact-tokens",
            tokens=pack((32, 0xC3, 10)),
            tokenizer=ContractId(object_id(_GRAMMAR.tokenizer.contract).digest),
        ),
        rendering={},
        trust=True,
    )
    tokens, state = _GRAMMAR.step(State("user", "part"), block, " x\n")
    assert tokens.content == (32, 0xC3, 10)
    assert state == State("model", "part")


def test_stops_and_delivery() -> None:
    assert _GRAMMAR.stop_ids == {CONTROL["eos"], CONTROL["end_of_turn"]}
    assert _GRAMMAR.stop_texts == ()
    assert _GRAMMAR.deliver(" as it is\n") == " as it is\n"


# Equality with the model's own template and tokenizer.

_CONVERSATIONS = 3_000
_WORDS = (
    *("the", "of", "and", "to", "is", "that", "was", "by", "this", "not", "def", "return", "Paris"),
    *(
        "2024",
        "3.14",
        "x=1;",
        "naïve",
        "façade",
        "日本語",
        "привет",
        "مرحبا",
        "🐦",
        "👩\u200d🚀",
        "it's",
    ),
    *("<b>bold</b>", "</p>", "http://example.org/?q=1", "`code`", '"quoted"', "C++", "#tag", "$5"),
    *("@name", "50%", "a_b", "{}", "[]", "()", "<=", "=>", "--", "…"),
)
_JOINTS = (" ",) * 12 + ("\n", "\n\n", "\n\n\n", "  ", "\t", ", ", ". ", "\n- ", "\n    ", "")


@cache
def _oracle() -> TemplateOracle:
    return TemplateOracle()


def _words(random: Random) -> str:
    parts = []
    for _ in range(random.choice((1, 2, 5, 20, 60))):
        parts += [random.choice(_WORDS), random.choice(_JOINTS)]
    return "".join(parts)


def _ordinary(random: Random) -> list[Message]:
    """An alternating conversation, perhaps with system text, as clients send them."""
    messages = []
    if random.random() < 0.5:
        messages.append({"role": "system", "content": _words(random).strip()})
    for index in range(random.randint(1, 7)):
        edge = random.choice(("", "", "", " ", "\n", "\n\n", "\t "))
        content = "" if random.random() < 0.02 else edge + _words(random) + edge
        messages.append({"role": ("user", "assistant")[index % 2], "content": content})
    return [message for message in messages if message["role"] != "system" or message["content"]]


@pytest.mark.model
@pytest.mark.req("ASM-5")
def test_ordinary_conversations_have_the_ids_of_the_models_own_template() -> None:
    grammar = GemmaInstruct(default_gemma.tokenizer())
    random = Random(20_25)
    for _ in range(_CONVERSATIONS):
        messages = _ordinary(random)
        pairs = [_ROLE_TO_PAIR[message["role"]](message["content"]) for message in messages]
        ids = sum((tokens.ids for tokens in fold(grammar, pairs)), ())
        if messages[-1]["role"] == "assistant":
            # Difference 9: the template ends the last turn, a context leaves it open.
            end = default_gemma.tokenizer().contract.control["end_of_turn"]
            assert (*ids, end, 107) == _oracle().ids(messages, opener=False), messages
        else:
            assert prompt(grammar, *pairs) == _oracle().ids(messages), messages


@pytest.mark.model
@pytest.mark.req("ASM-5")
def test_what_the_template_does_where_we_differ() -> None:
    """The other half of each difference: were it gone upstream, the list would be wrong."""
    oracle = _oracle()

    def text(*messages: tuple[str, str]) -> str:
        return oracle.text([{"role": role, "content": said} for role, said in messages])

    assert 106 in oracle.tokens("<end_of_turn>")  # 1
    assert "<file-x>" in text(("user", "<file-x>"))  # 2
    for raising in (  # 3, 4, 5
        [("user", "a"), ("user", "b")],
        [("user", "a"), ("assistant", "b"), ("system", "c"), ("user", "d")],
        [("assistant", "a")],
    ):
        with pytest.raises(TemplateError, match="must alternate"):
            text(*raising)
    assert text(("system", "a")) == f"<bos>{_MODEL}"  # 6
    assert f"{_USER}\n a \n\n\nb" in text(("system", "\n a \n"), ("user", "b"))  # 7
    assert f"{_USER}\n\nb" in text(("system", ""), ("user", "b"))  # 8
    assert text(("user", "a"), ("assistant", "b")).endswith(f"b{_END}{_MODEL}")  # 9, 10
