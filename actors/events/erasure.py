"""Erasing sessions: with their turns, what their responses were called, and what was archived.

Where single objects go, the sessions go whole of which some turn names one: a turn keeps in its own
row what was said since the conversation was last stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from actors.events.book import (
    ARCHIVE,
    LEASES,
    RESPONSES,
    SESSIONS,
    TURNS,
    Book,
    Live,
    Session,
    response_of,
    session_of,
)
from actors.events.kinds import KINDS
from actors.events.registry import REMOVED, SOURCES, KnownSource, RemovedSource
from actors.events.turns import Turn
from actors.events.writer import APPENDS
from protocol.errors import NotVisible
from protocol.events import custom_namespace
from protocol.ids import DIGEST_BYTES, SourceId, parse_any
from protocol.messages.erasure import Erase
from protocol.record import decode_record, encode_record, ids_in, object_id
from store.commit import settled
from store.tables import Change, Delete, Tables


async def erase_sessions(book: Book, tables: Tables, ask: Erase) -> dict[str, int]:
    """Carry out `ask` among the sessions of `book`, which lie in `tables`; what went."""
    gone = 0
    for session in book.sessions():
        if ask.takes(session.namespace):
            gone += await book.undivided(_erase(book, session.namespace, session.id, ask))
    rows: list[Change] = []
    if ask.objects is None:
        for table in (RESPONSES, ARCHIVE):
            keys = [key for key, _ in tables.keyed(table).items()]
            rows += [Delete(table, key) for key in keys if ask.takes(_namespace(key))]
        await settled(tables.apply_soon(rows))
    return {"sessions": gone, "marks": len(rows)}


async def _erase(book: Book, namespace: str, id: str, ask: Erase) -> int:
    try:
        async with book.held(namespace, id) as live:
            if ask.objects is not None and not _names(live, ask.objects):
                return 0
            await book.remove(live)
    except NotVisible:
        return 0  # somebody else removed it meanwhile
    return 1


def _names(live: Live, objects: list[str]) -> bool:
    """Whether some turn names one of `objects` in its row, or has it there whole."""
    digests = [parse_any(text).digest for text in objects]
    for turn in live.turns:
        row = encode_record(turn)
        whole = [*turn.tail, *([] if turn.reminder is None else [turn.reminder])]
        there = {object_id(new.block).digest for new in whole}
        if any(digest in there or digest in row for digest in digests):
            return True
    return False


def _namespace(key: bytes) -> str:
    """The namespace with which a key of these tables begins."""
    return key.partition(b"\0")[0].decode("utf-8", "replace")


def traces(tables: Tables, ask: Erase, fingerprint: Callable[[str], str]) -> list[str]:
    """What of the namespaces of `ask` is there still, or which sessions name its objects;
    nothing, once they were erased. `objects` are here fingerprints of ids, which is what is kept of
    them."""
    sessions = [decode_record(Session, row) for _, row in tables.keyed(SESSIONS).items()]
    if ask.objects is not None:
        mine = {each.id for each in sessions if ask.takes(each.namespace)}
        naming = sorted(_naming(tables, mine, set(ask.objects), fingerprint))
        return [f"session {id}, which names an object," for id in naming]
    found = [f"session {each.id}" for each in sessions if ask.takes(each.namespace)]
    for table in (RESPONSES, ARCHIVE, SOURCES):
        keys = [key for key, _ in tables.keyed(table).items()]
        found += [f"a row of {table}" for key in keys if ask.takes(_namespace(key))]
    removed = (decode_record(RemovedSource, row) for _, row in tables.keyed(REMOVED).items())
    found += [f"source {each.id}, removed" for each in removed if ask.takes(each.namespace)]
    kinds = [key.decode() for key, _ in tables.keyed(KINDS).items()]
    found += [f"kind {each}" for each in kinds if ask.takes(custom_namespace(each) or "")]
    return found


def older(tables: Tables, ask: Erase, asked_ns: int) -> list[str]:
    """The sessions in the namespaces of `ask`, which somebody has, that were there before
    `asked_ns` (Unix time); none, once they were erased then."""
    sessions = [decode_record(Session, row) for _, row in tables.keyed(SESSIONS).items()]
    return [
        f"session {each.id}, older than the erasure,"
        for each in sessions
        if ask.takes(each.namespace) and each.created_ns < asked_ns
    ]


def _naming(
    tables: Tables, sessions: set[str], gone: set[str], fingerprint: Callable[[str], str]
) -> set[str]:
    """Those of `sessions` of which some turn names an object whose fingerprint is in `gone`."""
    return {
        session
        for key, row in tables.keyed(TURNS).items()
        if (session := session_of(key)) in sessions
        and any(fingerprint(str(id)) in gone for id in ids_in(decode_record(Turn, row)))
    }


def strays(tables: Tables, logs: Collection[SourceId]) -> list[str]:
    """What belongs to no session and no source that is there, with `logs` those that have entries
    or evidence: nothing, unless something died half way."""
    sessions = {key.decode() for key, _ in tables.keyed(SESSIONS).items()}
    sources = {each.id for each in _sources(tables)}
    found: list[str] = []
    for table in (TURNS, LEASES):
        lost = sum(session_of(key) not in sessions for key, _ in tables.keyed(table).items())
        found += [f"{lost} rows of {table} are of no session"] if lost else []
    names = tables.keyed(RESPONSES).items()
    lost = sum(response_of(row)[0] not in sessions for _, row in names)
    found += [f"{lost} rows of {RESPONSES} are of no session"] if lost else []
    found += [f"the log of {each} is of no source" for each in logs if each not in sources]
    digests = {each.digest for each in sources}
    appends = tables.keyed(APPENDS).items()
    lost = sum(key[:DIGEST_BYTES] not in digests for key, _ in appends)
    return found + ([f"{lost} rows of {APPENDS} are of no source"] if lost else [])


def source_keys(tables: Tables) -> set[str]:
    """The names of the keys that local sources have."""
    return {each.key_name for each in _sources(tables) if each.key_name is not None}


def _sources(tables: Tables) -> list[KnownSource]:
    return [decode_record(KnownSource, row) for _, row in tables.keyed(SOURCES).items()]
