"""What sources need beside the world: keys to sign with, and a way to other installations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from typing import Final, NamedTuple, Protocol

from protocol.signing import Signer

# How the name of every source's key begins: no other key's does.
KEY_PREFIX: Final = "source-"


class SourceKeys(Protocol):
    """Where the keys of local sources are kept."""

    def signer(self, name: str) -> Signer:
        """The key `name` (`[a-z0-9-]`, at most 80 characters), made the first time.

        Raises StoreFault if it cannot be kept, or be trusted.
        """

    def destroy(self, name: str) -> bool:
        """Destroys the key `name`, if it was made; whether it was. Raises StoreFault."""

    def keep_only(self, names: Collection[str]) -> None:
        """Destroys every key of a source whose name is not among `names`. Raises StoreFault."""


class Remote(NamedTuple):
    """A source at another installation: its resource there (`…/huginn/v1/sources/NAME`), the file
    that holds the API key to show, and the namespace here that it is followed for."""

    url: str
    api_key_file: str
    namespace: str


class Hole(NamedTuple):
    """Numbers `first` … `last` are kept no longer at the source's own installation."""

    first: int
    last: int


class RemotePage(NamedTuple):
    """Entries as they were signed, not verified, after what `hole` names; `head` is the newest
    number there."""

    entries: list[bytes]
    head: int
    hole: Hole | None = None


class RemoteFeed(Protocol):
    """How a source of another installation is read. Raises FeedLost and FeedRefused alone."""

    def check(self, remote: Remote) -> None:
        """Raises FeedRefused, with the way out, for a remote that may not be asked from here."""

    async def page(self, remote: Remote, after: int, limit: int, wait_ns: int) -> RemotePage:
        """Entries after number `after`, at most `limit`. Where there is none, waits up to
        `wait_ns` for one (a long poll)."""

    def stream(self, remote: Remote, after: int) -> AsyncGenerator[bytes | Hole, None]:
        """Entries after number `after`, and every later one as it comes. Ends when the other side
        does; closing it closes the connection."""

    async def close(self) -> None:
        """Gives up what is open."""
