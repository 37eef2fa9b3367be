from __future__ import annotations

import pytest

from protocol.errors import ContentError, CorruptObject
from store.pages.seal import SEAL_BYTES, Section, seal, unseal

KEY, HEAD, BODY = bytes(range(32)), b"the head", b"rows of a page"


@pytest.mark.parametrize("body", [b"", BODY, bytes(70_000)])
@pytest.mark.parametrize("section", ["full", "sliding"])
def test_what_was_sealed_opens(section: Section, body: bytes) -> None:
    sealed = seal(body, section, head=HEAD, domain_key=KEY)
    assert len(sealed) == len(body) + SEAL_BYTES
    assert unseal(sealed, section, head=HEAD, domain_key=KEY) == body
    assert type(sealed) is bytes


def test_nothing_of_the_rows_shows_and_no_two_seals_are_alike() -> None:
    body = b"A" * 64
    first, second = (seal(body, "full", head=HEAD, domain_key=KEY) for _ in range(2))
    assert first != second
    assert b"AAAA" not in first


@pytest.mark.req("KV-3")
def test_a_seal_binds_every_byte_the_head_the_section_and_the_key() -> None:
    sealed = seal(BODY, "full", head=HEAD, domain_key=KEY)
    for at in range(len(sealed)):
        with pytest.raises(CorruptObject):
            unseal(
                sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :],
                "full",
                head=HEAD,
                domain_key=KEY,
            )
        with pytest.raises(CorruptObject):
            unseal(sealed[:at], "full", head=HEAD, domain_key=KEY)
    with pytest.raises(CorruptObject):
        unseal(sealed, "full", head=b"The head", domain_key=KEY)
    with pytest.raises(CorruptObject):
        unseal(sealed, "sliding", head=HEAD, domain_key=KEY)
    with pytest.raises(CorruptObject):
        unseal(sealed, "full", head=HEAD, domain_key=KEY[::-1])


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytes(64)])
def test_a_key_has_32_bytes(key: bytes) -> None:
    with pytest.raises(ContentError, match="32 bytes"):
        seal(BODY, "full", head=HEAD, domain_key=key)
    with pytest.raises(ContentError, match="32 bytes"):
        unseal(bytes(60), "full", head=HEAD, domain_key=key)
