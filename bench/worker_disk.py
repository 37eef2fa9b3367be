"""What a turn writes to disk, beside the bytes of its new tokens and a save of the whole state.

A worker of its own, with pages on disk, is fed a history and then turns: an answer that is settled,
and a question. After each the page files that are new are looked up in the directory, and by how
much the index has grown, its log included. The peer is the library's own state file: what a save
of the same stream after the last of these turns writes, as a server does that keeps a conversation
over a restart. It has the full-attention rows of every token and the sliding ones of the last
window.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

from actors.worker.backends.llama import LlamaBackend
from actors.worker.tiers import Tiers
from actors.worker.writer import PageWriter
from bench.report import Cell
from protocol.messages.assembler import Segment
from protocol.tokens import TokenIds, pack
from store.pages.memory import MemoryPageTier
from tests.page_samples import TestClock, disk, files_below
from tests.worker_rooms import Bench, segment

OPENER_TOKENS = 4
Row = dict[str, Cell]
# Opens a worker on the back end over these tiers; it is drained at the end.
Open = Callable[[Tiers], AbstractAsyncContextManager[Bench]]


class Written(NamedTuple):
    """One turn: its new tokens, and what it added to the directory, in bytes: page files, and
    what lies `beside` them."""

    tokens: int
    pages: int
    beside: int


async def written_by_turns(
    backend: LlamaBackend,
    opened: Open,
    history: Sequence[Segment],
    ids: TokenIds,
    *,
    answer: int,
    turn: int,
    turns: int,
) -> Row:
    """`turns` turns of `answer` and `turn` new tokens behind `history`; `ids` are any words."""
    with tempfile.TemporaryDirectory(prefix="huginn-pages-") as root:
        clock = TestClock()
        host, store = MemoryPageTier(clock, 2**32), disk(Path(root), clock, 2**32)
        writer = PageWriter(store, host)
        async with opened(Tiers(host, store, writer)) as bench:
            kept = await _asked(bench, writer, history, ids, "history")
            found: list[Written] = []
            talk = list(history)
            for number in range(turns):
                before = _lying(Path(root))
                said, new = ids[number : number + answer], ids[number : number + turn]
                talk.append(segment("model", ids[:OPENER_TOKENS], said, name=100 + number))
                await bench.settle(talk)
                talk.append(segment("user", (), new[OPENER_TOKENS:], name=150 + number))
                tokens = await _asked(bench, writer, talk, ids, f"turn {number}")
                pages, beside = (
                    now - then for now, then in zip(_lying(Path(root)), before, strict=True)
                )
                found.append(Written(tokens - kept, pages, beside))
                kept = tokens
            return _row(found, backend.memory.kv_token, _whole_state(backend, Path(root)), kept)


def _row(found: Sequence[Written], token: int, state: int, kept: int) -> Row:
    """Medians, and the worst; `token` is a token's KV bytes. The index grows in steps: its share is
    of all turns."""
    kv = statistics.median(each.tokens * token for each in found)
    shares = [each.pages / (each.tokens * token) for each in found]
    return {
        "what": f"bytes on disk of a turn behind {kept} tokens",
        "tokens": round(statistics.median(each.tokens for each in found)),
        "KV bytes": round(kv),
        "page bytes": round(statistics.median(each.pages for each in found)),
        "pages/KV": statistics.median(shares),
        "worst": max(shares),
        "index/KV": sum(each.beside for each in found) / sum(each.tokens * token for each in found),
        "whole state bytes": state,
        "whole state/KV": state / kv,
    }


async def _asked(
    bench: Bench, writer: PageWriter, talk: Sequence[Segment], ids: TokenIds, name: str
) -> int:
    """The tokens of the prompt, once all of its pages are written."""
    opener = pack(ids[:OPENER_TOKENS])
    await bench.answer(talk, opener=opener, response=name, stop_ids=[], tokens_max=1)
    receipt = await bench.receipt(name, looks=100_000)
    await bench.quiet()
    writer.flush()
    return receipt.prompt_tokens


def _lying(root: Path) -> tuple[int, int]:
    """The bytes of the page files, and those of everything beside them."""
    beside = [path for path in root.glob("*") if path.is_file()]
    pages, index = (sum(path.stat().st_size for path in of) for of in (files_below(root), beside))
    return pages, index


def _whole_state(backend: LlamaBackend, root: Path) -> int:
    """The bytes of the library's state file of the longest stream."""
    stream = max(range(backend.streams), key=backend.length)
    file, library = root / "state.bin", backend._library
    ids: Any = (library.llama_token * backend.length(stream))()
    wrote = library.llama_state_seq_save_file(
        backend._context, str(file).encode(), stream, ids, len(ids)
    )
    assert wrote > 0, f"no state written to {file}"
    return file.stat().st_size
