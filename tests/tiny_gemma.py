"""A tiny random Gemma 3, the same bytes wherever it is built.

It has what the real ones have: 7 layers of which one attends in full (every sixth), a sliding
window (64), normed queries and keys, tied embeddings, and a SentencePiece vocabulary with byte
fallback, control tokens and user-defined ones. So it shows every property of exact prefix states,
at 7,000 tokens a second and 1.2 MB. Its weights are a stream of SHAKE-256, which no library's
random generator can change. The vocabulary's size, 392, is a multiple of 8.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

import gguf
import numpy as np
import numpy.typing as npt

LAYERS: Final = 7
WINDOW_TOKENS: Final = 64
VOCABULARY_TOKENS: Final = 392
_EMBEDDING: Final = 128
_HEADS: Final = 2
_HEAD: Final = 64
_FORWARD: Final = 256
_MATRIX: Final = gguf.GGMLQuantizationType.Q8_0

Tokens = list[tuple[str, gguf.TokenType, float]]
Floats = npt.NDArray[np.float32]
Tensor = tuple[str, npt.NDArray[np.generic], gguf.GGMLQuantizationType | None]


def vocabulary() -> Tokens:
    """Every token's text, type and score, in id order."""
    control, user, normal = (
        gguf.TokenType.CONTROL,
        gguf.TokenType.USER_DEFINED,
        gguf.TokenType.NORMAL,
    )
    tokens: Tokens = [
        ("<pad>", control, -1000.0),
        ("<eos>", control, -1000.0),
        ("<bos>", control, -1000.0),
        ("<unk>", gguf.TokenType.UNKNOWN, -1000.0),
        ("<mask>", control, -1000.0),
        ("[multimodal]", user, -1000.0),
        *((f"<unused{index}>", control, -1000.0) for index in range(6)),
        ("<start_of_turn>", control, -1000.0),
        ("<end_of_turn>", control, -1000.0),
        *(("\n" * count, user, -1000.0) for count in range(2, 6)),
        *((" " * count, user, -1000.0) for count in range(2, 4)),
        ("</s>", user, -1000.0),
        ("<start_of_image>", user, -1000.0),
        ("<end_of_image>", user, -1000.0),
        *((f"<0x{byte:02X}>", gguf.TokenType.BYTE, -1000.0) for byte in range(256)),
    ]
    words = ["th", "he", "in", "er", "an", "re", "on", "at", "en", "nd", "ing", "the", "and"]
    words += ["\u2581the", "\u2581a", "\u2581of", "Q:", "A:"]
    letters = ["\n", "\u2581", *map(chr, range(33, 127))]
    plain = [*words, *letters]
    plain = plain[: VOCABULARY_TOKENS - len(tokens)]
    tokens += [(text, normal, -float(index)) for index, text in enumerate(plain)]
    assert len(tokens) == VOCABULARY_TOKENS, len(tokens)
    return tokens


def build(path: Path) -> Path:
    """Write the model to `path`, atomically."""
    with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
        target = Path(temporary) / path.name
        writer = gguf.GGUFWriter(target, "gemma3")
        _metadata(writer)
        for name, tensor, kind in _tensors():
            writer.add_tensor(name, tensor, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(target, path)
    return path


def cached() -> Path:
    """The model's path, built once for each version of this file and of gguf."""
    key = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    directory = Path(tempfile.gettempdir()) / f"huginn-tiny-{os.getuid()}-{key}"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / "tiny-gemma.gguf"
    return path if path.exists() else build(path)


def _metadata(writer: gguf.GGUFWriter) -> None:
    writer.add_name("Tiny random Gemma 3")
    writer.add_context_length(8192)
    writer.add_embedding_length(_EMBEDDING)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(_HEAD)
    writer.add_value_length(_HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_sliding_window(WINDOW_TOKENS)
    tokens = vocabulary()
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text for text, _, _ in tokens])
    writer.add_token_types([kind for _, kind, _ in tokens])
    writer.add_token_scores([score for _, _, score in tokens])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)


def _tensors() -> list[Tensor]:
    # Quantized as the real files are: with plain f16 matrices the library takes other kernels for
    # two tokens than for one, and no group of streams would give the bits of a solo decode. A
    # schedule that is cut on the other side of 64 tokens still shows, in the attention.
    def matrix(name: str, rows: int, columns: int) -> Tensor:
        values = (_noise(name, rows, columns) * columns**-0.5).astype(np.float32)
        return name, gguf.quants.quantize(values, _MATRIX), _MATRIX

    def scale(name: str, size: int) -> Tensor:
        return name, (1 + 0.1 * _noise(name, size)).astype(np.float32), None

    tensors = [matrix("token_embd.weight", VOCABULARY_TOKENS, _EMBEDDING)]
    tensors.append(scale("output_norm.weight", _EMBEDDING))
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        tensors += [
            scale(f"{block}.attn_norm.weight", _EMBEDDING),
            matrix(f"{block}.attn_q.weight", _HEADS * _HEAD, _EMBEDDING),
            matrix(f"{block}.attn_k.weight", _HEAD, _EMBEDDING),
            matrix(f"{block}.attn_v.weight", _HEAD, _EMBEDDING),
            scale(f"{block}.attn_q_norm.weight", _HEAD),
            scale(f"{block}.attn_k_norm.weight", _HEAD),
            matrix(f"{block}.attn_output.weight", _EMBEDDING, _HEADS * _HEAD),
            scale(f"{block}.post_attention_norm.weight", _EMBEDDING),
            scale(f"{block}.ffn_norm.weight", _EMBEDDING),
            matrix(f"{block}.ffn_gate.weight", _FORWARD, _EMBEDDING),
            matrix(f"{block}.ffn_up.weight", _FORWARD, _EMBEDDING),
            matrix(f"{block}.ffn_down.weight", _EMBEDDING, _FORWARD),
            scale(f"{block}.post_ffw_norm.weight", _EMBEDDING),
        ]
    return tensors


def _noise(name: str, *shape: int) -> Floats:
    """Values spread evenly over -1.7 … 1.7 (deviation 1), a function of the name alone."""
    count = int(np.prod(shape))
    raw = hashlib.shake_256(f"tiny gemma {name}".encode()).digest(2 * count)
    values = np.frombuffer(raw, dtype="<u2").astype(np.float64) / 65535 - 0.5
    return (values * 12**0.5).astype(np.float32).reshape(shape)
