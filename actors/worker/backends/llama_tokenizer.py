"""A GGUF file's vocabulary as a Tokenizer, without its weights.

The library loads the vocabulary alone (about half a second for 262,144 tokens), so a process that
only assembles never holds a model and never waits for one that computes.

Discipline `cut-structural/1`. The library never turns content into a control token when told not
to parse special tokens, but it still matches *user-defined* tokens. Most of these are harmless
(runs of newlines, tags of HTML); the structural ones (`<start_of_image>` …) are not. So content is
cut after the first character of each occurrence of a structural text and the parts are tokenized
apart: no part holds the whole text, so none can become its token. Then every id is checked against
the deny set, and the ids' bytes against the text: a vocabulary that fails either is a fault, never
an answer.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import struct
from pathlib import Path
from typing import Any, Final

from actors.worker.backends.llama_library import library
from protocol.errors import ContentError, WorkerFault
from protocol.tokenizer import TokenizerContract
from protocol.tokens import TokenIds, pack

DISCIPLINE: Final = "cut-structural/1"
# Token attributes of the library (enum llama_token_attr).
_UNKNOWN: Final = 1
_UNUSED: Final = 2
_CONTROL: Final = 8
# Texts that mean something to a model's runtime, whatever type a vocabulary gives them.
_STRUCTURAL: Final = (b"[multimodal]", b"</s>", b"<start_of_image>", b"<end_of_image>")
_TURN: Final = {"start_of_turn": b"<start_of_turn>", "end_of_turn": b"<end_of_turn>"}
# U+2581, which stands for a space inside vocabularies: content that holds it reads as a space.
_SPACE: Final = "\u2581".encode()
_BUFFER_TOKENS_MIN: Final = 256


class LlamaTokenizer:
    """The tokenizer of the GGUF file at `path`: implements protocol.tokenizer.Tokenizer.

    Pure and safe from several threads: the library's tokenizer is, and buffers are per call.
    `model` lends an already loaded model of that file, which is freed after `close`.
    Raises WorkerFault for a file without a readable vocabulary or one that breaks the contract.
    """

    def __init__(self, path: Path, *, model: Any = None) -> None:
        self._library: Any = library()
        self._owned = None if model else _load_vocabulary(self._library, path)
        self._vocabulary: Any = self._library.llama_model_get_vocab(model or self._owned)
        texts, attributes, digest = self._walk()
        self.deny: frozenset[int] = self._deny(texts, attributes)
        self.contract = TokenizerContract(
            v=1,
            kind="tokenizer",
            vocabulary_digest=digest,
            vocabulary_tokens=len(texts),
            control=self._control(texts, attributes),
            deny_digest=hashlib.sha256(pack(sorted(self.deny))).digest(),
            discipline=DISCIPLINE,
        )
        self._pieces: dict[int, bytes] = {}
        structural = (re.escape(text.decode()) for text in _STRUCTURAL if text in texts)
        # A look-ahead finds overlapping occurrences too; `(?!)` never matches.
        self._cut = re.compile(f"(?=(?:{'|'.join(structural) or '(?!)'}))")
        # A vocabulary that puts a space before text cannot give content back: found here at once.
        self.encode("a")

    def encode(self, text: str) -> TokenIds:
        """The ids of `text` as content. Raises ContentError for text that is not Unicode."""
        try:
            whole = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ContentError(
                f"character {error.start} is a lone surrogate: content is Unicode text",
                index=error.start,
            ) from error
        cuts = [match.start() + 1 for match in self._cut.finditer(text)]
        if cuts:
            bounds = zip([0, *cuts], [*cuts, len(text)], strict=True)
            ids = [
                token
                for start, stop in bounds
                for token in self._tokenize(text[start:stop].encode("utf-8"))
            ]
        else:
            ids = self._tokenize(whole)
        if not self.deny.isdisjoint(ids):
            raise WorkerFault("the library made a control token of content (I-NO-FORGERY)")
        if self.decode(tuple(ids)).replace(_SPACE, b" ") != whole.replace(_SPACE, b" "):
            raise WorkerFault("the library's tokens do not spell the content that it was given")
        return tuple(ids)

    def piece(self, token: int) -> bytes:
        """The bytes of one id: b"" for control ids. Raises ContentError outside the vocabulary."""
        found = self._pieces.get(token)
        if found is None:
            if not 0 <= token < self.contract.vocabulary_tokens:
                raise ContentError(
                    f"token {token} is outside the vocabulary of "
                    f"{self.contract.vocabulary_tokens} tokens",
                    token=token,
                )
            found = self._pieces[token] = self._read_piece(token)
        return found

    def decode(self, ids: TokenIds) -> bytes:
        """The bytes of `ids`, joined. Raises ContentError as `piece` does."""
        pieces = self._pieces
        try:
            return b"".join([pieces[token] for token in ids])
        except KeyError:
            return b"".join(map(self.piece, ids))

    def close(self) -> None:
        """Give up the vocabulary, which is freed with it if it is its own. Reading anew raises
        WorkerFault afterwards."""
        self._vocabulary = None
        if self._owned is not None:
            self._library.llama_model_free(self._owned)
            self._owned = None

    def _tokenize(self, data: bytes) -> list[int]:
        if not data:
            return []
        self._check_open()
        # One token takes at least one byte. A power of two keeps the number of ctypes types small.
        size = max(_BUFFER_TOKENS_MIN, 1 << len(data).bit_length())
        buffer = (ctypes.c_int32 * size)()
        count = self._library.llama_tokenize(
            self._vocabulary, data, len(data), buffer, size, False, False
        )
        if count < 0:
            raise WorkerFault(f"the library refused {len(data)} bytes of content (code {count})")
        return buffer[:count]

    def _check_open(self) -> None:
        # The library would read memory that was freed.
        if self._vocabulary is None:
            raise WorkerFault("the tokenizer was closed")

    def _read_piece(self, token: int) -> bytes:
        self._check_open()
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            count = int(
                self._library.llama_token_to_piece(self._vocabulary, token, buffer, size, 0, False)
            )
            if count >= 0:
                return buffer.raw[:count]
            size = -count

    def _walk(self) -> tuple[dict[bytes, int], list[int], bytes]:
        """Every token's text → id, every id's attributes, and the vocabulary digest: SHA-256 over
        (length u32, text, attributes u32, score f32), little-endian, in id order."""
        vocabulary = self._vocabulary
        read = self._library
        count = read.llama_vocab_n_tokens(vocabulary)
        texts = [read.llama_vocab_get_text(vocabulary, token) for token in range(count)]
        attributes = [read.llama_vocab_get_attr(vocabulary, token) for token in range(count)]
        scores = [read.llama_vocab_get_score(vocabulary, token) for token in range(count)]
        framed = struct.Struct("<If").pack
        digest = hashlib.sha256()
        digest.update(
            b"".join(
                [
                    len(text).to_bytes(4, "little") + text + framed(attribute, score)
                    for text, attribute, score in zip(texts, attributes, scores, strict=True)
                ]
            )
        )
        return {text: token for token, text in enumerate(texts)}, attributes, digest.digest()

    def _deny(self, texts: dict[bytes, int], attributes: list[int]) -> frozenset[int]:
        refused = _CONTROL | _UNKNOWN | _UNUSED
        denied = {token for token, attribute in enumerate(attributes) if attribute & refused}
        denied |= {texts[text] for text in _STRUCTURAL if text in texts}
        ends = self._library.llama_vocab_is_eog
        denied |= {token for token in range(len(attributes)) if ends(self._vocabulary, token)}
        return frozenset(denied)

    def _control(self, texts: dict[bytes, int], attributes: list[int]) -> dict[str, int]:
        control = {
            name: texts[text]
            for name, text in _TURN.items()
            if text in texts and attributes[texts[text]] & _CONTROL
        }
        for name in ("bos", "eos"):
            token = getattr(self._library, f"llama_vocab_{name}")(self._vocabulary)
            if token >= 0:
                control[name] = token
        return control


def _load_vocabulary(module: Any, path: Path) -> Any:
    if not path.is_file():
        raise WorkerFault(f"no GGUF file at {path}")
    parameters = module.llama_model_default_params()
    parameters.vocab_only = True
    model = module.llama_model_load_from_file(str(path).encode(), parameters)
    if not model:
        raise WorkerFault(f"{path} is not a GGUF file that the library can read")
    return model
