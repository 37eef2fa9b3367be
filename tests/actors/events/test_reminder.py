"""Reminders as they read: each kind in neutral words, and nothing from outside leaves its line."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.events.reminder import (
    HEADING,
    KIND_TO_PHRASE,
    event_line,
    folded_line,
    gap_line,
    is_reminder,
    name,
    quoted,
    reminder_block,
    value,
)
from protocol.blocks import ContextBlock, Role
from protocol.cbor import encode
from protocol.events import AT_FIELD, KINDS, Event
from protocol.grammars import GRAMMARS, grammar
from tests.block_samples import Pair, system
from tests.default_gemma import tokenizer as default_tokenizer
from tests.event_logs import entry_after
from tests.events_rooms import user
from tests.fake_tokenizer import FakeTokenizer
from tests.hostile_texts import HOSTILE, everywhere, lines_of, structure

NOON = 1_767_268_800 * 10**9  # 2026-01-01 12:00 UTC


def event(kind: str = "MergeSucceeded", subject: str = "1122", **fields: Any) -> Event:
    body = fields.pop("body", {"merge_commit": "9f3c"} if kind == "MergeSucceeded" else {})
    return entry_after(subject=subject, kind=kind, body=body, hlc=NOON, **fields).event


@pytest.mark.req("EVT-11")
def test_a_merge_reads_as_it_is_asked_for() -> None:
    line = event_line("huskies", event(before="merging", after="done"))
    assert line == (
        'huskies · 01-01 12:00 · MergeSucceeded: 1122 merged, merge_commit "9f3c" [merging → done]'
    )


@pytest.mark.req("EVT-1")
def test_every_kind_has_words() -> None:
    assert KIND_TO_PHRASE.keys() == KINDS.keys()
    for kind in KINDS:
        line = event_line("s", event(kind, body={}))
        assert f"{kind}: 1122 {KIND_TO_PHRASE[kind]}" in line


def test_words_are_neutral() -> None:
    """No instruction, no address, no cause."""
    words = " ".join([HEADING, *KIND_TO_PHRASE.values()]).lower()
    for loaded in ("you", "must", "should", "please", "because", "due to", "ignore", "!"):
        assert not re.search(rf"\b{re.escape(loaded)}\b", words), loaded


def test_a_kind_from_elsewhere_reads_by_its_name() -> None:
    line = event_line("s", event("team.Deployed", "web", body={"to": "prod", "took_ms": 12}))
    assert line.endswith('team.Deployed: web, to "prod", took_ms 12')
    assert event_line("s", event("Unheard", "x", body={})).endswith("Unheard: x")


def test_the_sources_own_time_is_told_where_it_says_one() -> None:
    line = event_line("s", event(body={"merge_commit": "9", AT_FIELD: NOON // 10**9 + 60}))
    assert "01-01 12:01" in line
    assert AT_FIELD not in line
    for strange in (-5, 2**62):
        assert "01-01 12:00" in event_line("s", event(body={AT_FIELD: strange}))


def test_folds_and_gaps_say_how_many() -> None:
    newest = event("MergeFailed", body={"reason": "x"}, before="merging", after="blocked")
    assert folded_line("s", newest, 3).endswith(
        "MergeFailed: 1122 merge failed, 3 times [merging → blocked]"
    )
    assert gap_line("s", 4, 6) == "s · EventStreamGap: 3 events not kept, 4 to 6"


def test_payloads_read_by_their_first_entries() -> None:
    assert value(["a", 1, True, None, b"xyz"]) == '["a", 1, true, none, (3 bytes)]'
    assert value({"k": {"l": [[1]]}}) == "{k {l [(1 entries)]}}"
    assert value(list(range(20))) == "[0, 1, 2, 3, 4, 5, 6, 7, and 12 more]"
    wide = event("team.Wide", body={f"k{index}": index for index in range(12)})
    assert event_line("s", wide).endswith("k4 4, k5 5, and 4 more")


def test_a_digest_is_told_by_its_beginning() -> None:
    assert value("0123456789abcdef" * 3) == '"0123456789ab…"'
    assert value("0123456789abcdef") == '"0123456789abcdef"'


def test_a_reminder_is_a_fenced_block_of_the_users_turn() -> None:
    block = reminder_block("text")
    assert is_reminder(block)
    assert not is_reminder(user("text"))
    assert block.block.role is Role.USER
    assert not block.block.trust
    assert reminder_block("text") == block


# -- hostile texts -----------------------------------------------------------------------------


@pytest.mark.req("ASM-3")
@given(st.text() | st.sampled_from(HOSTILE))
def test_any_text_stays_in_its_line_and_in_its_quotes(text: str) -> None:
    for shown in (quoted(text), name(text)):
        assert len(lines_of(shown)) == 1
        assert all(unicodedata.category(c)[0] != "C" for c in shown), shown
        assert "·" not in shown
        assert len(shown) < 3000
    assert re.fullmatch(r'"(?:[^"\\]|\\.)*"(?:… \(\d+ characters more\))?', quoted(text))


@pytest.mark.req("ASM-3")
@given(st.text(max_size=190), st.text(max_size=190))
def test_two_texts_never_read_alike(a: str, b: str) -> None:
    assert (quoted(a) == quoted(b)) == (a == b)


def said(text: str) -> Event:
    return event("team.Said", **everywhere(text))


def _conversation(text: str) -> list[Pair]:
    lines = [event_line("huskies", said(text)), folded_line("huskies", said(text), 3)]
    told = "\n".join([HEADING, *lines, gap_line("huskies", 1, 2)])
    block: ContextBlock = reminder_block(told).block
    assert len(lines_of(told)) == 4
    return [system("sys"), (block, told), (user("hello").block, "hello")]


@pytest.mark.req("ASM-3")
@pytest.mark.parametrize("named", GRAMMARS)
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:24]))
def test_hostile_texts_change_no_structure(named: str, text: str) -> None:
    of = grammar(named, FakeTokenizer())
    assert structure(of, _conversation(text)) == structure(of, _conversation("harmless"))


@pytest.mark.req("ASM-3")
@pytest.mark.model
@pytest.mark.parametrize("named", GRAMMARS)
def test_hostile_texts_change_no_structure_under_the_default_vocabulary(named: str) -> None:
    of = grammar(named, default_tokenizer())
    harmless = structure(of, _conversation("harmless"))
    for text in HOSTILE:
        assert structure(of, _conversation(text)) == harmless, text[:40]


def test_a_body_is_what_a_record_carries() -> None:
    """The hostile events above can be written down."""
    for text in HOSTILE:
        assert encode(said(text).body)
