"""The inbox: each message once, whatever is taken again, and whenever it was thrown away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.transports.matrix_inbox import Inbox, Letter
from store.memory_tables import MemoryTables


def letter(number: int, thread: str | None = None) -> Letter:
    return Letter(
        event=f"${number}", room="!r:h", sender="@a:h", body=f"no. {number}", thread=thread
    )


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.lists(st.integers(0, 6), max_size=4)),
            st.tuples(st.just("answer"), st.integers(0, 6)),
            st.tuples(st.just("crash"), st.none()),
        )
    )
)
def test_every_message_is_new_once_and_waits_until_it_is_answered(
    steps: list[tuple[str, object]],
) -> None:
    tables = MemoryTables()
    inbox = Inbox(tables)
    seen: list[int] = []
    answered: set[int] = set()
    for index, (step, what) in enumerate(steps):
        if step == "take":
            assert isinstance(what, list)
            fresh = inbox.take([letter(number) for number in what], f"s{index}")
            new = list(dict.fromkeys(number for number in what if number not in seen))
            assert fresh == [letter(number) for number in new]
            seen += new
            assert inbox.since == f"s{index}"
        elif step == "answer" and what in seen:
            assert isinstance(what, int)
            inbox.answered(letter(what))
            answered.add(what)
        elif step == "crash":
            inbox = Inbox(tables)
        waits = [letter(number) for number in seen if number not in answered]
        assert inbox.waiting() == waits


def test_a_room_and_each_of_its_threads_are_places_of_their_own() -> None:
    assert letter(1).place == "matrix:!r:h"
    assert letter(1, thread="$root").place == "matrix:!r:h/$root"
