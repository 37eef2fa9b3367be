"""Profile files → ProfileSpec → RuntimeProfile.

`load` reads and checks the static part. `bind` adds what only this machine knows: the weights that
are there (their digest has to be the pinned one), the digest of the library that will run them,
and the machine's instruction sets.
"""

from __future__ import annotations

import platform
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from profiles import weights
from profiles.profile import RuntimeProfile, isa
from profiles.spec import ProfileSpec
from protocol.assembly import ModelContract
from protocol.errors import ProfileFault
from protocol.tokenizer import TokenizerContract

DEFAULT: Final = "gemma3-270m-exact"
_SUFFIX: Final = ".toml"
_DIRECTORY: Final = Path(__file__).parent
# The library pads a stream's context to this many tokens; anything else would be another size.
_CONTEXT_STEP_TOKENS: Final = 256


def names() -> list[str]:
    """The profiles that are shipped, in alphabetical order."""
    return sorted(path.stem for path in _DIRECTORY.glob(f"*{_SUFFIX}"))


def load(name_or_path: str | Path = DEFAULT) -> ProfileSpec:
    """The profile of that name, or in that `.toml` file.

    Raises ProfileFault that names the file and the key: no such profile, not TOML, a key that is
    missing, unknown or mistyped, or values that contradict each other.
    """
    path = Path(name_or_path)
    if path.suffix != _SUFFIX:
        path = _DIRECTORY / f"{name_or_path}{_SUFFIX}"
        if str(name_or_path) not in names():
            raise ProfileFault(
                f"no profile {str(name_or_path)!r}: there are {', '.join(names())}, or give the "
                f"path of a {_SUFFIX} file"
            )
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileFault(f"profile {path}: {error}") from error
    try:
        spec = msgspec.convert({"name": path.stem, **table}, ProfileSpec, strict=True)
    except msgspec.ValidationError as error:
        raise ProfileFault(f"profile {path}: {error}", file=str(path)) from error
    _check(spec, path)
    return spec


def bind(spec: ProfileSpec, weights_path: Path, build_digest: bytes) -> RuntimeProfile:
    """The profile on this machine. `build_digest` is the back end's, 32 bytes.

    Raises ProfileFault if the file at `weights_path` is not the one that the profile pins.
    """
    weights.verify(weights_path, spec.weights.sha256)
    if len(build_digest) != 32:
        raise ProfileFault(f"a build digest is 32 bytes, not {len(build_digest)}")
    machine = platform.machine()
    return RuntimeProfile(
        v=1,
        name=spec.name,
        model=model_contract(spec),
        tokenizer=tokenizer_contract(spec),
        build_digest=build_digest,
        machine=machine,
        isa=isa(machine),
        **msgspec.structs.asdict(spec.runtime),
    )


def model_contract(spec: ProfileSpec) -> ModelContract:
    """The contract of the network that the profile names."""
    return ModelContract(
        v=1,
        kind="model",
        weights_digest=bytes.fromhex(spec.weights.sha256),
        **msgspec.structs.asdict(spec.model),
    )


def tokenizer_contract(spec: ProfileSpec) -> TokenizerContract:
    """The contract of the tokenizer that the profile names."""
    pinned = spec.tokenizer
    return TokenizerContract(
        v=1,
        kind="tokenizer",
        vocabulary_digest=bytes.fromhex(pinned.vocabulary_digest),
        vocabulary_tokens=pinned.vocabulary_tokens,
        control=pinned.control,
        deny_digest=bytes.fromhex(pinned.deny_digest),
        discipline=pinned.discipline,
    )


def _check(spec: ProfileSpec, path: Path) -> None:
    runtime = spec.runtime
    rules = (
        ("name", spec.name == path.stem, f"is the file's stem, {path.stem!r}"),
        (
            "runtime.context_tokens",
            runtime.context_tokens % _CONTEXT_STEP_TOKENS == 0,
            f"is a multiple of {_CONTEXT_STEP_TOKENS}, not {runtime.context_tokens}",
        ),
        (
            "runtime.schedule",
            runtime.schedule == f"block/{runtime.chunk_tokens}",
            f"is 'block/{runtime.chunk_tokens}' for that chunk_tokens, not {runtime.schedule!r}",
        ),
        (
            "runtime.batch_tokens",
            runtime.batch_tokens >= runtime.ubatch_tokens >= runtime.chunk_tokens,
            "and ubatch_tokens hold a whole chunk, so that the library never cuts one itself",
        ),
        (
            "runtime.page_tokens",
            runtime.page_tokens == runtime.chunk_tokens,
            "is chunk_tokens: an advance becomes one page",
        ),
        (
            "runtime.chunk_tokens",
            runtime.chunk_tokens <= (spec.model.window_tokens or runtime.chunk_tokens),
            f"is at most the model's window, {spec.model.window_tokens}: the rows of a longer "
            "advance could not be exported, and its state would have no digest",
        ),
        (
            "runtime.group_max",
            runtime.group_max <= runtime.streams,
            f"is at most `streams`, {runtime.streams}",
        ),
        (
            "runtime.reproducible_generation",
            runtime.equality == "bitwise" or not runtime.reproducible_generation,
            "needs equality 'bitwise': from a state with other bytes another answer may follow",
        ),
        (
            "tokenizer.control",
            all(0 <= t < spec.tokenizer.vocabulary_tokens for t in spec.tokenizer.control.values()),
            f"holds ids below {spec.tokenizer.vocabulary_tokens}",
        ),
    )
    for key, holds, rule in rules:
        if not holds:
            raise ProfileFault(f"profile {path}: `{key}` {rule}", file=str(path), key=key)
