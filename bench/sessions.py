"""Sessions: what `assemble_prompt_context` costs, and whether it grows with the logs.

    python -m bench.sessions [--sizes N …] [--full] [--repeats N] [--rounds N] [--turns N]
                             [--folder DIR] [--model PATH] [--json PATH]

Logs of 10^3 to 10^5 events (10^6 with --full) of 50 sources, on disk. Two personas: `Timmy`, whose
scope is every source, and `Sally`, whose scope is one. What each has not seen is nothing, the
newest 20 events, or everything, of which the newest 1,000 are read and the rest is counted. Tokens
are counted with the default model's vocabulary; the budget is the default of 2,048.

The sizes take turns, round by round, so that a slow minute of the machine is no size's own, and the
process collects garbage as a serving one does. Each figure is over all rounds. `first` is a turn
that nothing came before: the logs are opened anew for it and no entry is remembered decoded, as
after a restart. The last table gives the growth exponents of p50 and p99 (time ~ events^p), over
the sizes at which a turn reads as much as at the largest: about 0 when a turn's cost does not
depend on the length of the logs.

Then whole turns of two personas through the events room over the same logs: `bench.session_turns`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from actors.events.context import (
    READ_MAX,
    PromptContext,
    assemble_prompt_context,
    forget_decoded,
)
from actors.events.scope import ScopedSource
from actors.events.sessions import SessionLimits
from actors.runtime.garbage import spare_the_old
from actors.worker.backends.llama_tokenizer import LlamaTokenizer
from bench import session_turns
from bench.events import SIZE_FULL, SIZES, Writer
from bench.report import Cell, fitted_exponent, header, table, write_json
from protocol.ids import SourceId
from protocol.tokenizer import Tokenizer
from store.sqlite import Database
from store.sqlite_events import SqliteEventLogs
from tests import default_gemma

SOURCES = 50
NAMESPACE = "home"
NEWEST = 20
_BULK_EVENTS = 20

PERSONAS = {"Timmy": SOURCES, "Sally": 1}
UNSEEN = ("nothing", f"newest {NEWEST}", "everything")

Row = dict[str, Cell]


class _Case(NamedTuple):
    """What one figure is of: a log's length, whose scope, how much of it is unseen."""

    size: int
    persona: str
    unseen: str


class _Taken(NamedTuple):
    """Nanoseconds of each turn that stood first after an opening, and of each other one."""

    first: list[int]
    later: list[int]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="assemble_prompt_context")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="events, two or more")
    parser.add_argument("--full", action="store_true", help="10^6 events too")
    parser.add_argument("--repeats", type=int, default=100, help="turns of each figure, a round")
    parser.add_argument("--rounds", type=int, default=10, help="how often the sizes take turns")
    parser.add_argument("--turns", type=int, default=20, help="of a persona, a round, in the room")
    parser.add_argument("--folder", type=Path, help="where to write: the disk that is measured")
    parser.add_argument("--model", type=Path, help="weights whose vocabulary counts")
    parser.add_argument("--json", metavar="PATH", help="write the figures there as well")
    options = parser.parse_args(arguments)
    tokenizer = LlamaTokenizer(options.model or default_gemma.path())
    sizes = (*SIZES, SIZE_FULL) if options.full else tuple(options.sizes)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        logs = {size: _written(Path(folder), size) for size in sizes}
        spare_the_old()
        rows = session_rows(logs, options.rounds, options.repeats, tokenizer)
        # They append events, so they come last.
        turns = session_turns.turn_rows(logs, options.rounds, options.turns, tokenizer)
    growth, turns_growth = growth_rows(rows), session_turns.growth_rows(turns)
    print(f"# Sessions\n\n{header()}\n")
    print(f"{SOURCES} sources; a budget of {SessionLimits().render_tokens} tokens; ", end="")
    print(f"{options.rounds} rounds of {options.repeats} turns\n")
    columns = ["events", "persona", "unseen", "p50 ms", "p99 ms", "first", "whole", "counted"]
    print(table(rows, [*columns, "tokens"]))
    print("\nGrowth exponents\n")
    print(table(growth, ["persona", "unseen", "from", "p50", "p99"]))
    print(f"\nbegin_turn in the room, {options.rounds} rounds of new sessions\n")
    print(table(turns, session_turns.COLUMNS))
    print("\nIts growth exponents\n")
    print(table(turns_growth, ["persona", "first", "p50", "p99"]))
    if options.json:
        write_json(options.json, "sessions", [*rows, *growth, *turns, *turns_growth])


