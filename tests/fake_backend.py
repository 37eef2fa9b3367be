"""A strict back end in memory: a schedule that is not the promised one gives other logits.

Every position has a digest of the rows that were there before it, of the whole chunk that brought
it, of where it stood in that chunk, and of whether `advance` or `decode` brought it. Rows and
logits are functions of that digest. So a chunk cut elsewhere, an id fed twice or a decoded token
taken for a prefilled one shows in the first comparison. It is stricter than the contract: a real
library may give equal bits where this one differs.

As in a model, what is fed looks at the rows themselves: at all full rows, and at the sliding rows
of the window. So a restored page with one other byte shows as well, a sliding row that is not
looked at may be missing, and one that is looked at may not.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from actors.worker.backend import Memory, PageRows
from protocol.errors import ContentError, WorkerFault
from protocol.tokenizer import TokenizerContract
from protocol.tokens import TokenIds, pack

if TYPE_CHECKING:
    from actors.worker.backend import Logits

_FIRST_BYTE: Final = 8
_ROW_BYTES: Final = 32
_POSITION_BYTES: Final = 2 * _ROW_BYTES
_TILE_TOKENS: Final = 64
Fed = tuple[Literal["advance", "decode", "truncate", "restore"], int, TokenIds | int]


class FakeTokenizer:
    """One id for each byte of UTF-8, from 8 on; 1 … 4 are eos, bos and the turns' bounds."""

    def __init__(self) -> None:
        self.deny = frozenset(range(_FIRST_BYTE))
        self.contract = TokenizerContract(
            v=1,
            kind="tokenizer",
            vocabulary_digest=hashlib.sha256(b"bytes from 8").digest(),
            vocabulary_tokens=_FIRST_BYTE + 256,
            control={"eos": 1, "bos": 2, "start_of_turn": 3, "end_of_turn": 4},
            deny_digest=hashlib.sha256(pack(sorted(self.deny))).digest(),
            discipline="bytes/1",
        )

    def encode(self, text: str) -> TokenIds:
        try:
            return tuple(byte + _FIRST_BYTE for byte in text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise ContentError("a lone surrogate") from error

    def piece(self, token: int) -> bytes:
        if not 0 <= token < self.contract.vocabulary_tokens:
            raise ContentError(f"token {token} is outside the vocabulary")
        return bytes((token - _FIRST_BYTE,)) if token >= _FIRST_BYTE else b""

    def decode(self, ids: TokenIds) -> bytes:
        return b"".join(map(self.piece, ids))


@dataclass(slots=True)
class _Rows:
    """The rows, position after position, each its K then its V; the sliding ones from `lowest`."""

    full: bytearray = field(default_factory=bytearray)
    sliding: bytearray = field(default_factory=bytearray)
    lowest: int = 0

    def __len__(self) -> int:
        return len(self.full) // _POSITION_BYTES

    def seen(self, window_tokens: int) -> bytes:
        """A digest of all rows that the next token looks at. Sliding rows that are those of their
        positions add nothing to it, so that a sequence has one state whatever the window."""
        first = max(0, len(self) - window_tokens)
        assert self.lowest <= first, "a sliding row that is looked at is missing"
        sliding = self.sliding[(first - self.lowest) * _POSITION_BYTES :]
        whole = hashlib.sha256(self.full)
        right = np.frombuffer(self.full, dtype=np.uint8).reshape(-1, 2, _ROW_BYTES)[first:, ::-1]
        if sliding != right.tobytes():
            whole.update(sliding)
        return whole.digest()

    def append(self, digest: bytes) -> None:
        self.full += digest + digest[::-1]
        self.sliding += digest[::-1] + digest

    def cut(self, tokens: int) -> None:
        del self.full[tokens * _POSITION_BYTES :]
        del self.sliding[max(0, tokens - self.lowest) * _POSITION_BYTES :]
        if not tokens:
            self.lowest = 0

    def clear(self) -> None:
        """Lose everything: what a broken library does."""
        self.cut(0)

    def pop(self) -> None:
        """Lose the last position: what a broken library does."""
        self.cut(len(self) - 1)

    def section(self, rows: bytearray, start: int, stop: int) -> bytes:
        """A page's section: the K rows of the run, then its V rows."""
        run = np.frombuffer(rows, dtype=np.uint8).reshape(-1, 2, _ROW_BYTES)[start:stop]
        return run.transpose(1, 0, 2).tobytes()


class FakeBackend:
    """Implements Backend. `fed` lists every call that changed a stream, in order; `fault` makes
    the next one fail and leave its stream as it was (`keep`) or empty (`clear`), with an error of
    `fault_class`."""

    def __init__(
        self,
        *,
        streams: int = 4,
        context_tokens: int = 512,
        chunk_tokens: int = 256,
        group_max: int = 3,
        window_tokens: int = 64,
    ) -> None:
        self.tokenizer = FakeTokenizer()
        self.streams = streams
        self.context_tokens = context_tokens
        self.chunk_tokens = chunk_tokens
        self.group_max = group_max
        self.export_tokens_max = window_tokens
        rows = 2 * _POSITION_BYTES  # full and sliding
        kv = rows * streams * context_tokens
        self.memory = Memory(rows, kv, kv + 1_000)
        self.fed: list[Fed] = []
        self.fault: Literal["keep", "clear"] | None = None
        self.fault_class: type[Exception] = WorkerFault
        self._rows = [_Rows() for _ in range(streams)]
        self._lent: list[Logits] = []
        self._busy = threading.Lock()
        self._closed = False

    def length(self, stream: int) -> int:
        with self._alone():
            return len(self._stream(stream))

    def advance(self, stream: int, ids: TokenIds, *, logits: bool) -> Logits | None:
        with self._alone():
            self._take_back()
            held = self._stream(stream)
            if not 1 <= len(ids) <= self.chunk_tokens:
                raise WorkerFault(f"an advance of {len(ids)} tokens")
            self._check(stream, ids)
            chunk = hashlib.sha256(b"advance" + self._seen(held) + pack(ids)).digest()
            for index in range(len(ids)):
                held.append(hashlib.sha256(chunk + pack((index,))).digest())
            self.fed.append(("advance", stream, tuple(ids)))
            return self._logits(held) if logits else None

    def decode(self, items: Sequence[tuple[int, int]]) -> list[Logits]:
        with self._alone():
            self._take_back()
            if not 1 <= len(items) <= self.group_max:
                raise WorkerFault(f"a decode of {len(items)} streams")
            if len({stream for stream, _ in items}) != len(items):
                raise WorkerFault("a decode names a stream twice")
            for stream, token in items:
                self._check(stream, (token,))
            for stream, token in items:
                held = self._rows[stream]
                seen = self._seen(held)
                held.append(hashlib.sha256(b"decode" + seen + pack((token,))).digest())
                self.fed.append(("decode", stream, (token,)))
            return [self._logits(self._rows[stream]) for stream, _ in items]

    def can_truncate(self, stream: int, tokens: int) -> bool:
        with self._alone():
            return self._can_truncate(self._stream(stream), tokens)

    def truncate(self, stream: int, tokens: int) -> None:
        with self._alone():
            held = self._stream(stream)
            if not self._can_truncate(held, tokens):
                raise WorkerFault(f"cannot keep {tokens} of {len(held)} positions")
            held.cut(tokens)
            self.fed.append(("truncate", stream, tokens))

    def sliding_start(self, tokens: int) -> int:
        return max(0, tokens - self.export_tokens_max) // _TILE_TOKENS * _TILE_TOKENS

    def restore(
        self, stream: int, pages: Sequence[PageRows], *, tokens: int, sliding_from: int
    ) -> None:
        with self._alone():
            held = self._stream(stream)
            if len(held):
                raise WorkerFault(f"stream {stream} holds {len(held)} positions")
            if not 1 <= tokens <= self.context_tokens:
                raise WorkerFault(f"a restore of {tokens} tokens")
            latest = self.sliding_start(tokens)
            if not 0 <= sliding_from <= latest or sliding_from % _TILE_TOKENS:
                raise WorkerFault(f"sliding rows from {sliding_from}: at most {latest}")
            self._fail_if_asked(held)
            full, sliding, at = bytearray(), bytearray(), 0
            for page in pages:
                count, rest = divmod(len(page.full), _POSITION_BYTES)
                if rest or not count:
                    raise WorkerFault(f"a page of {len(page.full)} bytes")
                optional = at + count <= sliding_from
                if len(page.sliding) != len(page.full) and not (optional and not page.sliding):
                    raise WorkerFault(f"{len(page.sliding)} bytes of sliding rows")
                full += _positions(page.full)
                if not optional:
                    sliding += _positions(page.sliding)[
                        max(0, sliding_from - at) * _POSITION_BYTES :
                    ]
                at += count
            if at != tokens:
                raise WorkerFault(f"pages of {at} positions where {tokens} were announced")
            self._rows[stream] = _Rows(full, sliding, sliding_from)
            self.fed.append(("restore", stream, tokens))

    def export(self, stream: int, start: int, stop: int) -> PageRows:
        with self._alone():
            held = self._stream(stream)
            oldest = max(0, len(held) - self.export_tokens_max)
            if not oldest <= start < stop <= len(held):
                raise WorkerFault(
                    f"rows {start}…{stop - 1}: of {len(held)} positions, the last "
                    f"{self.export_tokens_max} are given back"
                )
            return PageRows(
                full=held.section(held.full, start, stop),
                sliding=held.section(held.sliding, start - held.lowest, stop - held.lowest),
            )

    def close(self) -> None:
        with self._alone(open_=False):
            self._closed = True

    def _stream(self, stream: int) -> _Rows:
        if not 0 <= stream < self.streams:
            raise WorkerFault(f"stream {stream} is not one of {self.streams}")
        return self._rows[stream]

    def _seen(self, held: _Rows) -> bytes:
        return held.seen(self.export_tokens_max)

    def _can_truncate(self, held: _Rows, tokens: int) -> bool:
        if not 0 <= tokens <= len(held):
            return False
        return not tokens or held.lowest <= self.sliding_start(tokens)

    def _fail_if_asked(self, held: _Rows) -> None:
        if self.fault is not None:
            kind, self.fault = self.fault, None
            if kind == "clear":
                held.cut(0)
            raise self.fault_class("a fault that the test asked for")

    def _check(self, stream: int, ids: TokenIds) -> None:
        held = self._stream(stream)
        self._fail_if_asked(held)
        for token in ids:
            if not 0 <= token < self.tokenizer.contract.vocabulary_tokens:
                raise WorkerFault(f"token {token} is outside the vocabulary")
        if len(held) + len(ids) > self.context_tokens:
            raise WorkerFault(f"stream {stream} is full: {self.context_tokens} positions")

    def _logits(self, held: _Rows) -> Logits:
        count = self.tokenizer.contract.vocabulary_tokens
        last = bytes(held.full[-_POSITION_BYTES:])
        raw = hashlib.shake_256(b"logits" + last).digest(2 * count)
        lent = np.frombuffer(raw, dtype="<u2").astype(np.float32) / 4096 - 8
        self._lent.append(lent)
        return lent

    def _take_back(self) -> None:
        """What was lent is of no use any more, and who still reads it finds out."""
        for logits in self._lent:
            logits.fill(np.nan)
        self._lent.clear()

    @contextmanager
    def _alone(self, *, open_: bool = True) -> Iterator[None]:
        assert self._busy.acquire(blocking=False), "a back end was called from two threads"
        try:
            if open_ and self._closed:
                raise WorkerFault("the back end was closed")
            yield
        finally:
            self._busy.release()


def _positions(section: bytes) -> bytes:
    """A page's section, position after position: `_Rows.section` backwards."""
    rows = np.frombuffer(section, dtype=np.uint8).reshape(2, -1, _ROW_BYTES)
    return rows.transpose(1, 0, 2).tobytes()
