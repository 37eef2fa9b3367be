"""Building rooms from a plan."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.runtime.plan import ROOMS, Plan, prepare
from actors.runtime.wiring import (
    bound_profile,
    build_room,
    page_tiers,
    profile_contracts,
    vocabulary,
)
from actors.runtime.world import SystemClock, SystemEntropy
from protocol.errors import ContentError, ProfileFault, Unavailable
from tests.installations import tiny_config
from tests.page_samples import chains_of, talk


class NoMailbox:
    async def call(self, room: str, message: bytes) -> bytes:
        raise Unavailable("nobody is here")

    async def stream(self, room: str, message: bytes) -> AsyncIterator[bytes]:
        raise Unavailable("nobody is here")
        yield b""


@pytest.fixture
async def plan(tmp_path: Path) -> Plan:
    return await prepare(tiny_config(tmp_path / "home"), SystemClock(), SystemEntropy())


async def test_every_room_of_the_plan_can_be_built_and_drained(plan: Plan) -> None:
    for name in ROOMS:
        room = build_room(plan, name, NoMailbox())
        assert room.name == name
        await room.drain()


async def test_there_is_no_other_room(plan: Plan) -> None:
    with pytest.raises(ContentError, match="'cellar'"):
        build_room(plan, "cellar", NoMailbox())


async def test_a_profile_brings_its_grammar_and_the_contracts_that_it_pins(plan: Plan) -> None:
    profile = bound_profile(plan)
    contracts = profile_contracts(profile, vocabulary(plan))
    assert contracts.grammar.name == profile.grammar
    assert contracts.grammar.tokenizer.contract == profile.tokenizer
    assert "gemma3-transcript" in contracts.grammars


async def test_weights_that_are_not_the_pinned_ones_are_refused(plan: Plan) -> None:
    path = plan.config.home_path / "models" / "tiny-gemma.gguf"
    with path.open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"\xff\x00\xff")
    with pytest.raises(ProfileFault, match="SHA-256"):
        build_room(plan, "worker", NoMailbox())


@pytest.mark.req("KV-6", "AUT-8")
def test_pages_lie_under_a_key_for_each_domain_and_outlive_their_worker(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "home")
    tiers = page_tiers(config, SystemClock(), SystemEntropy())
    for page, rows in [*talk("ann", 1, 2), *talk("bob", 1)]:
        tiers.keep(page, rows)
    tiers.close()
    keys = list((tmp_path / "home" / "keys").glob("pages-*.secret"))
    assert len({key.read_bytes() for key in keys}) == 2
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}
    again = page_tiers(config, SystemClock(), SystemEntropy())
    held = again.longest("ann", chains_of(talk("ann", 1, 2)))
    assert [one.tiers for one in held] == [("disk",), ("disk",)]
    fetched = again.fetch(held, lambda tokens: 0)
    assert fetched.rows == [rows for _, rows in talk("ann", 1, 2)]
    again.close()


@pytest.mark.req("KV-6")
def test_a_page_directory_that_is_taken_costs_the_disk_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tiny_config(tmp_path / "home")
    first = page_tiers(config, SystemClock(), SystemEntropy())
    second = page_tiers(config, SystemClock(), SystemEntropy())
    assert set(first.stats()) == {"host", "disk"}
    assert set(second.stats()) == {"host"}
    assert "in use" in caplog.text
    first.close()
    second.close()


@pytest.mark.req("KV-4")
def test_pages_can_be_left_unwritten_and_budgets_are_the_configured_ones(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "home", publish_pages=False, host_bytes=300)
    tiers = page_tiers(config, SystemClock(), SystemEntropy())
    for page, rows in talk("ann", 1, 2, 3):
        tiers.keep(page, rows)
    assert tiers.stats()["host"]["pages"] == 2
    tiers.close()
    assert not list((tmp_path / "home" / "pages").glob("*/"))


@pytest.mark.req("KV-4")
@pytest.mark.parametrize(("percent", "left"), [(50, 2), (100, 0)])
def test_one_domain_takes_no_more_than_its_share_of_either_tier(
    tmp_path: Path, percent: int, left: int
) -> None:
    """Room for four pages in each tier; ann has two when bob comes with six."""
    config = tiny_config(
        tmp_path / "home", host_bytes=4 * 144, disk_bytes=4 * 700, domain_percent_max=percent
    )
    tiers = page_tiers(config, SystemClock(), SystemEntropy())
    ann, bob = talk("ann", 1, 2), talk("bob", *range(10, 16))
    for page, rows in [*ann, *bob]:
        tiers.keep(page, rows)
        # One after the other, so that both tiers see them in this order.
        assert tiers._writer is not None
        assert tiers._writer.flush(60)
    for name, tier in tiers._tiers.items():
        assert len(tier.find("ann", chains_of(ann))) == left, name
        # Without its first pages a prefix is of no use: those stay.
        assert len(tier.find("bob", chains_of(bob))) == 4 - left, name
    tiers.close()
