"""llama.cpp as a Backend: one context, one stream for each live sequence, bits pinned.

What makes a prefix state the same bytes in every run, as measured (see the profile's fields):

* one stream a sequence (`kv_unified=False`) and full-size sliding caches (`swa_full=True`), so
  that no neighbour and no truncation changes where a row lies or what a row sees;
* a prefill's bits do not depend on the thread count, a single token's do: an advance of one token
  and every decode run on the profile's decode threads, longer advances on `threads_batch`;
* a decode of several streams is a batch for the library, which would take the batch threads: they
  are set for each call.

Truncation is in place, and restore is of one sequence, from pages. The library's other ways to move
state are not used: removing below a restored part returns success and continues wrongly (here it is
refused), copies between streams abort or are read too early, and whole-context restore continues
with other bits. Its assertions abort the process, so this module belongs in a worker's own process.

A restore may leave out old sliding rows because no bit depends on them, as long as the rows that
stay keep their places modulo the attention kernel's tile of 64 cells: the kernel passes over a tile
that is masked for all, and sums within a tile in the order of its cells. With more than one thread
a single token's attention is cut into as many runs of cells, whose bounds would move with the rows:
such a profile restores every sliding row.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from actors.worker.backend import Memory, PageRows
from actors.worker.backends.llama_blob import StateBlob
from actors.worker.backends.llama_library import library
from actors.worker.backends.llama_model import check_build, check_tokenizer, load_model
from actors.worker.backends.llama_state import StateShape, parse_rows, read_layout
from actors.worker.backends.llama_tokenizer import LlamaTokenizer
from profiles.profile import RuntimeProfile
from protocol.errors import WorkerFault
from protocol.tokens import TokenIds

if TYPE_CHECKING:
    from actors.worker.backend import Logits

_F16: Final = 1  # GGML_TYPE_F16
_F16_BYTES: Final = 2
# The flash-attention kernel's tile of cells (GGML_FA_TILE_KV).
_TILE_TOKENS: Final = 64


class LlamaBackend:
    """The GGUF file at `path` under `profile`: implements actors.worker.backend.Backend.

    `threads_batch` (1 …) speeds up prefill and changes no bit. Raises ProfileFault if the file or
    the installed library is not what the profile pins, WorkerFault if the library cannot load it.
    The caller has verified the file's digest.
    """

    def __init__(self, path: Path, profile: RuntimeProfile, *, threads_batch: int = 1) -> None:
        check_build(profile)
        self._library: Any = library()
        self.profile = profile
        self.streams = profile.streams
        self.context_tokens = profile.context_tokens
        self.chunk_tokens = profile.chunk_tokens
        self.group_max = profile.group_max
        window = profile.model.window_tokens
        self.export_tokens_max = window or profile.context_tokens
        self._threads = (profile.threads_decode, max(1, threads_batch))
        self._threads_set: tuple[int, int] | None = None
        self._lengths = [0] * profile.streams
        self._lowest = [0] * profile.streams  # the first position with sliding rows
        self._shape = StateShape(
            streams=profile.streams,
            layers=profile.model.layers,
            window_tokens=window,
            kv_type=_F16,
            kv_bytes=_F16_BYTES,
        )
        self._state = np.empty(0, dtype=np.uint8)
        self._context: Any = None
        self._batch: Any = None
        self._model: Any = load_model(self._library, path, profile)
        try:
            self.tokenizer = LlamaTokenizer(path, model=self._model)
            check_tokenizer(self.tokenizer, profile)
            self._vocabulary_tokens = self.tokenizer.contract.vocabulary_tokens
            self._context = self._open_context()
            self._memory: Any = self._library.llama_get_memory(self._context)
            self._batch = self._library.llama_batch_init(profile.chunk_tokens, 0, 1)
            # The sizes of the rows, from the state of one token.
            self._feed([(0, 0, 0)], outputs=(), batch=False)
            self._layout = read_layout(self._state_of(0), self._shape, stream=0, length=1)
            self.truncate(0, 0)
            self.memory = self._measured()
        except BaseException:
            self.close()
            raise

    def length(self, stream: int) -> int:
        """How many positions the stream holds."""
        self._check_open()
        return self._lengths[self._checked(stream)]

    def advance(self, stream: int, ids: TokenIds, *, logits: bool) -> Logits | None:
        """Feed 1 … chunk_tokens ids at the stream's end, alone. See Backend.advance."""
        length = self.length(stream)
        if not 1 <= len(ids) <= self.chunk_tokens:
            raise WorkerFault(f"an advance of {len(ids)} tokens: it takes 1 to {self.chunk_tokens}")
        items = [(stream, token, length + index) for index, token in enumerate(ids)]
        last = len(items) - 1
        self._feed(items, outputs=(last,) if logits else (), batch=len(ids) > 1)
        return self._logits(last) if logits else None

    def decode(self, items: Sequence[tuple[int, int]]) -> list[Logits]:
        """Feed one id to each of 1 … group_max streams. See Backend.decode."""
        self._check_open()
        if not 1 <= len(items) <= self.group_max:
            raise WorkerFault(f"a decode of {len(items)} streams: it takes 1 to {self.group_max}")
        if len({stream for stream, _ in items}) != len(items):
            raise WorkerFault("a decode names a stream twice")
        # In order of streams, so that neighbours share one pass of the library.
        fed = sorted((stream, token, self.length(stream)) for stream, token in items)
        self._feed(fed, outputs=range(len(fed)), batch=False)
        found = {stream: self._logits(index) for index, (stream, _, _) in enumerate(fed)}
        return [found[stream] for stream, _ in items]

    def can_truncate(self, stream: int, tokens: int) -> bool:
        """Whether the stream can be cut back to `tokens`. See Backend.can_truncate."""
        if not 0 <= tokens <= self.length(stream):
            return False
        return not tokens or self._lowest[stream] <= self.sliding_start(tokens)

    def truncate(self, stream: int, tokens: int) -> None:
        """Keep the first `tokens` positions. See Backend.truncate."""
        length = self.length(stream)
        if not self.can_truncate(stream, tokens):
            raise WorkerFault(
                f"cannot keep {tokens} of stream {stream}'s {length} positions: it has sliding "
                f"rows from {self._lowest[stream]} on. Clear it and restore it again"
            )
        if tokens == length:
            return
        self._library.llama_memory_seq_rm(self._memory, stream, tokens, -1)
        self._settle(stream, tokens)

    def sliding_start(self, tokens: int) -> int:
        """The latest lower bound for `tokens` positions. See Backend.sliding_start."""
        window = self._shape.window_tokens
        if not window or self._threads[0] > 1:
            return 0
        return max(0, tokens - window) // _TILE_TOKENS * _TILE_TOKENS

    def restore(
        self, stream: int, pages: Sequence[PageRows], *, tokens: int, sliding_from: int
    ) -> None:
        """Make an empty stream hold the rows of `pages`. See Backend.restore."""
        if length := self.length(stream):
            raise WorkerFault(f"stream {stream} holds {length} positions: a restore needs it empty")
        if not 1 <= tokens <= self.context_tokens:
            raise WorkerFault(
                f"a restore of {tokens} tokens: a stream takes 1 to {self.context_tokens}"
            )
        latest = self.sliding_start(tokens)
        if not 0 <= sliding_from <= latest or sliding_from % _TILE_TOKENS:
            raise WorkerFault(
                f"sliding rows from {sliding_from} for {tokens} tokens: they start at a multiple "
                f"of {_TILE_TOKENS} up to {latest}"
            )
        blob = StateBlob(
            pages,
            self._layout,
            self._shape,
            stream=stream,
            tokens=tokens,
            sliding_from=sliding_from,
        )
        state = self._room(blob.size)
        blob.write(state.data)
        source = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        read = self._library.llama_state_seq_set_data(self._context, source, blob.size, stream)
        if read != blob.size:
            self._clear(stream)
            raise WorkerFault(
                f"the library took {read} of {blob.size} bytes of state: stream {stream} was "
                "cleared, and its sequence has to be recomputed"
            )
        self._lowest[stream] = sliding_from
        self._settle(stream, tokens)

    def export(self, stream: int, start: int, stop: int) -> PageRows:
        """The rows of positions start … stop-1. See Backend.export."""
        length = self.length(stream)
        # Before the copy, which costs milliseconds; the parser checks it again.
        if not max(0, length - self.export_tokens_max) <= start < stop <= length:
            raise WorkerFault(
                f"rows {start}…{stop - 1} of stream {stream}: it holds {length} positions and "
                f"gives back the last {self.export_tokens_max}"
            )
        state = self._state_of(stream)
        return parse_rows(state, self._shape, stream=stream, length=length, start=start, stop=stop)

    def close(self) -> None:
        """Free the model. Any later call raises WorkerFault, also of the tokenizer."""
        # It is not there if the file's vocabulary was refused.
        if hasattr(self, "tokenizer"):
            self.tokenizer.close()
        if self._batch is not None:
            self._library.llama_batch_free(self._batch)
            self._batch = None
        if self._context is not None:
            self._library.llama_free(self._context)
            self._context = None
        if self._model is not None:
            self._library.llama_model_free(self._model)
            self._model = None
        self._state = np.empty(0, dtype=np.uint8)

    def _measured(self) -> Memory:
        # A layer's K and V rows are equally long. `swa_full`: every layer has every position's.
        kv_token = 2 * sum((*self._layout.full, *self._layout.sliding))
        kv = kv_token * self.streams * self.context_tokens
        return Memory(kv_token, kv, kv + int(self._library.llama_model_size(self._model)))

    def _open_context(self) -> Any:
        profile = self.profile
        parameters = self._library.llama_context_default_params()
        parameters.n_ctx = profile.streams * profile.context_tokens
        parameters.n_seq_max = profile.streams
        parameters.n_batch = profile.batch_tokens
        parameters.n_ubatch = profile.ubatch_tokens
        # Only last tokens have logits: the buffers for a whole batch of them would be 268 MB.
        parameters.n_outputs_max = profile.streams
        parameters.n_threads, parameters.n_threads_batch = self._threads
        parameters.flash_attn_type = self._library.LLAMA_FLASH_ATTN_TYPE_ENABLED
        parameters.type_k = parameters.type_v = _F16
        parameters.kv_unified = False
        parameters.swa_full = True
        parameters.offload_kqv = parameters.op_offload = False
        context = self._library.llama_init_from_model(self._model, parameters)
        if not context:
            raise WorkerFault(
                f"the library cannot open {profile.streams} streams of {profile.context_tokens} "
                "tokens: lower `streams` or `context_tokens` in the profile"
            )
        got = (self._library.llama_n_seq_max(context), self._library.llama_n_ctx_seq(context))
        if got != (profile.streams, profile.context_tokens):
            self._library.llama_free(context)
            raise WorkerFault(
                f"asked for streams × context {profile.streams} × "
                f"{profile.context_tokens}, the library opened {got[0]} × {got[1]}"
            )
        return context

    def _feed(
        self, items: list[tuple[int, int, int]], *, outputs: Container[int], batch: bool
    ) -> None:
        """Decode one batch of (stream, id, position), and check every stream afterwards."""
        for stream, token, position in items:
            if not 0 <= token < self._vocabulary_tokens:
                raise WorkerFault(f"token {token}: the vocabulary has {self._vocabulary_tokens}")
            if position >= self.context_tokens:
                raise WorkerFault(f"stream {stream} is full: {self.context_tokens} positions")
        fed = self._batch
        fed.n_tokens = len(items)
        for index, (stream, token, position) in enumerate(items):
            fed.token[index], fed.pos[index] = token, position
            fed.n_seq_id[index], fed.seq_id[index][0] = 1, stream
            fed.logits[index] = index in outputs
        self._set_threads(batch=batch)
        code = self._library.llama_decode(self._context, fed)
        grown: dict[int, int] = {}
        for stream, _, position in items:
            grown[stream] = position + 1
        if code != 0:
            for stream in grown:
                self._library.llama_memory_seq_rm(self._memory, stream, self._lengths[stream], -1)
                with contextlib.suppress(WorkerFault):
                    self._settle(stream, self._lengths[stream])
            raise WorkerFault(f"the library failed to compute {len(items)} tokens (code {code})")
        for stream, length in grown.items():
            self._settle(stream, length)

    def _set_threads(self, *, batch: bool) -> None:
        """Only where they change: each call of the library offers the interpreter to others."""
        decode, prefill = self._threads
        wanted = (decode, prefill if batch else decode)
        if wanted != self._threads_set:
            self._library.llama_set_n_threads(self._context, *wanted)
            self._threads_set = wanted

    def _state_of(self, stream: int) -> memoryview:
        """The stream's state as the library writes it, in a buffer that the next call reuses."""
        size = self._library.llama_state_seq_get_size(self._context, stream)
        state = self._room(size)
        target = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        written = self._library.llama_state_seq_get_data(self._context, target, size, stream)
        if written != size:
            raise WorkerFault(f"the library wrote {written} of {size} bytes of state")
        return state.data[:size]

    def _room(self, size: int) -> npt.NDArray[np.uint8]:
        """The buffer for states, of at least `size` bytes."""
        if size > self._state.size:
            # A quarter more, so that a growing sequence does not allocate anew each time.
            self._state = np.empty(size + size // 4, dtype=np.uint8)
        return self._state

    def _clear(self, stream: int) -> None:
        self._library.llama_memory_seq_rm(self._memory, stream, -1, -1)
        self._lengths[stream] = self._lowest[stream] = 0

    def _settle(self, stream: int, length: int) -> None:
        """Assert that the stream has positions 0 … length-1, or clear it and raise WorkerFault.

        The library tells the sliding layers' bounds, if the model has any: the first of them is
        exactly what a restore put there."""
        found = (
            self._library.llama_memory_seq_pos_min(self._memory, stream),
            self._library.llama_memory_seq_pos_max(self._memory, stream),
        )
        if not length:
            self._lowest[stream] = 0
        expected = (self._lowest[stream], length - 1) if length else (-1, -1)
        if found == expected:
            self._lengths[stream] = length
            return
        self._clear(stream)
        raise WorkerFault(
            f"stream {stream} holds positions {found[0]}…{found[1]} where {expected[0]}…"
            f"{expected[1]} were expected: it was cleared, and its sequence has to be recomputed"
        )

    def _logits(self, index: int) -> Logits:
        """The library's own buffer, until it computes again."""
        row = self._library.llama_get_logits_ith(self._context, index)
        if not row:
            raise WorkerFault(f"the library has no logits for token {index} of the batch")
        return np.ctypeslib.as_array(row, shape=(self._vocabulary_tokens,))

    def _checked(self, stream: int) -> int:
        if not 0 <= stream < self.streams:
            raise WorkerFault(f"stream {stream} is not one of {self.streams}")
        return stream

    def _check_open(self) -> None:
        if self._context is None:
            raise WorkerFault("the back end was closed")
