"""Ids of responses and requests."""

from __future__ import annotations

from actors.gateway.http.ids import fresh_id
from actors.runtime.world import SystemEntropy


def test_an_id_is_its_prefix_and_128_bits() -> None:
    made = {fresh_id("chatcmpl-", SystemEntropy()) for _ in range(100)}
    assert len(made) == 100
    assert all(len(each) == len("chatcmpl-") + 26 for each in made)
    assert all(each == each.lower() and each.isascii() for each in made)
