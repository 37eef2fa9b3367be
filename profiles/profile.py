"""A runtime profile: everything that can change a prefix state, in one identified record (KV-1).

`ProfileId` is the record's ObjectId. The state chain of every sequence begins with it, so two
profiles that differ in any field here never share a state. What is *not* here changes no bit of a
prefix state, as measured: memory mapping, the number of prefill threads, when logits are asked for.
"""

from __future__ import annotations

from typing import Final, Literal

from protocol.assembly import ModelContract
from protocol.ids import ProfileId
from protocol.record import Identified
from protocol.tokenizer import TokenizerContract

# Instruction sets that the library is compiled for, by machine. AVX2, AVX-512 and SSE builds give
# different bits, so a build takes exactly these; a machine not listed takes its plain baseline.
MACHINE_ISA: Final[dict[str, tuple[str, ...]]] = {
    "x86_64": ("avx2", "bmi2", "f16c", "fma"),
}


def isa(machine: str) -> tuple[str, ...]:
    """The instruction sets of `machine` (as `platform.machine()` names it), in order."""
    return MACHINE_ISA.get({"AMD64": "x86_64"}.get(machine, machine), ())


class RuntimeProfile(Identified):
    """Sizes are tokens. Fields by what they pin:

    * the network and its text: `model` (full weights digest, layers, window), `tokenizer`,
      `grammar`, `rope` (`model`: as the weights file says), `adapter`;
    * the code: `backend`, `backend_version`, `build_digest` (SHA-256 over the library files that
      this machine loads), `machine`, `isa`, `device_class`, `weights_repack`;
    * the arithmetic: `compute_dtype` (of activations and accumulators), `attention`, `kv_type`,
      `kv_layout`, `threads_decode`, `batch_tokens`, `ubatch_tokens`, and `reduction`: what holds
      for the order of sums. `fixed-threads`: the order is a function of shapes and thread count;
    * the shape of serving: `streams` of `context_tokens` each, `kv_unified`, `swa_full`,
      `schedule` (`block/256`: one advance a block, cut inside every 256 tokens from its start),
      `chunk_tokens` (its cut), `page_tokens`, `group_max` (streams that one decode may carry);
    * the promise: `equality` of prefix states (`bitwise`: a chain is one string of bytes, or
      `token`: it may stand for others, from which greedy answers begin alike) and whether
      generation is reproducible, which takes `bitwise`.
    """

    ID = ProfileId

    v: Literal[1]
    name: str
    model: ModelContract
    tokenizer: TokenizerContract
    grammar: str
    backend: str
    backend_version: str
    build_digest: bytes
    machine: str
    isa: tuple[str, ...]
    device_class: Literal["cpu", "cuda"]
    weights_repack: bool
    compute_dtype: str
    kv_type: Literal["f16"]
    kv_layout: str
    attention: Literal["flash"]
    rope: Literal["model"]
    adapter: Literal["none"]
    threads_decode: int
    batch_tokens: int
    ubatch_tokens: int
    streams: int
    context_tokens: int
    kv_unified: Literal[False]
    swa_full: Literal[True]
    schedule: str
    chunk_tokens: int
    page_tokens: int
    group_max: int
    reduction: Literal["fixed-threads"]
    equality: Literal["bitwise", "token"]
    reproducible_generation: bool
