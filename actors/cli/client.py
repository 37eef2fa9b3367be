"""A small client of the HTTP API: JSON calls, and streams of server-sent events.

It finds the service as a person would expect: what HUGINN_HOST and HUGINN_PORT name, else the
service that runs on the data directory, else what the configuration says. The key is
$HUGINN_API_KEY, else the operator's.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

from actors.cli.asked import Asked, Failure
from actors.cli.service_file import running, url

KEY_FILE: Final = "operator.key"
KEY_VARIABLE: Final = "HUGINN_API_KEY"
# The service breaks its silence every few seconds while it computes, on streams at least.
_SECONDS_MAX: Final = 120.0
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"


class ApiFailure(Failure):
    """An answer that is an error: its message, its code and its HTTP status."""

    def __init__(self, status: int, body: Any) -> None:
        error = body.get("error") if isinstance(body, dict) else None
        fields = error if isinstance(error, dict) else {}
        message = str(fields.get("message") or f"the service answered with status {status}")
        code = str(fields.get("code") or "http_error")
        super().__init__(message, code=code, status=status, param=fields.get("param"))
        self.status = status


@dataclass(frozen=True)
class Client:
    """A service at `base`, asked with `key` (None: without one)."""

    base: str
    key: str | None = None
    seconds_max: float = _SECONDS_MAX

    def get(self, path: str) -> Any:
        """The JSON under `path`. Raises ApiFailure, or Failure where no service answers."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: object, more: Mapping[str, str] | None = None) -> Any:
        """As `get`; `more` are headers."""
        return self._ask("POST", path, body, more)

    def put(self, path: str, body: object) -> Any:
        """As `get`."""
        return self._ask("PUT", path, body)

    def delete(self, path: str) -> Any:
        return self._ask("DELETE", path, None)

    def health(self) -> tuple[int, Any]:
        """Status and body of `/health`, which is 503 while the service loads."""
        with self._sent("GET", "/health", None) as response:
            return response.status, _json(response.read())

    @contextmanager
    def stream(self, path: str, body: object) -> Iterator[Stream]:
        """The events that answer `body`. Leaving the block early stops the answer."""
        with self._sent("POST", path, body) as response:
            if response.status != http.HTTPStatus.OK:
                raise ApiFailure(response.status, _json(response.read()))
            yield Stream(response, self)

    @contextmanager
    def tail(self, path: str) -> Iterator[Stream]:
        """The events under `path`, for as long as they come."""
        with self._sent("GET", path, None, {"Accept": "text/event-stream"}) as response:
            if response.status != http.HTTPStatus.OK:
                raise ApiFailure(response.status, _json(response.read()))
            yield Stream(response, self)

    def _ask(
        self, method: str, path: str, body: object, more: Mapping[str, str] | None = None
    ) -> Any:
        with self._sent(method, path, body, more) as response:
            answer = _json(response.read())
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                raise ApiFailure(response.status, answer)
            return answer

    @contextmanager
    def _sent(
        self, method: str, path: str, body: object, more: Mapping[str, str] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        place = urlsplit(self.base)
        connection = http.client.HTTPConnection(
            place.hostname or "", place.port, timeout=self.seconds_max
        )
        headers = dict(more or {})
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None
        if body is not None:
            data = json.dumps(body).encode("utf-8")
            headers["Content-Type"] = "application/json"
        try:
            with self.reachable():
                connection.request(method, path, body=data, headers=headers)
                response = connection.getresponse()
            yield response
        finally:
            connection.close()

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Turns what goes wrong on the wire into a Failure that says what to do."""
        try:
            yield
        except ConnectionRefusedError as error:
            raise Failure(
                f"no service answers at {self.base}: start one with `huginn up`, or say where it "
                "is with HUGINN_HOME or HUGINN_PORT",
                code="not_running",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise Failure(
                f"the connection to {self.base} failed: {str(error) or type(error).__name__}",
                code="connection",
            ) from error


class Stream:
    """An open stream: its headers, and its events as they come."""

    def __init__(self, response: http.client.HTTPResponse, client: Client) -> None:
        self._response = response
        self._client = client

    def header(self, name: str) -> str | None:
        return self._response.headers.get(name)

    def events(self) -> Iterator[Any]:
        """Every event up to `[DONE]`. Raises ApiFailure for an error event, Failure for a stream
        that breaks off."""
        while True:
            with self._client.reachable():
                line = self._response.readline()
            if not line:
                raise Failure("the stream broke off before its end", code="connection")
            if not line.startswith(_DATA):
                continue
            data = line[len(_DATA) :].strip()
            if data == _DONE:
                return
            event = _json(data)
            if isinstance(event, dict) and "error" in event:
                raise ApiFailure(self._response.status, event)
            yield event


def base_url(asked: Asked) -> str:
    """Where the service is, or would be."""
    origins = asked.origins()
    config = origins.config
    explicit = {"HUGINN_HOST", "HUGINN_PORT"} & {
        origins.key_to_origin["host"],
        origins.key_to_origin["port"],
    }
    service = None if explicit else running(config.home_path)
    return url(config.host, config.port) if service is None else service.url


def connect(asked: Asked, *, seconds_max: float = _SECONDS_MAX) -> Client:
    """A client with a key. Raises Failure where there is none."""
    return Client(base_url(asked), own_key(asked), seconds_max)


def segment(text: str) -> str:
    """`text` as one segment of a path."""
    return quote(text, safe="")


def own_key(asked: Asked) -> str:
    """The key in use. Raises Failure where there is none."""
    given = os.environ.get(KEY_VARIABLE)
    if given:
        return given.strip()
    path = asked.config().home_path / KEY_FILE
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(
            f"no API key: set {KEY_VARIABLE}, or let HUGINN_HOME name the data directory of the "
            f"service ({path} cannot be read: {error})",
            code="no_key",
        ) from error


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise Failure(
            f"the answer is not JSON: is this a Huginn service? It begins with {data[:40]!r}",
            code="not_huginn",
        ) from error
