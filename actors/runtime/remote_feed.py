"""Reading the sources of other installations over HTTP: pages, long polls, and streams.

What may be asked is the operator's to say: a file in `remote-keys/` of the data directory (0600)
has three words, the API key, the origin to which alone it is shown (`https://host:port`), and the
namespace here whose sources may use it. So nobody who may only add sources can have the service ask
an address of their choice, or show it a key. Redirects are not followed. Nothing of an answer is
believed: entries are passed on as bytes, to be verified.
"""

from __future__ import annotations

import base64
import binascii
import re
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from actors.events.ports import Hole, Remote, RemotePage
from protocol.errors import FeedLost, FeedRefused
from protocol.resource import path_covers

S = TypeVar("S", bound=msgspec.Struct)

# A page's entries, signed and decoded both; and one event of a stream.
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
EVENT_BYTES_MAX: Final = 16 * 1024 * 1024
CONNECT_SECONDS: Final = 10.0
# Longer than the other side stays silent: it breaks its silence every few seconds.
SILENCE_SECONDS: Final = 60.0
GAP: Final = "EventStreamGap"
_NS_PER_S: Final = 10**9
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESOURCE: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)*/huginn/v1/sources/[A-Za-z0-9._~%-]+")
_LATER: Final = frozenset({408, 425, 429})
_SERVER_ERROR: Final = 500


class _Entry(msgspec.Struct):
    entry: str


class _Gap(msgspec.Struct, rename={"first": "from", "last": "to"}):
    first: int
    last: int
    cause: str


class _Page(msgspec.Struct):
    data: list[_Entry]
    head: int
    gap: _Gap | None = None


class _Event(NamedTuple):
    """One event of a stream."""

    name: str
    data: bytes


class HttpFeed:
    """`RemoteFeed` over HTTP. `keys` is the directory `remote-keys/`."""

    def __init__(self, keys: Path, *, silence_seconds: float = SILENCE_SECONDS) -> None:
        self._keys = keys
        self._silence_s = silence_seconds
        self._session: aiohttp.ClientSession | None = None

    def check(self, remote: Remote) -> None:
        self._key(remote)

    async def page(self, remote: Remote, after: int, limit: int, wait_ns: int) -> RemotePage:
        wait_s = wait_ns // _NS_PER_S
        query = {"after": str(after), "limit": str(limit), "wait_s": str(wait_s)}
        async with self._asked(remote, query, "application/json", wait_s) as response:
            body = bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    raise FeedRefused(f"its answer is over {ANSWER_BYTES_MAX} bytes")
        page = _decoded(bytes(body), _Page)
        return RemotePage([_bytes(each.entry) for each in page.data], page.head, _hole(page.gap))

    async def stream(self, remote: Remote, after: int) -> AsyncGenerator[bytes | Hole, None]:
        query = {"after": str(after)}
        async with self._asked(remote, query, "text/event-stream", 0) as response:
            if response.content_type != "text/event-stream":
                raise FeedRefused(
                    f"it streams nothing: its answer is {response.content_type!r:.80}"
                )
            async for event in _events(response.content.iter_any()):
                if event.name == GAP:
                    hole = _hole(_decoded(event.data, _Gap))
                    if hole is not None:
                        yield hole
                elif event.data.startswith(b'{"error"'):
                    raise FeedLost("the other installation ended the stream with an error")
                else:
                    yield _bytes(_decoded(event.data, _Entry).entry)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def _asked(
        self, remote: Remote, query: dict[str, str], accept: str, wait_s: int
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a GET of the source's events, once it is known to be one."""
        headers = {
            "Authorization": f"Bearer {self._key(remote)}",
            "Accept": accept,
            "Accept-Encoding": "identity",
        }
        timeout = aiohttp.ClientTimeout(
            total=None, connect=CONNECT_SECONDS, sock_read=wait_s + self._silence_s
        )
        if self._session is None:
            # What is unpacked could be larger than anybody wants: nothing is.
            self._session = aiohttp.ClientSession(auto_decompress=False)
        try:
            async with self._session.get(
                f"{remote.url}/events",
                params=query,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                _check_status(response.status)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            what = str(error) or type(error).__name__
            raise FeedLost(f"the connection to {remote.url} failed: {what:.200}") from error

    def _key(self, remote: Remote) -> str:
        """The API key to show; FeedRefused where the operator has not allowed that."""
        name = remote.api_key_file
        place = urlsplit(remote.url)
        origin = f"{place.scheme}://{place.netloc}"
        if place.scheme not in ("http", "https") or remote.url != origin + place.path:
            raise FeedRefused("url is http:// or https://, and has no query")
        if not _RESOURCE.fullmatch(place.path):
            raise FeedRefused("url ends in /huginn/v1/sources/NAME")
        if not _NAME.fullmatch(name):
            raise FeedRefused(f"{name!r:.80} cannot name a file of remote-keys/")
        # One answer for all that is wrong with the file: its content is not this caller's.
        refused = FeedRefused(
            f"remote-keys/{name} does not let {remote.namespace} ask {origin}: the operator puts a "
            "file there (0600) with three words, the API key, the origin, and the namespace"
        )
        try:
            mode = (self._keys / name).stat().st_mode
            words = (self._keys / name).read_text("ascii").split()
        except (OSError, UnicodeDecodeError):
            raise refused from None
        if len(words) != 3 or stat.S_IMODE(mode) & 0o077:
            raise refused
        key, allowed, namespace = words
        if allowed.rstrip("/") != origin or not path_covers(namespace, remote.namespace):
            raise refused
        return key


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[_Event]:
    """Server-sent events out of a stream of bytes; comments and unknown fields are left out."""
    buffer, name, data = bytearray(), "", list[bytes]()
    async for piece in pieces:
        buffer += piece
        if len(buffer) > EVENT_BYTES_MAX:
            raise FeedRefused(f"one event of its stream is over {EVENT_BYTES_MAX} bytes")
        *lines, rest = bytes(buffer).split(b"\n") if b"\n" in piece else (bytes(buffer),)
        if not lines:
            continue
        buffer = bytearray(rest)
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif field == b"event":
                name = value.strip().decode("ascii", "replace")
            elif not line.rstrip(b"\r"):
                if data:
                    yield _Event(name, b"\n".join(data))
                name, data = "", []


def _check_status(status: int) -> None:
    if status >= _SERVER_ERROR or status in _LATER:
        raise FeedLost(f"the other installation is in trouble: status {status}")
    if status != 200:
        raise FeedRefused(f"the other installation refuses: status {status}")


def _decoded(data: bytes, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FeedRefused(f"its answer is not what a source gives: {error}") from error


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FeedRefused("an entry of its answer is not base64") from error


def _hole(gap: Any) -> Hole | None:
    # What an overrun left out follows; what retention did is gone.
    if gap is None or gap.cause != "retention":
        return None
    return Hole(gap.first, gap.last)
