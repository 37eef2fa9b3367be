"""The inbox: each message once, whatever is taken again or erased, whenever it is thrown away."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from actors.authority.erasures import fingerprint
from actors.gateway.transports.matrix_inbox import Inbox, Letter, traces
from protocol.ids import TextId
from protocol.messages.erasure import Erase
from protocol.record import object_id
from store.memory_tables import MemoryTables
from store.tables import Change

KEYS = {"alice": b"a" * 32, "bob": b"b" * 32}


def letter(number: int, thread: str | None = None, *, whose: str = "alice") -> Letter:
    return Letter(
        event=f"${number}",
        room="!r:h",
        sender="@a:h",
        body=f"no. {number}",
        thread=thread,
        principal=KEYS[whose],
        namespace=f"home/{whose}",
    )


def order(
    *names: str,
    namespaces: tuple[str, ...] = (),
    spared: tuple[str, ...] = (),
    objects: list[str] | None = None,
) -> Erase:
    return Erase(
        domains=[],
        namespaces=list(namespaces),
        spared=list(spared),
        principals=[KEYS[name] for name in names],
        names=list(names),
        objects=objects,
    )


def of(number: int) -> Letter:
    """One of the messages of the histories below: even ones are for alice, odd ones for bob."""
    return letter(number, whose="bob" if number % 2 else "alice")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.lists(st.integers(0, 6), max_size=4)),
            st.tuples(st.just("answer"), st.integers(0, 6)),
            st.tuples(st.just("erase"), st.sampled_from(sorted(KEYS))),
            st.tuples(st.just("empty"), st.sampled_from(sorted(KEYS))),
            st.tuples(st.just("crash"), st.none()),
        )
    )
)
def test_every_message_is_new_once_and_waits_until_it_is_answered_or_erased(
    steps: list[tuple[str, object]],
) -> None:
    tables = MemoryTables()
    inbox = Inbox(tables)
    seen: list[int] = []
    over: set[int] = set()
    gone: set[str] = set()
    for index, (step, what) in enumerate(steps):
        waits = [number for number in seen if number not in over]
        if step == "take":
            assert isinstance(what, list)
            fresh = inbox.take([of(number) for number in what], f"s{index}")
            new = [
                number
                for number in dict.fromkeys(what)
                if number not in seen and of(number).namespace.removeprefix("home/") not in gone
            ]
            assert fresh == [of(number) for number in new]
            seen += new
            assert inbox.since == f"s{index}"
        elif step == "answer" and what in seen:
            assert isinstance(what, int)
            inbox.answered(of(what))
            over.add(what)
        elif step in ("erase", "empty"):
            assert isinstance(what, str)
            whole = order(what) if step == "erase" else order(namespaces=(f"home/{what}",))
            theirs = {number for number in waits if of(number).principal == KEYS[what]}
            assert len(traces(tables, whole, fingerprint)) == len(theirs)
            assert inbox.erase(whole) == len(theirs)
            assert (inbox.erase(whole), traces(tables, whole, fingerprint)) == (0, [])
            over |= theirs
            gone |= {what} if step == "erase" else set()
        elif step == "crash":
            inbox = Inbox(tables)
            # Who was erased has no key by now: nothing of theirs is taken that could be refused.
            gone.clear()
        waits = [number for number in seen if number not in over]
        assert inbox.waiting() == [of(number) for number in waits]
        assert [inbox.is_waiting(of(number)) for number in range(7)] == [
            number in waits for number in range(7)
        ]


def test_a_room_and_each_of_its_threads_are_places_of_their_own() -> None:
    assert letter(1).place == "matrix:!r:h"
    assert letter(1, thread="$root").place == "matrix:!r:h/$root"


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize(
    ("ask", "goes"),
    [
        (order("alice"), True),
        (order("bob"), False),
        (order(namespaces=("home",)), True),
        (order(namespaces=("home/alice",)), True),
        (order(namespaces=("home/alice/notes",)), False),
        (order(namespaces=("home/ali",)), False),
        # Others work where alice did: the namespace stays, and what she was to answer goes.
        (order("alice", namespaces=("home/alice",), spared=("home/alice",)), True),
        (order("bob", namespaces=("home/alice",), spared=("home/alice",)), False),
        # What was computed for a domain is not what waits.
        (order(), False),
        (order(namespaces=("home/alice",), objects=[str(TextId.of(b"no. 1"))]), True),
        (order(namespaces=("home/bob",), objects=[str(TextId.of(b"no. 1"))]), False),
        (order(namespaces=("home/alice",), objects=[str(TextId.of(b"no. 2"))]), False),
        (
            order(namespaces=("home/alice",), objects=[str(object_id(letter(1).input[0].block))]),
            True,
        ),
    ],
)
def test_what_a_message_goes_with(ask: Erase, goes: bool) -> None:
    tables = MemoryTables()
    inbox = Inbox(tables)
    inbox.take([letter(1)], "s")
    # Of the objects of an erasure that is over only fingerprints are kept.
    objects = None if ask.objects is None else [*map(fingerprint, ask.objects)]
    over = structs.replace(ask, objects=objects)
    assert len(traces(tables, over, fingerprint)) == int(goes)
    assert inbox.erase(ask) == int(goes)
    assert traces(tables, over, fingerprint) == []
    assert inbox.is_waiting(letter(1)) is not goes
    assert inbox.since == "s"


class Held(MemoryTables):
    """Tables that wait in their first change until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go = threading.Event(), threading.Event()

    def apply(self, changes: Sequence[Change]) -> list[int]:
        if not self.reached.is_set():
            self.reached.set()
            assert self.go.wait(60)
        return super().apply(changes)


@pytest.mark.req("AUT-8")
def test_what_is_taken_while_others_are_erased_is_not_left_behind() -> None:
    tables = Held()
    inbox = Inbox(tables)
    taking = threading.Thread(target=inbox.take, args=([letter(1)], "s1"))
    erasing = threading.Thread(target=inbox.erase, args=(order("alice"),))
    taking.start()
    assert tables.reached.wait(60)
    erasing.start()
    # One that did not wait for the other would be over by then, and had found nothing.
    erasing.join(0.2)
    tables.go.set()
    taking.join(60)
    erasing.join(60)
    assert inbox.waiting() == []
    assert inbox.take([letter(2), letter(3, whose="bob")], "s2") == [letter(3, whose="bob")]
