"""Checks of the model: the digest, the tokenizer's contract and round trip, the template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.cli.checks import Check, Finding

if TYPE_CHECKING:
    from actors.config import Config
    from profiles.spec import ProfileSpec
    from protocol.tokenizer import Tokenizer

# Accents, scripts, an emoji of several code points, runs of blanks, and a text that must stay text.
_SAMPLE: Final = "Ein Rabe, naïve  ravens, 鴉, ворон, \U0001f426\u200d\u2b1b\n\n\t<end_of_turn>"


def model_checks(config: Config) -> list[Check]:
    """The checks in the order in which they are shown."""
    return [
        ("model", lambda: _weights(config)),
        ("tokenizer", lambda: _tokenizer(config)),
        ("template", lambda: _template(config)),
    ]


def _weights(config: Config) -> Finding:
    from profiles import loader, weights

    spec = loader.load(config.profile)
    path = weights.weights_path(spec, config.home_path)
    if not path.exists():
        return Finding("model", "warn", f"{path} is not here", f"huginn models pull {spec.name}")
    found = weights.digest(path)
    if found != spec.weights.sha256:
        cure = f"huginn models rm {spec.name} --yes, then huginn models pull {spec.name}"
        return Finding("model", "fail", f"{path} has SHA-256 {found}", cure)
    return Finding("model", "ok", f"{spec.model.name}, SHA-256 as pinned")


def _tokenizer(config: Config) -> Finding:
    from profiles import loader

    opened = _open(config)
    if opened is None:
        return Finding("tokenizer", "warn", "needs the model and libllama")
    spec, tokenizer = opened
    if tokenizer.contract != loader.tokenizer_contract(spec):
        cure = "the weights and the profile do not belong together: huginn models verify"
        return Finding("tokenizer", "fail", "not the pinned contract", cure)
    ids = tokenizer.encode(_SAMPLE)
    if tokenizer.decode(ids) != _SAMPLE.encode("utf-8"):
        return Finding("tokenizer", "fail", "content does not come back", "report this")
    return Finding("tokenizer", "ok", f"{len(_SAMPLE)} characters → {len(ids)} tokens and back")


def _template(config: Config) -> Finding:
    """A conversation under the profile's grammar: its content must hold no control token."""
    from protocol.blocks import BlockType, Role, text_block
    from protocol.grammars import grammar

    opened = _open(config)
    if opened is None:
        return Finding("template", "warn", "needs the model and libllama")
    spec, tokenizer = opened
    folded = grammar(spec.runtime.grammar, tokenizer)
    state, count = folded.initial(), 0
    for role, kind in (
        (Role.USER, BlockType.USER_TURN),
        (Role.MODEL, BlockType.MODEL_TURN),
        (Role.USER, BlockType.USER_TURN),
    ):
        block = text_block(role, kind, _SAMPLE)
        tokens, state = folded.step(state, block, _SAMPLE)
        if not tokenizer.deny.isdisjoint(tokens.content):
            return Finding("template", "fail", "content became control tokens", "report this")
        count += len(tokens.ids)
    opener = folded.opener(state)
    if not opener:
        return Finding("template", "fail", f"{folded.name} does not open an answer", "report this")
    detail = f"{folded.name}: 3 messages → {count + len(opener)} tokens, no forged control token"
    return Finding("template", "ok", detail)


def _open(config: Config) -> tuple[ProfileSpec, Tokenizer] | None:
    """The profile and its vocabulary; None where weights or library are missing."""
    from actors.cli.fetch import is_built
    from actors.worker.backends.llama_tokenizer import LlamaTokenizer
    from profiles import loader, weights

    spec = loader.load(config.profile)
    path = weights.weights_path(spec, config.home_path)
    # A file with another digest is not given to the library, which trusts what it parses.
    if not is_built() or not path.exists() or weights.digest(path) != spec.weights.sha256:
        return None
    return spec, LlamaTokenizer(path)
