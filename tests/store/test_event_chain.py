"""A torn tail against anything else: the verdict on every single wound of a log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.errors import ContentError, CorruptObject
from protocol.ids import EventId
from store.event_chain import Finding, KeptLog, check_entry, check_page, fault_of, judge
from store.events import StoredEvent
from tests.event_logs import SIGNERS, chain, entry_after, position, stored, stored_chain

CHAIN = stored_chain(6)
KEPT = KeptLog(1, 6, None, CHAIN[5].id)
TWIN = stored(entry_after(position(chain(2)[-1]), "twin"))

WOUNDS: dict[str, Callable[[StoredEvent], StoredEvent]] = {
    "a bit of the text": lambda entry: entry._replace(
        body=entry.body.replace(b"merge_commit", b"merge_commiu")
    ),
    "a bit of the signature's head": lambda entry: entry._replace(
        body=entry.body[:-66] + b"\x00" + entry.body[-65:]
    ),
    "cut short": lambda entry: entry._replace(body=entry.body[:40]),
    "zeroes": lambda entry: entry._replace(body=bytes(len(entry.body))),
    "nothing": lambda entry: entry._replace(body=b""),
    "another id": lambda entry: entry._replace(id=EventId.of(b"")),
    "another time": lambda entry: entry._replace(hlc=entry.hlc + 1),
    "another kind": lambda entry: entry._replace(kind="Other"),
}


def test_a_whole_log() -> None:
    assert judge(KEPT, CHAIN) == Finding(6, CHAIN[5].id)
    assert judge(KeptLog(1, 0, None, None), []) == Finding(0, None)
    trimmed = KeptLog(4, 6, CHAIN[2].id, CHAIN[5].id)
    assert judge(trimmed, CHAIN[3:]) == Finding(6, CHAIN[5].id)
    assert judge(KeptLog(7, 6, CHAIN[5].id, CHAIN[5].id), []) == Finding(6, CHAIN[5].id)


@pytest.mark.req("EVT-2")
@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("wound", WOUNDS)
def test_a_wound_is_a_torn_tail_at_the_end_and_loud_elsewhere(wound: str, at: int) -> None:
    wounded = WOUNDS[wound](CHAIN[at])
    assert fault_of(CHAIN[at]) is None
    assert fault_of(wounded) is not None
    finding = judge(KEPT, [*CHAIN[:at], wounded, *CHAIN[at + 1 :]])
    assert finding.fault is not None
    assert finding.good == at
    assert finding.id == (CHAIN[at - 1].id if at else None)
    assert finding.torn == (at == 5)


@pytest.mark.parametrize("gone", range(6))
def test_several_newest_entries_are_one_tail(gone: int) -> None:
    tail = [WOUNDS["zeroes"](entry) for entry in CHAIN[gone:]]
    assert judge(KEPT, [*CHAIN[:gone], *tail])[::3] == (gone, True)
    missing = judge(KEPT, CHAIN[:gone])
    assert (missing.good, missing.torn) == (gone, True)
    assert missing.fault is not None


@pytest.mark.parametrize(
    ("kept", "entries", "good", "message"),
    [
        (KEPT, [*CHAIN[:2], *CHAIN[3:]], 2, "entry 4 comes next"),
        (KEPT, CHAIN[1:], 0, "entry 2 comes next"),
        # Whole by itself, and of another history: not damage, but a change.
        (KEPT, [*CHAIN[:2], TWIN, *CHAIN[3:]], 3, "does not follow entry 3"),
        (KEPT._replace(before=CHAIN[0].id), CHAIN, 0, "does not follow entry 0"),
        (KEPT._replace(head=5), CHAIN, 6, "recorded as entry 5"),
        (KEPT._replace(id=CHAIN[0].id), CHAIN, 6, "recorded as entry 6"),
        (KEPT, [*CHAIN[:5], TWIN], 5, "entry 3 comes next"),
    ],
)
def test_what_is_no_torn_tail(
    kept: KeptLog, entries: list[StoredEvent], good: int, message: str
) -> None:
    finding = judge(kept, entries)
    assert (finding.good, finding.torn) == (good, False)
    assert finding.fault is not None
    assert message in finding.fault


def test_an_entry_is_held_against_its_id() -> None:
    check_entry(CHAIN[0])
    for wrong in (CHAIN[0]._replace(body=CHAIN[1].body), CHAIN[0]._replace(body=b"")):
        with pytest.raises(CorruptObject) as found:
            check_entry(wrong)
        assert found.value.details == {"source": str(CHAIN[0].source), "seq": 1}


def test_an_entry_of_another_source_is_not_what_it_says() -> None:
    (other,) = stored_chain(1, signer=SIGNERS[1])
    assert fault_of(other._replace(source=CHAIN[0].source)) is not None


def test_a_page_is_asked_for_in_positive_numbers() -> None:
    check_page(0, 1)
    with pytest.raises(ContentError):
        check_page(-1, 1)
    with pytest.raises(ContentError):
        check_page(0, 0)
