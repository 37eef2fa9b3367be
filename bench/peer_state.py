"""The bare binding with its whole-state file, as a server's slot save and restore: one process.

    python -m bench.peer_state < request.json > answer.json

`save`: prefill `history` cold and write the sequence's state to `file`. `restore`: in this new
process, read `file` and prefill what `more` adds, up to the next token. Times in milliseconds;
loading the model is in none of them.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

from actors.worker.backends.llama_library import library

_BATCH_TOKENS = 512


def main() -> None:
    asked: dict[str, Any] = json.load(sys.stdin)
    binding = Binding(asked["model"], asked["context_tokens"])
    history = binding.tokens(asked["history"], bos=True)
    answer = binding.save if asked["verb"] == "save" else binding.restore
    json.dump(answer(history, binding.tokens(asked["more"], bos=False), asked["file"]), sys.stdout)


class Binding:
    """A model and a context of one sequence, one thread."""

    def __init__(self, model: str, context_tokens: int) -> None:
        self._library = module = library()
        self._model = module.llama_model_load_from_file(
            model.encode(), module.llama_model_default_params()
        )
        self._vocabulary = module.llama_model_get_vocab(self._model)
        wanted = module.llama_context_default_params()
        wanted.n_ctx, wanted.n_batch, wanted.n_ubatch = context_tokens, _BATCH_TOKENS, _BATCH_TOKENS
        wanted.n_threads = wanted.n_threads_batch = 1
        wanted.flash_attn_type = module.LLAMA_FLASH_ATTN_TYPE_ENABLED
        wanted.swa_full = True
        self._context = module.llama_init_from_model(self._model, wanted)

    def tokens(self, text: str, *, bos: bool) -> list[int]:
        raw = text.encode()
        found = (self._library.llama_token * (len(raw) + 2))()
        count = self._library.llama_tokenize(
            self._vocabulary, raw, len(raw), found, len(found), bos, True
        )
        return list(found[:count])

    def save(self, history: list[int], more: list[int], file: str) -> dict[str, float]:
        began, cpu = time.perf_counter(), time.process_time()
        self._feed(history)
        fed, used = time.perf_counter(), time.process_time() - cpu
        ids = (self._library.llama_token * len(history))(*history)
        written = self._library.llama_state_seq_save_file(
            self._context, file.encode(), 0, ids, len(history)
        )
        assert written > 0, f"no state written to {file}"
        ended = time.perf_counter()
        return {
            "cold_ms": (fed - began) * 1e3,
            "cpu_ms": used * 1e3,
            "save_ms": (ended - fed) * 1e3,
            "bytes": Path(file).stat().st_size,
            "tokens": len(history),
        }

    def restore(self, history: list[int], more: list[int], file: str) -> dict[str, float]:
        began, cpu = time.perf_counter(), time.process_time()
        ids = (self._library.llama_token * (len(history) + 1))()
        count = ctypes.c_size_t(0)
        read = self._library.llama_state_seq_load_file(
            self._context, file.encode(), 0, ids, len(ids), ctypes.byref(count)
        )
        assert read > 0, f"no state read from {file}"
        assert list(ids[: count.value]) == history, "the file is another prompt's"
        restored = time.perf_counter()
        self._feed(more)
        ended = time.perf_counter()
        return {
            "restore_ms": (restored - began) * 1e3,
            "first_token_ms": (ended - began) * 1e3,
            "cpu_ms": (time.process_time() - cpu) * 1e3,
            "tokens": count.value,
            "new_tokens": len(more),
        }

    def _feed(self, tokens: list[int]) -> None:
        for start in range(0, len(tokens), _BATCH_TOKENS):
            part = tokens[start : start + _BATCH_TOKENS]
            ids = (self._library.llama_token * len(part))(*part)
            code = self._library.llama_decode(
                self._context, self._library.llama_batch_get_one(ids, len(part))
            )
            assert code == 0, f"llama_decode of {len(part)} tokens: {code}"


if __name__ == "__main__":
    main()
