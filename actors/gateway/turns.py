"""A turn, whatever dialect asked for it: a prompt from the assembler, then jobs for the worker.

A prompt is assembled once and answered `n` times. What comes after the last token (`settle`) is
off the caller's path.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from actors.gateway.caller import Caller
from actors.gateway.limits import Limits
from actors.gateway.messages import answer_block, prompt_block
from actors.gateway.models import ServedModel
from actors.gateway.sampling import for_choice
from protocol.errors import BudgetExceeded, ContentError
from protocol.ids import BlockId, ContextId, SequenceId
from protocol.messages import Empty
from protocol.messages.assembler import Assemble, Assembled, Segment
from protocol.messages.ropes import NewBlock
from protocol.messages.worker import Generate, Sampler, Settle
from protocol.record import object_id
from protocol.tokenizer import Tokenizer
from protocol.tokens import TOKEN_BYTES, TokenIds, pack, unpack

ASSEMBLER: Final = "assembler"
# Choices of one request: each is a job of its own in the worker's queue.
CHOICES_MAX: Final = 8
# From about here on, tokenizing takes longer than handing it to a thread.
_LONG_CHARS: Final = 4096


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model reads, by block. `tokens` counts all of it, the opener too.

    `history` are the blocks that it was assembled from, absent for a text completion; `public` is
    the assembler's statement of what of it is public, which only the worker reads. `context` and
    `sequence` are stored. `unstored`: there was no room to store them, so neither is told.
    """

    segments: list[Segment]
    opener: bytes
    tokens: int
    stop_ids: list[int]
    stop_texts: list[str]
    context: ContextId | None = None
    sequence: SequenceId | None = None
    history: list[NewBlock] | None = None
    public: bytes | None = None
    unstored: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """How a prompt is to be answered. `tokens_max` None: as the gateway's limits say."""

    sampler: Sampler
    stops: list[str]
    choices: int
    tokens_max: int | None
    logprobs_top: int | None
    deliver_trim: bool


def packed_count(packed: bytes) -> int:
    """How many token ids `packed` holds."""
    return len(packed) // TOKEN_BYTES


async def assemble(
    caller: Caller,
    model: ServedModel,
    blocks: list[NewBlock],
    namespace: str,
    *,
    template: str | None = None,
    store: bool = True,
    else_unstored: bool = False,
) -> Assembled:
    """The context that `blocks` are for `model`. Raises BudgetExceeded beyond its context, and
    DiskFull where it cannot be stored, unless `else_unstored`."""
    ask = Assemble(
        namespace=namespace,
        profile=model.profile,
        policy="refuse",
        tokens_max=model.prompt_tokens_max,
        keep_turns=0,
        store=store,
        template=template,
        blocks=blocks,
        else_unstored=else_unstored or None,
    )
    made = await caller.ask(ASSEMBLER, "assemble", ask, Assembled, delegate=("ropes",))
    if made.unstored:
        caller.space.lacked("a context")
    elif store:
        caller.space.found()
    return made


async def chat_prompt(
    caller: Caller,
    model: ServedModel,
    blocks: list[NewBlock],
    namespace: str,
    *,
    else_unstored: bool = False,
) -> Prompt:
    """The prompt of a conversation, opened for an answer; checked against the context.

    `else_unstored`: of a request that promises to keep nothing, so a full disk does not refuse it.
    """
    made = await assemble(caller, model, blocks, namespace, else_unstored=else_unstored)
    stored = not made.unstored
    return _within(
        model,
        Prompt(
            segments=made.segments,
            opener=made.opener,
            tokens=stream_tokens(made.segments) + packed_count(made.opener),
            stop_ids=made.stop_ids,
            stop_texts=made.stop_texts,
            context=made.context if stored else None,
            sequence=made.sequence if stored else None,
            history=blocks,
            public=made.public,
            unstored=not stored,
        ),
    )


