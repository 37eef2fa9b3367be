"""The response object, and that its note gives it back without holding a word of content."""

from __future__ import annotations

import msgspec
import pytest
from openai.types.responses import Response

from actors.gateway.answers import Choice
from actors.gateway.http.response_object import (
    ResponseFields,
    Usage,
    document,
    fields_of,
    item_id,
    note_of,
    output_item,
)
from protocol.errors import HuginnError

BEGUN = ResponseFields(
    id="resp_abc",
    created_at=1_700_000_000,
    model="raven",
    temperature=0.5,
    top_p=1.0,
    parallel_tool_calls=True,
    metadata={"a": "b"},
    session="s",
    turn="t",
    context="ctx:x",
)
USAGE = Usage(10, 4, 3)


@pytest.mark.req("SRV-1")
@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [("stop", "completed", None), ("length", "incomplete", "max_output_tokens")],
)
def test_the_official_type_reads_every_state(finish: str, status: str, reason: str | None) -> None:
    ended = BEGUN.ended(Choice(finish=finish), USAGE, 1_700_000_001)  # type: ignore[arg-type]
    shown = Response.model_validate(document(ended, text="Hi.", instructions="be brief"))
    assert (shown.status, shown.output_text, shown.instructions) == (status, "Hi.", "be brief")
    assert (shown.incomplete_details and shown.incomplete_details.reason) == reason
    assert shown.output[0].id == item_id("resp_abc") == "msg_abc"
    assert shown.output[0].status == status  # type: ignore[union-attr]
    assert shown.usage is not None
    assert shown.usage.total_tokens == 13
    assert shown.usage.input_tokens_details.cached_tokens == 4
    begun = Response.model_validate(document(BEGUN))
    assert (begun.status, begun.output, begun.usage) == ("in_progress", [], None)
    failed = Response.model_validate(document(BEGUN.failed(), error=HuginnError("it broke")))
    assert failed.error is not None
    assert (failed.status, failed.error.message) == ("failed", "it broke")


def test_a_note_gives_the_response_back() -> None:
    ended = BEGUN.ended(Choice(finish="stop"), USAGE, 1_700_000_001)
    assert fields_of(note_of(ended)) == ended
    for broken in (b"", b"[]", b'{"id":1}'):
        with pytest.raises(msgspec.MsgspecError):
            fields_of(broken)


@pytest.mark.req("AUT-7")
def test_what_was_reused_is_for_those_who_may_know() -> None:
    ended = BEGUN.ended(Choice(finish="stop"), USAGE, 1)
    for telemetry, cached in ((True, 4), (False, 0)):
        usage = document(ended, text="", telemetry=telemetry)["usage"]
        assert usage["input_tokens_details"]["cached_tokens"] == cached
        assert usage["input_tokens"] == 10


def test_an_item_that_has_only_begun_is_empty() -> None:
    item = output_item(BEGUN, None)
    assert (item["status"], item["content"]) == ("in_progress", [])
