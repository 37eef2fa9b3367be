"""What the assembler signs as public: the first segments that are public blocks (AUT-5)."""

from __future__ import annotations

import pytest

from protocol.messages import ropes
from protocol.publication import check_prefix
from tests.assembler_rooms import TALK
from tests.rooms import PROFILE, Installation, Principal, assemble, assembled


@pytest.mark.req("AUT-5")
@pytest.mark.parametrize("public", [0, 1, 2])
async def test_it_signs_which_first_segments_are_public_blocks(
    house: Installation, alice: Principal, public: int
) -> None:
    operator = await house.enroll("operator", administers=True)
    for block, text in TALK[:public]:
        ask = ropes.Publish(block=block, content=text.encode())
        await operator.caller.ask("ropes", "publish", ask, ropes.Publication, administer=True)
    for _ in range(2):
        made = await assembled(alice, assemble(TALK))
        key = house.room_to_key["assembler"]
        if not public:
            assert made.public is None
        else:
            assert made.public is not None
            assert check_prefix(made.public, key, PROFILE, made.segments) == public
        # In the commit that is made anyway: no further question is asked.
        assert {envelope.op for envelope in house.post.sent if envelope.room == "ropes"} <= {
            "commit",
            "publish",
        }
    unstored = await assembled(alice, assemble(TALK, store=False))
    assert unstored.public is None
    dropped = await assembled(
        alice, assemble(TALK, policy="drop-oldest-turns", tokens_max=made.tokens - 1, keep_turns=1)
    )
    assert dropped.public is None or (
        check_prefix(dropped.public, key, PROFILE, dropped.segments) <= public
    )
