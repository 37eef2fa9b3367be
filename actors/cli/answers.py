"""Asking for an answer and getting it piece by piece."""

from __future__ import annotations

import http
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from actors.cli.asked import Failure, Json
from actors.cli.client import ApiFailure, Client

CHAT = "/v1/chat/completions"
COMPLETE = "/v1/completions"
RESPOND = "/v1/responses"
_ENDS: Final = frozenset({"response.completed", "response.incomplete"})


@dataclass
class Answer:
    """An answer so far. `receipt` is there only for keys that may see it, `context` for chats;
    `session` and `turn` say where it is kept, if it is."""

    id: str = ""
    context: str | None = None
    text: str = ""
    finish: str | None = None
    usage: Json = field(default_factory=dict)
    receipt: Json | None = None
    session: str | None = None
    turn: str | None = None

    def document(self) -> Json:
        kept = {"session": self.session, "turn": self.turn}
        return {
            **(kept if self.session else {}),
            "id": self.id,
            "context_id": self.context,
            "content": self.text,
            "finish_reason": self.finish,
            "usage": self.usage,
            "receipt": self.receipt,
        }


def ask(client: Client, path: str, body: Json, on_text: Callable[[str], None]) -> Answer:
    """The answer to `body`, streamed: `on_text` gets each piece. Raises Failure.

    Leaving by an exception, Ctrl-C too, closes the connection, which stops the answer.
    """
    answer = Answer()
    streamed = {
        **body,
        "stream": True,
        "stream_options": {"include_usage": True},
        "huginn": {"receipt": True},
    }
    with client.stream(path, streamed) as stream:
        answer.context = stream.header("Huginn-Context")
        for event in stream.events():
            _take(answer, event, on_text)
    return answer


def respond(client: Client, body: Json, answer: Answer, on_text: Callable[[str], None]) -> None:
    """Fill `answer` with the response to `body`, a turn of a session; otherwise as `ask`.

    Where it is kept stands in `answer` from the first moment on, also when it is left early.
    """
    streamed = {**body, "stream": True, "huginn": {**body.get("huginn", {}), "receipt": True}}
    with client.stream(RESPOND, streamed) as stream:
        answer.context = stream.header("Huginn-Context")
        answer.session = stream.header("Huginn-Session")
        answer.turn = stream.header("Huginn-Turn")
        for event in stream.events():
            if event["type"] == "error":
                raise ApiFailure(http.HTTPStatus.OK, {"error": event})
            if event["type"] == "response.output_text.delta":
                answer.text += event["delta"]
                on_text(event["delta"])
            if event["type"] in _ENDS:
                _take_response(answer, event["response"])
                return


def served_model(client: Client, wanted: str | None) -> str:
    """The model to ask: `wanted`, else the first that is served to this key."""
    if wanted:
        return wanted
    served = client.get("/v1/models")["data"]
    if not served:
        raise Failure("no model is served to this key", code="no_model")
    return str(served[0]["id"])


def reuse_line(receipt: Json) -> str:
    """What a turn reused, for people, as far as this key may know it."""
    if receipt.get("withheld"):
        return (
            f"{receipt['prompt_tokens']} prompt tokens, {receipt['completion_tokens']} generated; "
            "what was reused is not for this key to know: the prompt begins with public blocks"
        )
    return (
        f"reused {receipt['reused_tokens']} of {receipt['prompt_tokens']} prompt tokens, "
        f"{receipt['completion_tokens']} generated, first after {receipt['ttft_ms']:.0f} ms"
    )


def _take_response(answer: Answer, response: Json) -> None:
    answer.id = response["id"]
    answer.finish = "stop" if response["status"] == "completed" else "length"
    answer.usage = response["usage"]
    answer.receipt = response["huginn"].get("receipt")


def _take(answer: Answer, event: Json, on_text: Callable[[str], None]) -> None:
    answer.id = event.get("id") or answer.id
    answer.usage = event.get("usage") or answer.usage
    answer.receipt = (event.get("huginn") or {}).get("receipt") or answer.receipt
    for choice in event.get("choices", []):
        piece = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
        if piece:
            answer.text += piece
            on_text(piece)
        answer.finish = choice.get("finish_reason") or answer.finish
