"""The ring against a list that keeps everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.events.ring import Ring
from tests.event_logs import SIGNERS, source_of, stored_chain

CHAINS = [stored_chain(20, signer=signer) for signer in SIGNERS]


@given(
    order=st.lists(st.integers(0, 2), max_size=60),
    entries_max=st.integers(1, 8),
    room=st.integers(1, 9),
    forgotten=st.none() | st.integers(0, 2),
)
def test_the_newest_are_held(
    order: list[int], entries_max: int, room: int, forgotten: int | None
) -> None:
    bytes_max = room * len(CHAINS[0][5].body)
    ring, held, at = Ring(entries_max, bytes_max), [], [0, 0, 0]
    for which in order:
        if at[which] == len(CHAINS[which]):
            continue
        held.append(CHAINS[which][at[which]])
        at[which] += 1
        ring.put(held[-1])
        while len(held) > entries_max or sum(len(e.body) for e in held) > bytes_max:
            held.pop(0)
    if forgotten is not None:
        ring.forget(source_of(SIGNERS[forgotten]))
        held = [entry for entry in held if entry.source != source_of(SIGNERS[forgotten])]
    for signer in SIGNERS:
        source = source_of(signer)
        assert list(ring.tail(source)) == [entry for entry in held if entry.source == source]
