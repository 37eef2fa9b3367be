"""A JSON answer."""

from __future__ import annotations

import msgspec

from actors.gateway.http.answer import json_response


def test_an_answer_is_json_with_its_status_and_headers() -> None:
    response = json_response({"naïve": "🐦"}, status=201, headers={"X-A": "b"})
    assert response.status == 201
    assert response.content_type == "application/json"
    assert response.headers["X-A"] == "b"
    assert isinstance(response.body, bytes)
    assert msgspec.json.decode(response.body) == {"naïve": "🐦"}
