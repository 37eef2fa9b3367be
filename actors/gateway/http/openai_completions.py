"""`POST /v1/completions`: text goes on, with no conversation grammar at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiohttp import web

from actors.gateway.answers import Choice
from actors.gateway.http.delivery import Delivery, Json, deliver
from actors.gateway.http.errors import unsupported
from actors.gateway.http.extension import answering_model, extension
from actors.gateway.http.ids import fresh_id
from actors.gateway.http.logprobs import text_logprobs
from actors.gateway.http.parse import read_body
from actors.gateway.http.state import CALLER, GATEWAY
from actors.gateway.http.terms import (
    CompletionFields,
    choices_of,
    logprobs_of,
    refuse_unimplemented,
    stops_of,
    tokens_max_of,
)
from actors.gateway.models import ServedModel
from actors.gateway.sampling import sampler_of
from actors.gateway.turns import (
    CHOICES_MAX,
    Ask,
    Prompt,
    choice_response,
    encode_text,
    jobs,
    settle,
    text_prompt,
)
from protocol.errors import ContentError
from protocol.messages.events import Finish
from protocol.messages.worker import Generate, Item
from protocol.tokenizer import check_outside_ids

# What OpenAI gives when nothing is said; a text that simply goes on has no end of its own.
_TOKENS_DEFAULT: Final = 16


class TextRequest(CompletionFields, kw_only=True):
    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class TextDialect:
    """Text completions. `logprobs`: whether they were asked for."""

    chunk = "text_completion"
    whole = "text_completion"

    def __init__(self, *, logprobs: bool) -> None:
        self._logprobs = logprobs

    def opening(self, index: int) -> Json:
        return _part(index, "")

    def delta(self, index: int, item: Item, before: Choice) -> Json | None:
        if not item.text and not (self._logprobs and item.logprobs):
            return None
        part = _part(index, item.text or "")
        if self._logprobs:
            sent = sum(len(token.piece) for token in before.logprobs)
            part["logprobs"] = text_logprobs(item.logprobs or [], sent)
        return part

    def finish(self, index: int, finish: Finish) -> Json:
        return _part(index, "") | {"finish_reason": finish}

    def complete(self, index: int, choice: Choice) -> Json:
        logprobs = text_logprobs(choice.logprobs, 0) if self._logprobs else None
        return _part(index, "".join(choice.text)) | {
            "logprobs": logprobs,
            "finish_reason": choice.finish,
        }


@dataclass(frozen=True, slots=True)
class _Batch:
    """The prompts of one request, and where each one's choices begin."""

    prompts: list[Prompt]
    jobs: list[Generate]
    firsts: list[int]


async def completions(request: web.Request) -> web.StreamResponse:
    """Continue one text or several: prompt after prompt, `n` choices each."""
    gateway, caller = request.app[GATEWAY], request[CALLER]
    body = await read_body(request, TextRequest)
    more = extension(request, body.huginn)
    model = await answering_model(request, body.model, more.profile)
    ask = text_ask(body, model)
    response = fresh_id("cmpl-", gateway.ports.entropy)
    prompts = await text_prompts(body.prompt, model)
    if len(prompts) * ask.choices > CHOICES_MAX:
        raise ContentError(
            f"{len(prompts)} prompts with n = {ask.choices}: a request has at most {CHOICES_MAX} "
            "choices in all",
            param="prompt",
        )
    batch = _Batch(prompts, [], [])
    for prompt in prompts:
        batch.firsts.append(len(batch.jobs))
        batch.jobs.extend(jobs(prompt, ask, model, response, gateway.limits, first=len(batch.jobs)))

    async def settle_each(choices: list[Choice]) -> None:
        # Nothing is appended to a text: only its own state is made ready to be found again.
        for prompt, index in zip(batch.prompts, batch.firsts, strict=True):
            kept = choice_response(response, index)
            await settle(caller, model, prompt, namespace=more.namespace, response=kept, answer="")

    delivery = Delivery(
        gateway=gateway,
        caller=caller,
        model=model,
        response=response,
        jobs=batch.jobs,
        prompt_tokens=sum(prompt.tokens for prompt in prompts),
        firsts=batch.firsts,
        dialect=TextDialect(logprobs=ask.logprobs_top is not None),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        receipt=more.receipt,
        headers={},
        settle=settle_each,
    )
    return await deliver(request, delivery, stream=bool(body.stream))


def text_ask(body: TextRequest, model: ServedModel) -> Ask:
    """How the text is to be continued; raises as `chat_ask` does."""
    refuse_unimplemented(body)
    if body.echo:
        raise unsupported("echo", "the prompt is not sent back in this version")
    if body.suffix:
        raise unsupported("suffix", "the model does not fill in the middle")
    choices = choices_of(body.n)
    if body.best_of not in (None, choices):
        raise unsupported("best_of", "every choice is given back: best_of is n")
    return Ask(
        sampler=sampler_of(body, model.tokenizer, temperature_default=model.temperature_default),
        stops=stops_of(body.stop),
        choices=choices,
        tokens_max=tokens_max_of("max_tokens", body.max_tokens) or _TOKENS_DEFAULT,
        logprobs_top=None if body.logprobs is None else logprobs_of("logprobs", body.logprobs),
        deliver_trim=False,
    )


async def text_prompts(
    prompt: str | list[str | int | list[int]], model: ServedModel
) -> list[Prompt]:
    """The prompts that `prompt` spells: a text, a list of texts, token ids, or lists of ids.

    Raises ContentError with detail `param` for a mixed or empty list and for an id that content
    may not hold, BudgetExceeded beyond the context.
    """
    if isinstance(prompt, str):
        return [await _of_text(prompt, model)]
    texts = [item for item in prompt if isinstance(item, str)]
    ids = [item for item in prompt if isinstance(item, int)]
    lists = [item for item in prompt if isinstance(item, list)]
    if len(prompt) > CHOICES_MAX and not ids:
        raise ContentError(
            f"{len(prompt)} prompts, at most {CHOICES_MAX} are allowed", param="prompt"
        )
    if texts and len(texts) == len(prompt):
        return [await _of_text(text, model) for text in texts]
    if lists and len(lists) == len(prompt):
        return [_of_ids(each, model) for each in lists]
    if len(ids) == len(prompt):
        return [_of_ids(ids, model)]
    raise ContentError(
        "prompt is a text, a list of texts, a list of token ids, or a list of such lists",
        param="prompt",
    )


async def _of_text(text: str, model: ServedModel) -> Prompt:
    return text_prompt(model, text, await encode_text(model.tokenizer, text))


def _of_ids(ids: list[int], model: ServedModel) -> Prompt:
    try:
        checked = check_outside_ids(tuple(ids), model.tokenizer)
    except ContentError as error:
        raise ContentError(f"prompt: {error.message}", param="prompt") from error
    return text_prompt(model, None, checked)


def _part(index: int, text: str) -> Json:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": None}
