"""The terms of a completion, the same in both dialects: how long, how many, when to stop.

What this version does not implement is refused by name: a client that asks for JSON and gets prose
would find out later, and at a worse place.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from actors.gateway.http.errors import unsupported
from actors.gateway.http.extension import HuginnFields
from actors.gateway.sampling import SamplingFields
from actors.gateway.turns import CHOICES_MAX
from protocol.errors import ContentError

STOPS_MAX: Final = 16
LOGPROBS_MAX: Final = 20


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class CompletionFields(SamplingFields, kw_only=True):
    """What chat and text completions share beside sampling. Null is absent."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    response_format: dict[str, Any] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    huginn: HuginnFields | None = None


def stops_of(stop: str | list[str] | None) -> list[str]:
    """The stop texts, in order. Raises ContentError for an empty one or too many."""
    stops = [stop] if isinstance(stop, str) else list(stop or [])
    if len(stops) > STOPS_MAX:
        raise ContentError(
            f"stop has {len(stops)} texts, at most {STOPS_MAX} are allowed", param="stop"
        )
    if "" in stops:
        raise ContentError("a stop text is empty: it would stop every answer", param="stop")
    return stops


def choices_of(n: int | None) -> int:
    """How many answers are asked for."""
    count = 1 if n is None else n
    if not 1 <= count <= CHOICES_MAX:
        raise ContentError(f"n goes from 1 to {CHOICES_MAX}", param="n")
    return count


def tokens_max_of(name: str, value: int | None) -> int | None:
    """The bound on an answer, in tokens; None: the service's own."""
    if value is not None and value < 1:
        raise ContentError(f"{name} is below 1: an answer has at least one token", param=name)
    return value


def logprobs_of(name: str, value: int) -> int:
    """How many alternatives each token lists."""
    if not 0 <= value <= LOGPROBS_MAX:
        raise ContentError(f"{name} goes from 0 to {LOGPROBS_MAX}", param=name)
    return value


def refuse_unimplemented(fields: CompletionFields) -> None:
    """Raises ApiError 400 that names the first parameter here that is not implemented."""
    if (fields.response_format or {}).get("type", "text") != "text":
        raise unsupported("response_format", "only type text is implemented in this version")
    for name in ("tools", "functions"):
        if getattr(fields, name):
            raise unsupported(name, "declaring tools is not implemented in this version")
    for name in ("tool_choice", "function_call"):
        if getattr(fields, name) not in (None, "none"):
            raise unsupported(name, "calling tools is not implemented in this version")
