"""The terms of a completion."""

from __future__ import annotations

import pytest

from actors.gateway.http.errors import ApiError
from actors.gateway.http.terms import (
    STOPS_MAX,
    CompletionFields,
    choices_of,
    logprobs_of,
    refuse_unimplemented,
    stops_of,
    tokens_max_of,
)
from protocol.errors import ContentError


def test_stops_are_a_text_or_a_list() -> None:
    assert stops_of(None) == []
    assert stops_of([]) == []
    assert stops_of("END") == ["END"]
    assert stops_of(["a", "b"]) == ["a", "b"]
    for wrong in ("", ["a", ""], ["a"] * (STOPS_MAX + 1)):
        with pytest.raises(ContentError) as caught:
            stops_of(wrong)
        assert caught.value.details["param"] == "stop"


@pytest.mark.parametrize("value", [0, -1, 9, 10**400])
def test_n_goes_from_one_to_eight(value: int) -> None:
    assert choices_of(None) == 1
    assert choices_of(8) == 8
    with pytest.raises(ContentError) as caught:
        choices_of(value)
    assert caught.value.details["param"] == "n"


def test_an_answer_has_a_token_at_least() -> None:
    assert tokens_max_of("max_tokens", None) is None
    assert tokens_max_of("max_tokens", 10**400) == 10**400
    with pytest.raises(ContentError):
        tokens_max_of("max_tokens", 0)


@pytest.mark.parametrize("value", [-1, 21])
def test_alternatives_go_to_twenty(value: int) -> None:
    assert logprobs_of("top_logprobs", 20) == 20
    with pytest.raises(ContentError):
        logprobs_of("top_logprobs", value)


@pytest.mark.req("SRV-6")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"type": "function"}], "tool_choice": "none"}, "tools"),
        ({"functions": [{}]}, "functions"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"function_call": "auto"}, "function_call"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        refuse_unimplemented(CompletionFields(model="m", **fields))  # type: ignore[arg-type]
    assert (caught.value.status, caught.value.body.error.param) == (400, param)


@pytest.mark.req("SRV-6")
def test_asking_for_none_of_it_is_fine() -> None:
    refuse_unimplemented(
        CompletionFields(
            model="m",
            tools=[],
            functions=[],
            tool_choice="none",
            function_call="none",
            response_format={"type": "text"},
        )
    )
