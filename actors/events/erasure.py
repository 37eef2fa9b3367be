"""Erasing sessions: with their turns, what their responses were called, and what was archived.

Where single objects go, the sessions go whole of which some turn names one: a turn keeps in its own
row what was said since the conversation was last stored.
"""

from __future__ import annotations

from actors.events.book import ARCHIVE, RESPONSES, SESSIONS, Book, Live, Session
from actors.events.kinds import KINDS
from actors.events.registry import REMOVED, SOURCES, RemovedSource
from protocol.errors import NotVisible
from protocol.events import custom_namespace
from protocol.ids import parse_any
from protocol.messages.erasure import Erase
from protocol.record import decode_record, encode_record, object_id
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


def traces(tables: Tables, ask: Erase) -> list[str]:
    """What of the namespaces of `ask` is there still; nothing, once they were erased."""
    found: list[str] = []
    sessions = (decode_record(Session, row) for _, row in tables.keyed(SESSIONS).items())
    found += [f"session {each.id}" for each in sessions if ask.takes(each.namespace)]
    for table in (RESPONSES, ARCHIVE, SOURCES):
        keys = [key for key, _ in tables.keyed(table).items()]
        found += [f"a row of {table}" for key in keys if ask.takes(_namespace(key))]
    removed = (decode_record(RemovedSource, row) for _, row in tables.keyed(REMOVED).items())
    found += [f"source {each.id}, removed" for each in removed if ask.takes(each.namespace)]
    kinds = [key.decode() for key, _ in tables.keyed(KINDS).items()]
    found += [f"kind {each}" for each in kinds if ask.takes(custom_namespace(each) or "")]
    return found
