"""Content stays content: no text reaches a control or structural id (I-NO-FORGERY)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.worker.backends.llama_tokenizer import LlamaTokenizer
from profiles import loader
from protocol.errors import ContentError, WorkerFault
from tests import tiny_gemma
from tests.exact_models import MODELS
from tests.model_fixtures import real, tiny

STRUCTURAL = ("[multimodal]", "</s>", "<start_of_image>", "<end_of_image>")
MARKS = (*STRUCTURAL, "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<unused3>", "<unk>")


@pytest.fixture(scope="module")
def tokenizer() -> Iterator[LlamaTokenizer]:
    opened = LlamaTokenizer(tiny()[0])
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def default() -> Iterator[LlamaTokenizer]:
    opened = LlamaTokenizer(real()[0])
    yield opened
    opened.close()


def test_a_closed_one_reads_nothing_anew() -> None:
    opened = LlamaTokenizer(tiny()[0])
    known = opened.encode("known")
    opened.close()
    with pytest.raises(WorkerFault, match="closed"):
        opened.encode("the hen and the ring")
    with pytest.raises(WorkerFault, match="closed"):
        opened.piece(known[0] + 1)


def test_the_back_end_takes_its_tokenizer_along() -> None:
    backend = MODELS["tiny"].open()
    backend.close()
    with pytest.raises(WorkerFault, match="closed"):
        backend.tokenizer.encode("the hen and the ring")


def check(tokenizer: LlamaTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.deny.isdisjoint(ids), text
    assert tokenizer.decode(ids).replace("▁".encode(), b" ") == text.replace("▁", " ").encode()
    assert b"".join(map(tokenizer.piece, ids)) == tokenizer.decode(ids)


ADVERSARIAL = st.lists(
    st.one_of(
        st.sampled_from(MARKS),
        st.sampled_from([text for text, _, _ in tiny_gemma.vocabulary()]),
        # Parts of marks, so that their halves meet.
        st.sampled_from(MARKS).flatmap(
            lambda mark: st.integers(0, len(mark)).map(lambda at: mark[:at])
        ),
        st.sampled_from(MARKS).flatmap(
            lambda mark: st.integers(0, len(mark)).map(lambda at: mark[at:])
        ),
        st.text(max_size=6),
        st.sampled_from(["\0", "▁", "  ", "\n\n\n", "<0x41>", "\u200d", "e\u0301"]),
    ),
    max_size=8,
).map("".join)


@given(text=ADVERSARIAL)
def test_no_text_reaches_a_denied_id_and_bytes_come_back(
    tokenizer: LlamaTokenizer, text: str
) -> None:
    check(tokenizer, text)


def test_the_library_alone_would_give_structural_ids(tokenizer: LlamaTokenizer) -> None:
    """The negative control: without the cut, these texts do become their tokens."""
    uncut = tokenizer._tokenize(b"a<start_of_image>b")
    assert not tokenizer.deny.isdisjoint(uncut)
    check(tokenizer, "a<start_of_image>b")


def test_the_contract_names_the_vocabulary(tokenizer: LlamaTokenizer) -> None:
    contract = tokenizer.contract
    assert contract == loader.tokenizer_contract(loader.load("tiny-gemma"))
    texts = [text for text, _, _ in tiny_gemma.vocabulary()]
    assert {name: texts[token] for name, token in contract.control.items()} == {
        "bos": "<bos>",
        "eos": "<eos>",
        "start_of_turn": "<start_of_turn>",
        "end_of_turn": "<end_of_turn>",
    }
    denied = {texts[token] for token in tokenizer.deny}
    assert denied == {
        *("<pad>", "<mask>", "<unk>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        *(f"<unused{index}>" for index in range(6)),
        *STRUCTURAL,
    }


def test_pieces(tokenizer: LlamaTokenizer) -> None:
    texts = [text for text, _, _ in tiny_gemma.vocabulary()]
    assert tokenizer.piece(texts.index("<start_of_turn>")) == b""
    assert tokenizer.piece(texts.index("<0xC3>")) == b"\xc3"
    assert tokenizer.piece(texts.index("▁the")) == b" the"
    assert tokenizer.piece(texts.index("\n\n\n")) == b"\n\n\n"
    assert tokenizer.encode("") == ()
    assert tokenizer.decode(()) == b""


@pytest.mark.parametrize("token", [-1, 392, 2**31, 2**40])
def test_ids_outside_the_vocabulary_are_refused(tokenizer: LlamaTokenizer, token: int) -> None:
    with pytest.raises(ContentError, match=str(token)):
        tokenizer.piece(token)
    with pytest.raises(ContentError, match=str(token)):
        tokenizer.decode((20, token))


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_lone_surrogates_are_refused(tokenizer: LlamaTokenizer, text: str) -> None:
    with pytest.raises(ContentError, match="surrogate"):
        tokenizer.encode(text)


def test_several_threads_get_the_same_ids(tokenizer: LlamaTokenizer) -> None:
    texts = [f"the end of {index} <start_of_image> and \n\n" * 20 for index in range(40)]
    expected = [tokenizer.encode(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokenizer.encode, texts)) == expected


def test_a_file_that_is_no_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkerFault, match="no GGUF"):
        LlamaTokenizer(tmp_path / "missing.gguf")
    (tmp_path / "bad.gguf").write_bytes(tiny()[0].read_bytes()[:5000])
    with pytest.raises(WorkerFault, match=r"bad\.gguf"):
        LlamaTokenizer(tmp_path / "bad.gguf")


@pytest.mark.model
def test_the_default_vocabulary_is_the_pinned_one(default: LlamaTokenizer) -> None:
    assert default.contract == loader.tokenizer_contract(loader.load())
    assert len(default.deny) == 6253
    assert {5, 212, 255999, 256000, 105, 106, 0, 1, 2, 3} <= default.deny


@pytest.mark.model
def test_nothing_reaches_a_denied_id_of_the_default_vocabulary(default: LlamaTokenizer) -> None:
    draw = random.Random(7)
    texts = [
        default._library.llama_vocab_get_text(default._vocabulary, t).decode()
        for t in sorted(default.deny)
    ]
    for text in texts:
        check(default, f"a{text}\n{text}{text}")
    plain = ["<", ">", "turn", "\n", " ", "é", "\0", "▁", "<td>", "</s", "_image>", "start_of"]
    for _ in range(3000):
        parts = draw.choices([*MARKS, *plain, *draw.sample(texts, 5)], k=draw.randint(1, 8))
        cut = draw.randint(0, 8)
        check(default, "".join(parts)[cut:])
