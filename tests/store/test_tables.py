from __future__ import annotations

import hashlib

import pytest

from protocol.errors import CorruptObject
from store.tables import LogEntry, LogHead, entry_digest, log_start, verify_chain


def chain(bodies: list[bytes], name: str = "audit") -> list[LogEntry]:
    entries: list[LogEntry] = []
    previous = log_start(name).digest
    for seq, body in enumerate(bodies, 1):
        digest = entry_digest(seq, previous, body)
        entries.append(LogEntry(seq, previous, digest, body))
        previous = digest
    return entries


def test_the_digest_is_the_documented_one() -> None:
    def frame(tag: bytes, body: bytes) -> bytes:
        head = bytes((len(tag),)) + tag + len(body).to_bytes(8, "big")
        return hashlib.sha256(head + body).digest()

    start = frame(b"huginn.log-start/1", b"audit")
    assert log_start("audit") == LogHead(0, start)
    first = (1).to_bytes(8, "big") + start + b"body"
    assert entry_digest(1, start, b"body") == frame(b"huginn.log/1", first)


GOOD = chain([b"a", b"b", b"c", b"d"])


def test_a_whole_chain_gives_its_head() -> None:
    assert verify_chain("audit", GOOD, None) == LogHead(4, GOOD[-1].digest)
    assert verify_chain("audit", [], None) == log_start("audit")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (GOOD[1:], "entry 2 does not follow entry 0"),
        (GOOD[:1] + GOOD[2:], "entry 3 does not follow entry 1"),
        ([GOOD[0], GOOD[0]], "entry 1 does not follow entry 1"),
        ([GOOD[1], GOOD[0]], "entry 2 does not follow"),
        ([GOOD[0]._replace(body=b"A")], "entry 1 do not hash"),
        ([GOOD[0]._replace(digest=bytes(32)), *GOOD[1:]], "entry 1 do not hash"),
        ([*GOOD[:3], GOOD[3]._replace(body=b"D")], "entry 4 do not hash"),
        ([*GOOD[:2], *chain([b"a", b"B", b"c"])[2:]], "entry 3 does not follow entry 2"),
        (chain([b"a"], "other"), "entry 1 does not follow entry 0"),
    ],
)
def test_what_was_changed_removed_or_inserted_shows(entries: list[LogEntry], message: str) -> None:
    with pytest.raises(CorruptObject, match=message):
        verify_chain("audit", entries, None)


def test_a_cut_tail_shows_against_a_remembered_head() -> None:
    trusted = LogHead(4, GOOD[-1].digest)
    assert verify_chain("audit", GOOD, trusted) == trusted
    assert verify_chain("audit", GOOD[:3], None).seq == 3
    with pytest.raises(CorruptObject, match="3 entries do not run through head 4"):
        verify_chain("audit", GOOD[:3], trusted)