def _written(folder: Path, size: int) -> tuple[Path, list[SourceId]]:
    """A file with logs of `size` events together, and its sources."""
    path = folder / f"sessions-{size}.db"
    logs = SqliteEventLogs(Database(path))
    writers = [Writer(number) for number in range(1, SOURCES + 1)]
    while sum(writer.head.seq for writer in writers) < size:
        # In turns, so that the newest events are of all sources.
        entries = [writer.next() for writer in writers for _ in range(_BULK_EVENTS)]
        logs.append_soon(entries).result()
    logs.database.checkpoint()
    logs.close()
    return path, [writer.source for writer in writers]


def session_rows(
    written: Mapping[int, tuple[Path, list[SourceId]]],
    rounds: int,
    repeats: int,
    tokenizer: Tokenizer,
) -> list[Row]:
    """What turns cost over each of the `written` logs, by their sizes."""
    cases = [
        _Case(size, persona, unseen)
        for size in written
        for persona in PERSONAS
        for unseen in UNSEEN
    ]
    taken = {case: _Taken([], []) for case in cases}
    told: dict[_Case, PromptContext] = {}
    for _ in range(rounds):
        for case in cases:
            path, sources = written[case.size]
            forget_decoded()
            logs = SqliteEventLogs(Database(path))
            for number in range(repeats + 1):
                began_ns = time.perf_counter_ns()
                told[case] = _turn(logs, sources[: PERSONAS[case.persona]], tokenizer, case.unseen)
                took_ns = time.perf_counter_ns() - began_ns
                (taken[case].later if number else taken[case].first).append(took_ns)
            logs.close()
    return [_row(case, taken[case], told[case]) for case in cases]


def growth_rows(rows: Sequence[Row]) -> list[Row]:
    """The fitted exponents of each persona and of what it has not seen, over the sizes at which as
    many events are read as at the largest."""
    found: list[Row] = []
    for persona in PERSONAS:
        for unseen in UNSEEN:
            mine = [row for row in rows if (row["persona"], row["unseen"]) == (persona, unseen)]
            alike = [row for row in mine if _read(row) == _read(mine[-1])]
            fitted = {
                quantile: fitted_exponent(
                    [float(str(row["events"])) for row in alike],
                    [float(str(row[f"{quantile} ms"])) for row in alike],
                )
                for quantile in ("p50", "p99")
                if len(alike) > 1
            }
            start = alike[0]["events"]
            found.append({"persona": persona, "unseen": unseen, "from": start, **fitted})
    return found


def _read(row: Row) -> int:
    """Entries that a turn reads."""
    return min(READ_MAX, int(str(row["whole"])) + int(str(row["counted"])))


def _turn(
    logs: SqliteEventLogs, scope: Sequence[SourceId], tokenizer: Tokenizer, unseen: str
) -> PromptContext:
    """One turn's context, by a session whose scope is `scope`."""
    sources = []
    for number, source in enumerate(scope):
        kept = logs.range(source)
        name = f"source-{number:02}"
        sources.append(ScopedSource(source, NAMESPACE, name, kept.first, kept.head))
    marks = {} if unseen == "everything" else {each.id: each.head for each in sources}
    if unseen == f"newest {NEWEST}":
        spread = sources[:NEWEST]
        marks.update({each.id: each.head - NEWEST // len(spread) for each in spread})
    return assemble_prompt_context(
        sources,
        namespace=NAMESPACE,
        marks=marks,
        logs=logs,
        tokenizer=tokenizer,
        tokens_max=SessionLimits().render_tokens,
    )


def _row(case: _Case, taken: _Taken, told: PromptContext) -> Row:
    later = sorted(taken.later)
    return {
        "events": case.size,
        "persona": case.persona,
        "unseen": case.unseen,
        "p50 ms": later[len(later) // 2] / 1e6,
        "p99 ms": later[len(later) * 99 // 100] / 1e6,
        "first": statistics.median(taken.first) / 1e6,
        "whole": told.events - told.folded,
        "counted": told.folded,
        "tokens": told.tokens,
    }


if __name__ == "__main__":
    main()