def text_prompt(model: ServedModel, text: str | None, ids: TokenIds) -> Prompt:
    """The prompt of a text completion: the model's BOS, then `ids` as content, no grammar at all.

    `text` is what the ids spell, None if they came as ids: then their own bytes stand for it. Only
    the end of the text ends the answer. Raises BudgetExceeded beyond the context.
    """
    if not ids:
        raise ContentError("the prompt is empty: send at least one character", param="prompt")
    tokenizer = model.tokenizer
    if text is None:
        text = tokenizer.decode(ids).decode("utf-8", "replace")
    control = tokenizer.contract.control
    head = (control["bos"],) if "bos" in control else ()
    block = prompt_block(text).block
    segment = Segment(
        block=BlockId(object_id(block).digest),
        role=block.role.value,
        type=block.type.value,
        head=pack(head),
        content=pack(ids),
    )
    return _within(
        model,
        Prompt(
            segments=[segment],
            opener=b"",
            tokens=len(head) + len(ids),
            stop_ids=[control["eos"]] if "eos" in control else [],
            stop_texts=[],
        ),
    )


async def encode_text(tokenizer: Tokenizer, text: str) -> TokenIds:
    """The ids of `text` as content; a long text is tokenized without holding up other callers."""
    if len(text) < _LONG_CHARS:
        return tokenizer.encode(text)
    return await asyncio.to_thread(tokenizer.encode, text)


def stream_ids(segments: list[Segment]) -> list[int]:
    """The ids of a token stream, in order."""
    return [token for part in segments for token in (*unpack(part.head), *unpack(part.content))]


def stream_tokens(segments: list[Segment]) -> int:
    """How many ids a token stream has."""
    return sum(packed_count(part.head) + packed_count(part.content) for part in segments)


def jobs(
    prompt: Prompt, ask: Ask, model: ServedModel, response: str, limits: Limits, *, first: int = 0
) -> list[Generate]:
    """One job for each choice, the first of them choice number `first` of the response.

    An answer is cut to what the context still holds, which is at least one token.
    """
    room = model.info.context_tokens - prompt.tokens
    return [
        Generate(
            response=choice_response(response, first + index),
            segments=prompt.segments,
            opener=prompt.opener,
            sampler=for_choice(ask.sampler, index),
            tokens_max=min(ask.tokens_max or limits.answer_tokens_default, room),
            time_ns_max=limits.answer_ns_max,
            stop_ids=prompt.stop_ids,
            stop_texts=prompt.stop_texts,
            stops=ask.stops,
            deliver_trim=ask.deliver_trim,
            context=prompt.context,
            logprobs_top=ask.logprobs_top,
            public=prompt.public,
        )
        for index in range(ask.choices)
    ]


def choice_response(response: str, index: int) -> str:
    """The id under which the receipt of choice `index` is kept."""
    return response if index == 0 else f"{response}-{index}"


async def settle(
    caller: Caller,
    model: ServedModel,
    prompt: Prompt,
    *,
    namespace: str,
    response: str,
    answer: str,
) -> None:
    """Have the worker advance the conversation with its answer, for the turn that will follow.

    The answer is assembled as the client will send it back, so the next turn finds its prefix.
    """
    if prompt.history is not None and answer:
        blocks = [*prompt.history, answer_block(answer)]
        await settle_blocks(caller, model, blocks, namespace=namespace, response=response)
        return
    ask = Settle(
        response=response,
        segments=prompt.segments,
        public=prompt.public,
        context=prompt.context,
    )
    await caller.ask(model.room, "settle", ask, Empty)


async def settle_blocks(
    caller: Caller,
    model: ServedModel,
    blocks: list[NewBlock],
    *,
    namespace: str,
    response: str,
) -> None:
    """Have the worker advance `blocks`, the conversation as the next turn will begin."""
    made = await assemble(caller, model, blocks, namespace, else_unstored=True)
    ask = Settle(
        response=response,
        segments=made.segments,
        public=made.public,
        context=None if made.unstored else made.context,
    )
    await caller.ask(model.room, "settle", ask, Empty)


def _within(model: ServedModel, prompt: Prompt) -> Prompt:
    if prompt.tokens > model.prompt_tokens_max:
        raise BudgetExceeded(
            f"the prompt has {prompt.tokens} tokens, {model.name} has a context of "
            f"{model.info.context_tokens} and needs one for the answer: shorten the prompt",
            tokens=prompt.tokens,
            tokens_max=model.prompt_tokens_max,
        )
    return prompt
