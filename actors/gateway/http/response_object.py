"""The response object: everything but content as one record, and content put in when it is shown.

The record is what is noted with the turn, so that a response that is asked for later is the one
that was given. Content is not in it: texts are the ropes room's, and are read from there.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from actors.gateway.answers import Choice
from actors.gateway.http.extension import UNSTORED
from protocol.errors import HuginnError

Json = dict[str, Any]
RESPONSE: Final = "resp_"
_MESSAGE: Final = "msg_"


class Usage(msgspec.Struct, frozen=True):
    """In tokens. `cached` is 0 for callers who may not know what was reused (AUT-7)."""

    input: int
    cached: int
    output: int

    def shown(self, *, telemetry: bool = True) -> Json:
        cached = self.cached if telemetry else 0
        return {
            "input_tokens": self.input,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": self.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.input + self.output,
        }


class ResponseFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A response less its content. Times are Unix seconds. `session`, `turn` and `context` are
    absent for one that is not stored. `instructed`: whether it had instructions. `unstored`: the
    disk had no room for its context."""

    id: str
    created_at: int
    model: str
    temperature: float
    top_p: float
    parallel_tool_calls: bool
    status: Literal["in_progress", "completed", "incomplete", "failed"] = "in_progress"
    store: bool = True
    instructed: bool = False
    metadata: dict[str, str] = {}
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    completed_at: int | None = None
    usage: Usage | None = None
    session: str | None = None
    turn: str | None = None
    context: str | None = None
    unstored: bool = False

    def ended(self, choice: Choice, usage: Usage, now_s: int) -> ResponseFields:
        """The response once its answer is complete."""
        status: Literal["completed", "incomplete"]
        status = "completed" if choice.finish == "stop" else "incomplete"
        return msgspec.structs.replace(self, status=status, usage=usage, completed_at=now_s)

    def failed(self) -> ResponseFields:
        return msgspec.structs.replace(self, status="failed")


def note_of(fields: ResponseFields) -> bytes:
    """What is noted with the turn."""
    return msgspec.json.encode(fields)


def fields_of(note: bytes) -> ResponseFields:
    """What `note_of` wrote. Raises msgspec.ValidationError or DecodeError for anything else."""
    return msgspec.json.decode(note, type=ResponseFields)


def document(
    fields: ResponseFields,
    *,
    text: str | None = None,
    instructions: str | None = None,
    error: HuginnError | None = None,
    receipt: Json | None = None,
    telemetry: bool = True,
) -> Json:
    """The object that clients get; `text` None: nothing was said yet."""
    huginn: Json = {
        "session": fields.session,
        "turn": fields.turn,
        "context_id": fields.context,
    }
    if fields.unstored:
        huginn |= UNSTORED
    if receipt is not None:
        huginn["receipt"] = receipt
    incomplete = fields.status == "incomplete"
    return {
        "id": fields.id,
        "object": "response",
        "created_at": fields.created_at,
        "completed_at": fields.completed_at,
        "status": fields.status,
        "background": False,
        "error": None if error is None else {"code": "server_error", "message": error.message},
        "incomplete_details": {"reason": "max_output_tokens"} if incomplete else None,
        "instructions": instructions,
        "max_output_tokens": fields.max_output_tokens,
        "metadata": fields.metadata,
        "model": fields.model,
        "output": [] if text is None else [output_item(fields, text)],
        "parallel_tool_calls": fields.parallel_tool_calls,
        "previous_response_id": fields.previous_response_id,
        "store": fields.store,
        "temperature": fields.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": fields.top_p,
        "truncation": "disabled",
        "usage": None if fields.usage is None else fields.usage.shown(telemetry=telemetry),
        "huginn": huginn,
    }


def item_id(response: str) -> str:
    """The id of the one message that a response is."""
    return _MESSAGE + response.removeprefix(RESPONSE)


def output_item(fields: ResponseFields, text: str | None) -> Json:
    """The message that the answer is; `text` None: it has only begun."""
    status = "incomplete" if fields.status == "incomplete" else "completed"
    return {
        "id": item_id(fields.id),
        "type": "message",
        "role": "assistant",
        "status": "in_progress" if text is None else status,
        "content": [] if text is None else [text_part(text)],
    }


def text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
