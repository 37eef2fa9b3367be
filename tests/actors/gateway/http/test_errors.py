"""One table from errors to answers."""

from __future__ import annotations

import pytest
from aiohttp import web

from actors.gateway.http.errors import of_fault, of_http, of_huginn, one_answer, unsupported
from protocol.errors import (
    CODE_TO_ERROR,
    AuthorityError,
    BudgetExceeded,
    CapabilityError,
    Conflict,
    ContentError,
    DiskFull,
    EncodingError,
    FaultError,
    HuginnError,
    InvocationError,
    LimitExceeded,
    NotVisible,
    RequestError,
    StoreFault,
    Unavailable,
    WorkerFault,
)


@pytest.mark.req("SRV-1")
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContentError("x"), 400, "invalid_request"),
        (EncodingError("key", 1, "x"), 400, "invalid_request"),
        (BudgetExceeded("x"), 400, "context_length_exceeded"),
        (LimitExceeded("x"), 400, "limit_exceeded"),
        (NotVisible("x"), 404, "not_found"),
        (Conflict("x"), 409, "conflict"),
        (Conflict("x", reason="turn_in_progress"), 409, "turn_in_progress"),
        (Conflict("x", reason="key_reused"), 409, "key_reused"),
        (CapabilityError("time", "x"), 403, "permission_denied"),
        (InvocationError("right", "x"), 403, "permission_denied"),
        (WorkerFault("x"), 503, "worker_unavailable"),
        (Unavailable("x"), 503, "unavailable"),
        (StoreFault("x"), 500, "internal_error"),
        (DiskFull("x"), 507, "disk_full"),
    ],
)
def test_each_error_has_its_status_and_code(error: HuginnError, status: int, code: str) -> None:
    made = of_huginn(error)
    assert (made.status, made.body.error.code) == (status, code)


def test_a_key_that_came_with_another_input_is_not_tried_again() -> None:
    assert of_huginn(Conflict("x", reason="key_reused")).headers == {"x-should-retry": "false"}
    assert of_huginn(Conflict("x", reason="turn_in_progress")).headers == {}


def test_every_error_of_the_tree_is_on_its_own_side() -> None:
    """Yours is 4xx, mine is 5xx: also for an error that is added tomorrow."""
    for kind in CODE_TO_ERROR.values():
        made = of_huginn(kind.rebuild("x", {}))
        assert (made.status < 500) == issubclass(kind, RequestError)
        # SDKs try these again: a request that will fail the same way must not have them.
        assert made.status not in (408, 429)


def test_a_parameter_travels_in_the_details() -> None:
    assert of_huginn(ContentError("x", param="n")).body.error.param == "n"
    assert of_huginn(ContentError("x", param=5)).body.error.param is None


@pytest.mark.req("AUT-3")
def test_what_must_not_be_told_is_not() -> None:
    secret = "ctx:secret"
    for error in (NotVisible(secret), AuthorityError("scope", secret), FaultError(secret)):
        assert secret not in of_huginn(error).body.error.message


@pytest.mark.req("AUT-3")
def test_inside_the_block_every_refusal_is_one_answer() -> None:
    said = set()
    for error in (NotVisible("a"), CapabilityError("scope", "b"), InvocationError("right", "c")):
        with pytest.raises(NotVisible) as caught, one_answer():
            raise error
        said.add(of_huginn(caught.value).response().body)
    assert len(said) == 1
    with pytest.raises(ContentError), one_answer():
        raise ContentError("what is wrong with the caller's own words is told")


def test_a_framework_error_keeps_its_status() -> None:
    made = of_http(web.HTTPMethodNotAllowed("PUT", ["GET", "POST"]))
    assert made.status == 405
    assert set(made.headers["Allow"].split(",")) == {"GET", "POST"}
    assert of_http(web.HTTPUnprocessableEntity()).body.error.code is not None


def test_a_fault_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    made = of_fault(KeyError("secret"))
    assert made.status == 500
    assert "secret" not in made.body.error.message
    assert caplog.records[0].exc_info is not None


def test_an_unsupported_parameter_is_named() -> None:
    made = unsupported("tools", "not now")
    assert (made.status, made.body.error.param) == (400, "tools")


def test_a_worker_that_is_away_says_when_to_come_back() -> None:
    assert of_huginn(WorkerFault("x")).response().headers["Retry-After"] == "1"
