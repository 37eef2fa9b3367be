"""Asked of a worker room: prefix state at a boundary, and tokens.

Numbers that are not integers are carried in millionths: `temperature_ppm` 700000 is 0.7.
"""

from __future__ import annotations

from typing import Final, Literal

from protocol.ids import BlockId, ChainId, ContextId, PageId, ProfileId, StateId
from protocol.messages import Empty, Operation
from protocol.messages.assembler import Segment
from protocol.record import Record


class Sampler(Record):
    """How the next token is chosen. `temperature_ppm` 0 is greedy. `top_k` 0, `top_p_ppm`
    1000000, `min_p_ppm` 0, `repeat_penalty_ppm` 1000000 and the other penalties 0 are off.
    `logit_bias` is [[token id, bias in ppm], …]. `seed` None draws one."""

    temperature_ppm: int
    top_k: int
    top_p_ppm: int
    min_p_ppm: int
    repeat_penalty_ppm: int
    frequency_penalty_ppm: int
    presence_penalty_ppm: int
    logit_bias: list[list[int]]
    seed: int | None = None


GREEDY: Final = Sampler(
    temperature_ppm=0,
    top_k=0,
    top_p_ppm=1_000_000,
    min_p_ppm=0,
    repeat_penalty_ppm=1_000_000,
    frequency_penalty_ppm=0,
    presence_penalty_ppm=0,
    logit_bias=[],
)


class Generate(Record):
    """Answer the prompt that `segments` and `opener` spell.

    `tokens_max` bounds the answer (≥ 1), `time_ns_max` the whole job. An answer ends at an id in
    `stop_ids`, at a text in `stop_texts` (the grammar's) or `stops` (the caller's): none is
    delivered. `deliver_trim` trims the answer as the grammar's `deliver` does. `logprobs_top`:
    None for no logprobs, else how many alternatives each token lists (0 … 20). `public`: what the
    assembler states of the first segments, as it came in `Assembled`.
    """

    response: str
    segments: list[Segment]
    opener: bytes
    sampler: Sampler
    tokens_max: int
    time_ns_max: int
    stop_ids: list[int]
    stop_texts: list[str]
    stops: list[str]
    deliver_trim: bool
    context: ContextId | None = None
    logprobs_top: int | None = None
    public: bytes | None = None


class TopLogprob(Record):
    """`logprob_ppm` is the natural logarithm in millionths; `piece` the token's bytes."""

    token: int
    piece: bytes
    logprob_ppm: int


class TokenLogprob(Record):
    token: int
    piece: bytes
    logprob_ppm: int
    top: list[TopLogprob]


class BlockReceipt(Record):
    block: BlockId
    role: str
    type: str
    tokens: int
    reused: int


class Receipt(Record):
    """What a turn cost and what it reused (KV-8). Times are nanoseconds since the job was queued.

    `reused_tokens` + `prefilled_tokens` = `prompt_tokens`. `tiers` says where reused tokens lay,
    `pages_verified` how many pages were read and checked for that; `pages_refused` has a reason for
    each that was not as it was written, and so recomputed. `public_tokens`: how many of the
    prompt's first tokens belong to the public domain, absent for none.
    `state_digest` is absent until it is computed, off the critical path.
    `withheld` is true in what a reader gets who may not know what was reused in every domain that
    the prompt touched: it says nothing of reuse, tiers, times and state.
    """

    response: str
    profile: ProfileId
    prompt_tokens: int
    reused_tokens: int
    prefilled_tokens: int
    completion_tokens: int
    tiers: dict[str, int]
    pages_verified: int
    pages_refused: list[str]
    blocks: list[BlockReceipt]
    advances: int
    queued_ns: int
    ttft_ns: int
    total_ns: int
    finish: str
    seed: int
    reproducible: bool
    context: ContextId | None = None
    state_digest: StateId | None = None
    public_tokens: int | None = None
    withheld: bool | None = None


