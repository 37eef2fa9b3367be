"""What authority costs: verifying one message, cold and with its chain remembered.

    python -m bench.authority [--repeats N] [--turns N] [--json PATH]

The first table has one row for each length of chain: making the message (one signature), verifying
it when the room has never seen its chain (a signature for each link, and the invocation's), and
when it has (the invocation's alone). The second has what that makes of a turn of a conversation
that is assembled and stored by rooms in this process, without any model: so the share of a real
turn, whose model takes far longer, lies below it.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from pathlib import Path
from typing import Final

from bench.report import Cell, header, table, write_json
from protocol.capability import attenuate, decode_link, issue
from protocol.door import Door
from protocol.envelope import decode_envelope, seal
from protocol.resource import ALL, Right
from protocol.signing import Signer
from tests.block_samples import model, system, user
from tests.rooms import Installation, assemble, assembled

LINKS: Final = (2, 3, 4, 8)
COLUMNS: Final = ("links", "message bytes", "seal us", "cold us", "cached us", "cold/cached")
_NOW: Final = 1_800_000_000 * 10**9
_HOUR_NS: Final = 3600 * 10**9
_US: Final = 1e6


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    rows = [_message_row(links, options.repeats) for links in LINKS]
    turn = asyncio.run(_turn_row(options.turns, rows[1]))
    print(header())
    print()
    print(table(rows, COLUMNS))
    print()
    print(table([turn], tuple(turn)))
    if options.json is not None:
        write_json(options.json, "authority", [*rows, turn])


def _message_row(links: int, repeats: int) -> dict[str, Cell]:
    """Medians over `repeats` messages under a chain of `links`, each a message of its own."""
    root, holder = Signer(b"\x01" * 32), Signer(b"\x02" * 32)
    chain = _chain(root, holder, links)
    times: dict[str, list[float]] = {"seal": [], "cold": [], "cached": []}
    door = Door("room", {"act": Right.READ}, [root.public], started_ns=_NOW)
    size = 0
    for number in range(repeats):
        began = time.perf_counter()
        message = seal(
            chain,
            holder,
            room="room",
            op="act",
            body=b"x" * 1000,
            ts_ns=_NOW,
            nonce=number.to_bytes(16, "big"),
            request_id="bench",
        )
        times["seal"].append(time.perf_counter() - began)
        size = len(message)
        fresh = Door("room", {"act": Right.READ}, [root.public], started_ns=_NOW)
        decode_link.cache_clear()
        times["cold"].append(_admitted_s(fresh, message))
        if number == 0:
            _admitted_s(door, message)
        else:
            times["cached"].append(_admitted_s(door, message))
    seal_us, cold_us, cached_us = (
        statistics.median(times[name]) * _US for name in ("seal", "cold", "cached")
    )
    return {
        "links": links,
        "message bytes": size,
        "seal us": seal_us,
        "cold us": cold_us,
        "cached us": cached_us,
        "cold/cached": cold_us / cached_us,
    }


def _chain(root: Signer, holder: Signer, links: int) -> tuple[bytes, ...]:
    chain: tuple[bytes, ...] = issue(
        root,
        audience=holder.public,
        resource=ALL,
        rights=(Right.READ,),
        nbf_ns=_NOW - _HOUR_NS,
        exp_ns=_NOW + _HOUR_NS,
        nonce=bytes(16),
    )
    for number in range(1, links):
        nonce = number.to_bytes(16, "big")
        chain = attenuate(chain, holder, audience=holder.public, nonce=nonce)
    return chain


def _admitted_s(door: Door, message: bytes) -> float:
    """Seconds from the bytes to an admitted message."""
    began = time.perf_counter()
    door.admit(decode_envelope(message), now_ns=_NOW, epoch=0, is_revoked=lambda _i, _c: False)
    return time.perf_counter() - began


async def _turn_row(turns: int, message: dict[str, Cell]) -> dict[str, Cell]:
    """A conversation that grows by a question and an answer each turn: what a turn takes, how many
    messages it is, and what of it is sealing and verifying them."""
    house = await Installation().start()
    alice = await house.enroll("alice")
    pairs = [system("You are a raven.")]
    took: list[float] = []
    for number in range(turns):
        pairs += [user(f"question {number}"), model(f"answer {number}"), user("and then?")]
        house.post.forget()
        began = time.perf_counter()
        await assembled(alice, assemble(pairs))
        took.append(time.perf_counter() - began)
        pairs.pop()
    messages = len(house.post.sent)
    turn_us = statistics.median(took) * _US
    seal_us, cached_us = message["seal us"], message["cached us"]
    assert isinstance(seal_us, float)
    assert isinstance(cached_us, float)
    authority_us = messages * (seal_us + cached_us)
    return {
        "turn us": turn_us,
        "messages": messages,
        "authority us": authority_us,
        "share": authority_us / turn_us,
    }


if __name__ == "__main__":
    main()
