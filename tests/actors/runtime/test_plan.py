"""The plan of a start: keys made once, the operator granted, nothing secret in what travels."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from actors.authority.principals import NAMESPACE_RIGHTS
from actors.gateway.keys import ApiKeys
from actors.runtime.plan import ROOMS, Plan, database_path, operator_key, prepare, room_signer
from actors.runtime.world import SystemClock, SystemEntropy
from protocol.chain import verify_chain
from protocol.errors import StoreFault
from protocol.resource import Resource, ResourceKind, Right
from store.sqlite import Database
from store.sqlite_tables import SqliteTables
from tests.installations import tiny_config

CLOCK, ENTROPY = SystemClock(), SystemEntropy()


def not_revoked(*_: object) -> bool:
    return False


async def test_a_second_start_has_the_same_keys_and_the_same_operator(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "home")
    first = await prepare(config, CLOCK, ENTROPY)
    key = operator_key(config.home_path, ENTROPY)
    second = await prepare(config, CLOCK, ENTROPY)
    assert (second.anchors, second.room_to_key) == (first.anchors, first.room_to_key)
    assert operator_key(config.home_path, ENTROPY) == key
    tables = SqliteTables(Database(database_path(config.home_path, "gateway")))
    rows = ApiKeys(tables.keyed("keys")).principals()
    tables.close()
    assert [row.principal for row in rows] == ["operator"]


async def test_a_start_takes_away_what_writes_that_died_left(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "home")
    await prepare(config, CLOCK, ENTROPY)
    for directory in (config.home_path, config.home_path / "keys"):
        (directory / ".a.secret.0123456789abcdef.unfinished").write_bytes(b"half a key")
    await prepare(config, CLOCK, ENTROPY)
    assert not list(config.home_path.rglob("*.unfinished"))


@pytest.mark.req("AUT-8")
async def test_every_key_is_0600_in_a_directory_of_0700(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "home")
    await prepare(config, CLOCK, ENTROPY)
    keys = [config.home_path / "operator.key", *(config.home_path / "keys").iterdir()]
    assert len(keys) == len(ROOMS) + 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    for directory in (config.home_path, config.home_path / "keys"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


async def test_a_data_directory_that_others_may_read_is_refused(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "home")
    config.home_path.chmod(0o755)
    with pytest.raises(StoreFault, match="700"):
        await prepare(config, CLOCK, ENTROPY)


async def test_the_plan_carries_no_secret_and_reads_back(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "home")
    plan = await prepare(config, CLOCK, ENTROPY)
    data = plan.encode()
    assert b"\n" not in data
    assert Plan.decode(data) == plan
    assert operator_key(config.home_path, ENTROPY).encode() not in data
    assert room_signer(config.home_path, "root", ENTROPY).public == plan.anchors[0]


async def test_a_rooms_own_handle_reaches_no_namespace(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "home")
    plan = await prepare(config, CLOCK, ENTROPY)
    for name in ROOMS:
        chain = plan.service_chains[name]
        handle = verify_chain(chain, plan.anchors, CLOCK.wall_ns(), not_revoked)
        assert handle.audience == plan.room_to_key[name]
        assert handle.rights == {Right.OPERATE}
        operator = Resource(kind=ResourceKind.NAMESPACE, name="operator")
        assert not any(handle.permits(right, operator) for right in Right)


async def test_the_operators_second_handle_administers_and_reads_nothing(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "home")
    plan = await prepare(config, CLOCK, ENTROPY)
    tables = SqliteTables(Database(database_path(config.home_path, "gateway")))
    (row,) = ApiKeys(tables.keyed("keys")).principals()
    tables.close()
    assert row.admin_chain is not None
    own = verify_chain(row.chain, plan.anchors, CLOCK.wall_ns(), not_revoked)
    admin = verify_chain(row.admin_chain, plan.anchors, CLOCK.wall_ns(), not_revoked)
    someone = Resource(kind=ResourceKind.NAMESPACE, name="someone")
    mine = Resource(kind=ResourceKind.NAMESPACE, name="operator")
    assert own.rights == NAMESPACE_RIGHTS
    assert own.permits(Right.READ, mine)
    assert not any(own.permits(right, someone) for right in Right)
    assert admin.permits(Right.GRANT, someone)
    assert not admin.permits(Right.READ, someone)
    assert not admin.permits(Right.READ, mine)


@pytest.mark.req("AUT-1")
async def test_the_operator_computes_with_the_configured_profile_and_no_other(
    tmp_path: Path,
) -> None:
    config = tiny_config(tmp_path / "home")
    plan = await prepare(config, CLOCK, ENTROPY)
    tables = SqliteTables(Database(database_path(config.home_path, "gateway")))
    (row,) = ApiKeys(tables.keyed("keys")).principals()
    tables.close()
    own = verify_chain(row.chain, plan.anchors, CLOCK.wall_ns(), not_revoked)
    for right in (Right.GENERATE, Right.ADVANCE):
        assert own.permits(right, Resource(kind=ResourceKind.PROFILE, name="tiny-gemma"))
        assert not own.permits(right, Resource(kind=ResourceKind.PROFILE, name="another"))
