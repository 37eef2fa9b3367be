"""What every dialect says of a session's turn: its headers, and its errors by parameter."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from actors.gateway.answers import Choice
from actors.gateway.courier import SessionTurn
from actors.gateway.http.delivery import Settling
from actors.gateway.http.errors import ApiError
from actors.gateway.http.extension import SESSION_HEADER, TURN_HEADER
from protocol.errors import ContentError, NotVisible

# A request that is sent again with the same key, to the same session, is one turn. The answer is
# told as it was, less its times, and without the receipt, which is asked for by the response's id.
KEY_HEADER: Final = "Idempotency-Key"
# How an answer is told, whole or streamed, is no part of what was asked.
_TELLING: Final = frozenset({"stream", "stream_options", "huginn"})


def turn_headers(turn: SessionTurn) -> dict[str, str]:
    """Where the answer is kept."""
    return {SESSION_HEADER: turn.session, TURN_HEADER: turn.turn}


def terms_of(body: msgspec.Struct, said: str, profile: str | None) -> bytes:
    """The digest of what `body` asks besides its field `said`, which is the turn's input, of the
    model under `profile`. Null is absent; fields that are ignored are not in it."""
    fields = {
        name: value
        for name, value in msgspec.structs.asdict(body).items()
        if value is not None and name != said and name not in _TELLING
    }
    asked = msgspec.json.encode([said, profile, fields], order="deterministic")
    return hashlib.sha256(b"huginn.turn-terms/1\0" + asked).digest()


def refuse_logprobs(key: str | None) -> None:
    """Raises ContentError for logprobs of an answer that is to be told again: none are kept."""
    if key is not None:
        raise ContentError(
            f"logprobs are not kept with a turn, and with {KEY_HEADER} its answer is told again as "
            f"it was: ask without logprobs, or without {KEY_HEADER}",
            param="logprobs",
        )


def settling(turn: SessionTurn) -> Settling:
    """What a delivery of `turn` does once its answer was told."""

    async def settle(_: list[Choice]) -> None:
        await turn.settle()

    return settle


def refuse_choices(choices: int) -> None:
    """Raises ContentError for more answers than a turn has."""
    if choices != 1:
        raise ContentError(
            f"n is {choices}, and a turn of a session has one answer, on which the next turn "
            "builds: ask without a session, or once for each answer in sessions of their own",
            param="n",
        )


@contextmanager
def naming_session(response: str | None = None) -> Iterator[None]:
    """A session that is not there inside the block, or the response that a turn should go on from
    (where it was named): 4xx that names the parameter, the same for unknown and forbidden."""
    try:
        yield
    except NotVisible as error:
        if response is not None:
            raise ApiError(
                400,
                f"There is no response {response!r:.80} that this key may go on from.",
                code="previous_response_not_found",
                param="previous_response_id",
            ) from error
        raise ApiError(
            404,
            "There is no such session that this key may use: make one with "
            "POST /huginn/v1/sessions.",
            code="session_not_found",
            param="huginn.session",
        ) from error
