from __future__ import annotations

import hashlib
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ContentError, CorruptObject, LimitExceeded
from store.tables import (
    KEY_BYTES_MAX,
    LogEntry,
    LogHead,
    Put,
    entry_digest,
    log_start,
    verify_chain,
)
from tests.stores import FAST, KINDS, tables


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


KEYS = st.binary(min_size=1, max_size=3).map(lambda key: bytes(b"ab\xff"[n % 3] for n in key))


@settings(max_examples=25)
@given(
    keys=st.lists(KEYS, max_size=12),
    trims=st.lists(st.tuples(st.one_of(st.just(b""), KEYS), st.integers(0, 3)), max_size=4),
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_trim_takes_the_oldest_of_those_that_begin_so(
    kind: str, keys: list[bytes], trims: list[tuple[bytes, int]]
) -> None:
    with (
        tempfile.TemporaryDirectory(dir=FAST) as folder,
        closing(tables(kind, Path(folder))) as kept,
    ):
        other, table = kept.keyed("other"), kept.keyed("t")
        kept.apply([Put(name, key, b"v") for key in keys for name in ("t", "other")])
        left = list(dict.fromkeys(keys))
        for prefix, keep in trims:
            those = [key for key in left if key.startswith(prefix)]
            gone = those[: max(0, len(those) - keep)]
            left = [key for key in left if key not in gone]
            assert table.trim(keep, prefix) == len(gone)
            assert [key for key, _ in table.items()] == left
        assert other.count() == len(set(keys))


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_as_long_as_may_be_is_trimmed_by_its_prefix(kind: str, tmp_path: Path) -> None:
    with closing(tables(kind, tmp_path)) as kept:
        table = kept.keyed("t")
        longest = b"a" + b"\xff" * (KEY_BYTES_MAX - 1)
        for key in (longest, b"b", b"\xff" * KEY_BYTES_MAX):
            table.put(key, b"v")
        assert table.trim(0, b"a") == 1
        assert table.trim(0, b"\xff") == 1
        assert table.items() == [(b"b", b"v")]
        for prefix, error in ((b"k" * 1025, LimitExceeded), ("a", ContentError)):
            with pytest.raises(error):
                table.trim(0, prefix)  # type: ignore[arg-type]
