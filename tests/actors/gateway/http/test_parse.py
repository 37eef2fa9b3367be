"""Request bodies: JSON or a 400 that names the field; what is not known is listed."""

from __future__ import annotations

import msgspec
import pytest
from aiohttp import ClientSession
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.http.openai_chat import ChatRequest
from actors.gateway.http.parse import ignored_header
from actors.gateway.limits import Limits
from tests.fake_rooms import running

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


@pytest.mark.req("SRV-1")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":NaN}',
        b'{"model":"\\ud800"}',
        b"null",
        b"[]",
        b'"x"',
        b"1",
        b'{"n":' + b"9" * 5000 + b"}",
    ],
)
async def test_what_is_no_json_object_is_a_400(http: ClientSession, body: bytes) -> None:
    async with http.post(CHAT, data=body) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["type"] == "invalid_request_error"
    assert isinstance(error["message"], str)


@pytest.mark.req("SRV-1")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": 1}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 5.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"stream": "yes"}, "stream"),
        ({"stop": 5}, "stop"),
        ({"stop": ["a", 5]}, "stop[1]"),
        ({"logit_bias": {"5": "x"}}, "logit_bias"),
        ({"logit_bias": []}, "logit_bias"),
        ({"stream_options": True}, "stream_options"),
        ({"huginn": {"receipt": "yes"}}, "huginn.receipt"),
    ],
)
async def test_a_wrong_type_names_the_parameter(
    http: ClientSession, fields: dict[str, object], param: str
) -> None:
    body = {"model": "raven", "messages": HI} | fields
    async with http.post(CHAT, json=body) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["param"] == param
    assert param in error["message"]


@pytest.mark.req("SRV-1")
async def test_a_missing_field_is_named(http: ClientSession) -> None:
    async with http.post(CHAT, json={"model": "raven"}) as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == "messages"


@pytest.mark.req("SRV-1")
async def test_null_is_absent(http: ClientSession) -> None:
    """G4, G8: null in place of every optional parameter changes nothing."""
    fields = msgspec.structs.fields(ChatRequest)
    names = [field.name for field in fields if not field.required]
    assert len(names) > 20
    body = {"model": "raven", "messages": HI} | dict.fromkeys(names)
    async with http.post(CHAT, json=body) as response:
        assert response.status == 200
        assert "Huginn-Ignored" not in response.headers


@pytest.mark.req("SRV-1")
async def test_unknown_fields_are_ignored_and_listed(http: ClientSession) -> None:
    body = {"model": "raven", "messages": HI, "store": True, "a\r\nb, é": 1}
    for stream in (False, True):
        async with http.post(CHAT, json=body | {"stream": stream}) as response:
            assert response.status == 200
            assert response.headers["Huginn-Ignored"] == "store, a%0D%0Ab%2C%20%C3%A9"


@given(st.lists(st.text(), max_size=50))
def test_the_header_is_one_line_of_ascii(names: list[str]) -> None:
    try:
        value = ignored_header(tuple(names))
    except UnicodeEncodeError:
        # JSON texts hold no half characters: the decoder refuses them.
        assert any("\ud800" <= c <= "\udfff" for name in names for c in name)
        return
    assert value.isascii()
    assert value.isprintable()
    assert len(value) < 32 * 64 * 13


@pytest.mark.req("SRV-1")
async def test_a_body_over_the_limit_is_a_413_in_json() -> None:
    async with running(Limits(body_bytes_max=1000)) as service:
        headers = {"Authorization": f"Bearer {service.operator_key}"}
        body = msgspec.json.encode({"model": "raven", "messages": HI, "pad": "x" * 2000})

        async def in_parts():  # type: ignore[no-untyped-def]
            for at in range(0, len(body), 100):
                yield body[at : at + 100]

        async with ClientSession(service.base_url, headers=headers) as http:
            # Announced, and not announced.
            for data in (body, in_parts()):
                async with http.post(CHAT, data=data) as response:
                    assert response.status == 413
                    error = (await response.json())["error"]
                assert error["code"] == "request_entity_too_large"
                assert "1000" in error["message"]
            async with http.post(CHAT, json={"model": "raven", "messages": HI}) as response:
                assert response.status == 200


async def test_a_body_of_too_many_values_is_refused_before_it_is_one() -> None:
    async with running(Limits(body_values_max=100)) as service:
        headers = {"Authorization": f"Bearer {service.operator_key}"}
        async with ClientSession(service.base_url, headers=headers) as http:
            for count, status in ((90, 200), (101, 400)):
                body = {"model": "raven", "messages": HI} | {"aside": [[]] * (count // 2)}
                async with http.post(CHAT, json=body) as response:
                    assert response.status == status
                    answer = await response.json()
            assert answer["error"]["code"] == "limit_exceeded"
            assert "100 values" in answer["error"]["message"]


@pytest.mark.req("SRV-1")
async def test_a_body_that_is_not_in_its_own_encoding_is_a_400(http: ClientSession) -> None:
    # A 500 would make clients try again, for ever in vain.
    async with http.post(CHAT, data=b"abcd", headers={"Content-Encoding": "gzip"}) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "bad_request"
