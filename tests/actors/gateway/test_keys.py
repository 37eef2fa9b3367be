"""API keys: only a hash is kept, and the row alone signs nothing."""

from __future__ import annotations

import pytest

from actors.gateway.keys import KEY_CHARS_MAX, ApiKeys, KeyRow, key_hash, mint_key, traces
from protocol.errors import CorruptObject
from protocol.messages.erasure import Erase
from protocol.signing import Signer, principal_seed
from store.memory_tables import MemoryTables
from tests.rooms import Installation


def row_of(principal: str) -> KeyRow:
    return KeyRow(v=1, principal=principal, chain=[b"x"], namespace="n", domain="d", created_s=1)


def test_a_key_is_found_by_itself_alone() -> None:
    keys = ApiKeys(MemoryTables().keyed("keys"))
    key = mint_key(bytes(20))
    keys.add(key, row_of("ada"))
    holder = keys.find(key)
    assert holder is not None
    assert holder.row == row_of("ada")
    assert holder.signer.public == Signer(principal_seed(key)).public
    for wrong in ("", key[:-1], key + "a", key.upper(), " " + key, "x" * (KEY_CHARS_MAX + 1)):
        assert keys.find(wrong) is None


def test_the_table_never_holds_the_key() -> None:
    table = MemoryTables().keyed("keys")
    key = mint_key(bytes(range(20)))
    ApiKeys(table).add(key, row_of("ada"))
    kept = b"".join(part for pair in table.items() for part in pair)
    assert key.encode() not in kept
    assert principal_seed(key) not in kept
    assert table.get(key_hash(key)) is not None


def test_removing_takes_every_key_of_a_principal_and_no_other() -> None:
    keys = ApiKeys(MemoryTables().keyed("keys"))
    for index, name in enumerate(["ada", "ada", "bob"]):
        keys.add(mint_key(bytes([index]) * 20), row_of(name))
    assert keys.remove("ada") == 2
    assert keys.remove("ada") == 0
    assert [row.principal for row in keys.principals()] == ["bob"]


def test_a_row_that_cannot_be_read_is_a_fault_of_ours() -> None:
    table = MemoryTables().keyed("keys")
    key = mint_key(bytes(20))
    table.put(key_hash(key), b"\xff")
    with pytest.raises(CorruptObject):
        ApiKeys(table).find(key)


def test_a_minted_key_is_long_and_plain() -> None:
    key = mint_key(bytes(range(20)))
    assert key.startswith("hg-")
    assert len(key) == 35
    assert key.isascii()
    assert key == key.lower()


def test_text_that_is_no_unicode_is_no_key() -> None:
    assert ApiKeys(MemoryTables().keyed("keys")).find("hg-\ud800" + "a" * 20) is None


@pytest.mark.req("AUT-8")
async def test_a_key_is_left_by_its_name_or_its_principals_key_and_not_by_its_domain() -> None:
    house = await Installation().start()
    ada, bob = await house.enroll("ada", domain="ours"), await house.enroll("bob", domain="ours")
    table = MemoryTables().keyed("keys")
    for who in (ada, bob):
        ApiKeys(table).add(mint_key(who.row.public[:20]), who.row)

    def left(*names: str, principals: tuple[bytes, ...] = (), domains: tuple[str, ...] = ()) -> int:
        ask = Erase(
            domains=list(domains),
            namespaces=[],
            spared=[],
            principals=list(principals),
            names=list(names),
        )
        return len(traces(table, ask))

    assert (left("ada"), left("ada", "bob"), left("eve")) == (1, 2, 0)
    assert (left(principals=(bob.row.public,)), left(domains=("ours",))) == (1, 0)
    assert left("ada", principals=(ada.row.public,)) == 1
