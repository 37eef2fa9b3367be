"""Sessions: what `assemble_prompt_context` costs, and whether it grows with the logs.

    python -m bench.sessions [--sizes N …] [--full] [--repeats N] [--folder DIR]
                             [--model PATH] [--json PATH]

Logs of 10^3 to 10^5 events (10^6 with --full) of 50 sources, on disk. Two personas: `Timmy`, whose
scope is every source, and `Sally`, whose scope is one. What each has not seen is nothing, the
newest 20 events, or everything, of which the newest 1,000 are read and the rest is counted. Tokens
are counted with the default model's vocabulary; the budget is the default of 2,048. The last line
gives the growth exponent over the sizes of the costliest row: about 0 when a turn's cost does not
depend on the length of the logs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from actors.events.context import PromptContext, assemble_prompt_context
from actors.events.scope import ScopedSource
from actors.events.sessions import SessionLimits
from actors.worker.backends.llama_tokenizer import LlamaTokenizer
from bench.events import SIZE_FULL, SIZES, Writer
from bench.report import Cell, fitted_exponent, header, table, write_json
from protocol.tokenizer import Tokenizer
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from tests import default_gemma

SOURCES = 50
NAMESPACE = "home"
NEWEST = 20
_BULK_EVENTS = 20

Row = dict[str, Cell]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="assemble_prompt_context")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="events, two or more")
    parser.add_argument("--full", action="store_true", help="10^6 events too")
    parser.add_argument("--repeats", type=int, default=100, help="turns for each figure")
    parser.add_argument("--folder", type=Path, help="where to write: the disk that is measured")
    parser.add_argument("--model", type=Path, help="weights whose vocabulary counts")
    parser.add_argument("--json", metavar="PATH", help="write the figures there as well")
    options = parser.parse_args(arguments)
    tokenizer = LlamaTokenizer(options.model or default_gemma.path())
    rows: list[Row] = []
    sizes = (*SIZES, SIZE_FULL) if options.full else tuple(options.sizes)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for size in sizes:
            rows += session_rows(Path(folder), size, options.repeats, tokenizer)
    dearest = [
        float(str(row["p50 ms"]))
        for row in rows
        if (row["persona"], row["unseen"]) == ("Timmy", "everything")
    ]
    growth = fitted_exponent(sizes, dearest)
    print(f"# Sessions\n\n{header()}\n")
    print(f"{SOURCES} sources; a budget of {SessionLimits().render_tokens} tokens\n")
    columns = ["events", "persona", "unseen", "p50 ms", "p99 ms", "whole", "counted", "tokens"]
    print(table(rows, columns))
    print(f"\nGrowth exponent (time ~ events^p), everything unseen: {growth:.3f}")
    if options.json:
        write_json(options.json, "sessions", rows, growth=growth)


def session_rows(folder: Path, size: int, repeats: int, tokenizer: Tokenizer) -> list[Row]:
    """What turns cost over logs of `size` events together."""
    path = folder / f"sessions-{size}.db"
    logs = SqliteEventLogs(Database(path))
    writers = [Writer(number) for number in range(1, SOURCES + 1)]
    while sum(writer.head.seq for writer in writers) < size:
        # In turns, so that the newest events are of all sources.
        entries = [writer.next() for writer in writers for _ in range(_BULK_EVENTS)]
        logs.append_soon(entries).result()
    logs.database.checkpoint()
    rows = []
    for persona, scope in (("Timmy", writers), ("Sally", writers[:1])):
        for unseen in ("nothing", f"newest {NEWEST}", "everything"):
            share = 0 if unseen == "nothing" else max(1, NEWEST // len(scope))
            taken: list[int] = []
            for _ in range(repeats):
                began_ns = time.perf_counter_ns()
                told = _turn(logs, scope, tokenizer, None if unseen == "everything" else share)
                taken.append(time.perf_counter_ns() - began_ns)
            taken.sort()
            rows.append(_row(size, persona, unseen, taken, told))
    logs.close()
    path.unlink()
    return rows


def _turn(
    logs: SqliteEventLogs, scope: Sequence[Writer], tokenizer: Tokenizer, unseen: int | None
) -> PromptContext:
    """One turn's context, by a session that has not seen `unseen` events of each source."""
    sources = []
    for number, writer in enumerate(scope):
        kept = logs.range(writer.source)
        name = f"source-{number:02}"
        sources.append(ScopedSource(writer.source, NAMESPACE, name, kept.first, kept.head))
    spread = sources[:NEWEST]
    marks = {each.id: each.head for each in sources}
    if unseen is None:
        marks = {}
    else:
        marks.update({each.id: each.head - unseen for each in spread})
    return assemble_prompt_context(
        sources,
        namespace=NAMESPACE,
        marks=marks,
        logs=logs,
        tokenizer=tokenizer,
        tokens_max=SessionLimits().render_tokens,
    )


def _row(size: int, persona: str, unseen: str, taken: Sequence[int], told: PromptContext) -> Row:
    return {
        "events": size,
        "persona": persona,
        "unseen": unseen,
        "p50 ms": taken[len(taken) // 2] / 1e6,
        "p99 ms": taken[len(taken) * 99 // 100] / 1e6,
        "whole": told.events - told.folded,
        "counted": told.folded,
        "tokens": told.tokens,
    }


if __name__ == "__main__":
    main()
