"""Loading a GGUF file as a model, and holding it against what a profile pins.

The file's digest is checked by whoever resolves the path; here the loaded model, its vocabulary
and the library itself are compared with the profile, so that a profile can only ever be claimed
for what really runs.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final

from actors.worker.backends.llama_library import build_digest, version
from actors.worker.backends.llama_tokenizer import LlamaTokenizer
from profiles.profile import RuntimeProfile
from protocol.errors import ProfileFault, WorkerFault

NAME: Final = "llama.cpp"


def load_model(library: Any, path: Path, profile: RuntimeProfile) -> Any:
    """The model at `path`, memory-mapped; the caller frees it.

    Raises WorkerFault if the library cannot load it, ProfileFault if its shape is not pinned.
    """
    if not path.is_file():
        raise WorkerFault(f"no GGUF file at {path}")
    parameters = library.llama_model_default_params()
    parameters.n_gpu_layers = 0
    parameters.load_mode = library.LLAMA_LOAD_MODE_MMAP
    parameters.use_extra_bufts = profile.weights_repack
    model = library.llama_model_load_from_file(str(path).encode(), parameters)
    if not model:
        raise WorkerFault(f"{path} is not a GGUF model that the library can load")
    try:
        pinned = profile.model
        for name, found, expected in (
            (
                "architecture",
                _metadata(library, model, "general.architecture"),
                pinned.architecture,
            ),
            ("layers", library.llama_model_n_layer(model), pinned.layers),
            ("window_tokens", library.llama_model_n_swa(model), pinned.window_tokens),
        ):
            _expect(profile, f"model's {name}", found, expected)
    except BaseException:
        library.llama_model_free(model)
        raise
    return model


def check_build(profile: RuntimeProfile) -> None:
    """Raises ProfileFault unless the installed library is the one that the profile pins."""
    _expect(profile, "back end", NAME, profile.backend)
    _expect(profile, "back end's version", version(), profile.backend_version)
    _expect(profile, "library's build", build_digest().hex(), profile.build_digest.hex())


def check_tokenizer(tokenizer: LlamaTokenizer, profile: RuntimeProfile) -> None:
    """Raises ProfileFault unless the vocabulary is the one that the profile pins."""
    found, expected = tokenizer.contract, profile.tokenizer
    for field in found.__struct_fields__:
        _expect(profile, f"tokenizer's {field}", getattr(found, field), getattr(expected, field))


def _expect(profile: RuntimeProfile, name: str, found: object, expected: object) -> None:
    if found != expected:
        shown = [x.hex() if isinstance(x, bytes) else x for x in (found, expected)]
        raise ProfileFault(
            f"profile {profile.name}: the {name} is {shown[0]}, pinned is {shown[1]}",
            profile=profile.name,
        )


def _metadata(library: Any, model: Any, key: str) -> str:
    buffer = ctypes.create_string_buffer(256)
    size = library.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace") if size >= 0 else ""