class Item(Record):
    """One item of an answer's stream.

    `prefill`: progress in tokens (`done` of `total`), before the first token. `delta`: new text
    (complete characters, never part of a stop text), the ids behind it, and logprobs if asked
    for. `end`: the finish reason, and the receipt.
    """

    kind: Literal["prefill", "delta", "end"]
    done: int | None = None
    total: int | None = None
    text: str | None = None
    ids: bytes | None = None
    logprobs: list[TokenLogprob] | None = None
    finish: Literal["stop", "length", "cancelled", "time"] | None = None
    receipt: Receipt | None = None


class Settle(Record):
    """Advance these segments by the schedule, without an answer, when nothing else is waiting.

    `response` is the turn whose receipt gets its state digest once its prompt is exported; `public`
    as in `Generate`; `context` the one that the segments are.
    """

    response: str
    segments: list[Segment]
    public: bytes | None = None
    context: ContextId | None = None


class Cancel(Record):
    """Stop the job of this response; one that has not come yet is stopped when it comes (60 s)."""

    response: str


class AskReceipt(Record):
    response: str


class AskPages(Record):
    """Whether these pages of the state `chain` are held for the caller's domain, or in the public
    one if the caller has `telemetry` there: 1 to 64 of them, in one of at most eight such questions
    at once."""

    chain: ChainId
    pages: list[PageId]


class HeldPages(Record):
    """`held`: all of them, and their bytes were read and hash to these ids."""

    held: bool


class Stats(Record):
    """What the operator may see. Counters since the process began; sizes in tokens, unless they say
    bytes.

    `stream_kv_bytes`: the rows of the prefix that each stream holds. `kv_bytes`: what is allocated
    for the rows of all, `device_bytes`: that and the weights, on the device that computes (on a CPU
    the process's own memory). `tiers` has the counters of each tier of pages, `host` and `disk`, if
    the worker has them.
    """

    profile: ProfileId
    streams: int
    streams_busy: int
    resident_tokens: int
    waiting: int
    prefilled_tokens: int
    reused_tokens: int
    decoded_tokens: int
    jobs_failed: int
    stream_kv_bytes: list[int]
    kv_bytes: int
    device_bytes: int
    tiers: dict[str, dict[str, int]]
    process: int


class Charge(Record):
    """What one principal asked for, whatever it cost: how many answers, and the tokens of their
    prompts and of their texts."""

    principal: bytes
    answers: int
    prompt_tokens: int
    answer_tokens: int


class Charges(Record):
    """The logical ledger: a row for each principal that asked for anything."""

    rows: list[Charge]


class PhysicalUse(Record):
    """What a worker used under `profile`, over all its starts: nanoseconds, tokens and bytes by
    name, and what was resident times the seconds that it was."""

    profile: ProfileId
    used: dict[str, int]


class ModelInfo(Record):
    """What anyone who may generate may know of the model behind a worker."""

    name: str
    profile: ProfileId
    context_tokens: int
    instruct: bool
    grammar: str


OPERATIONS: Final[dict[str, Operation]] = {
    "generate": Operation(Generate, Item, "generate", streams=True),
    "settle": Operation(Settle, Empty, "advance"),
    "cancel": Operation(Cancel, Empty, "generate"),
    "receipt": Operation(AskReceipt, Receipt, "telemetry"),
    "pages": Operation(AskPages, HeldPages, "telemetry"),
    "stats": Operation(Empty, Stats, "operate"),
    "info": Operation(Empty, ModelInfo, "generate"),
    # The caller's own charge; everybody's, and what it all used.
    "charge": Operation(Empty, Charge, "generate"),
    "charges": Operation(Empty, Charges, "operate"),
    "use": Operation(Empty, PhysicalUse, "operate"),
    # From the ropes room: what is public has changed, ask it.
    "publications": Operation(Empty, Empty, "operate"),
}
