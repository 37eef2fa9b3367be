"""Signatures: published vectors, the traps of PyNaCl, key derivation."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cbor
from protocol.errors import ContentError, EncodingError, RecordError
from protocol.signing import (
    Signer,
    is_public_key,
    pack_signed,
    principal_seed,
    unpack_signed,
    verify,
)

VECTORS = Path(__file__).parents[1] / "vectors"
WYCHEPROOF = json.loads((VECTORS / "ed25519_wycheproof.json").read_text())
SPECCHECK = json.loads((VECTORS / "ed25519_speccheck.json").read_text())
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493


def wycheproof_cases() -> list[Any]:
    return [
        pytest.param(bytes.fromhex(group["public"]), *test[1:], id=f"{test[0]}-{test[1]}")
        for group in WYCHEPROOF["groups"]
        for test in group["tests"]
    ]


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(("public", "flags", "message", "signature", "result"), wycheproof_cases())
def test_wycheproof(public: bytes, flags: str, message: str, signature: str, result: str) -> None:
    accepted = verify(public, bytes.fromhex(message), bytes.fromhex(signature))
    if result == "acceptable":
        # Left to policy: small order is refused, mixed order verifies but is no key of ours.
        assert accepted == (flags == "MixedOrderPublicKey")
        assert not is_public_key(public)
    else:
        assert accepted == (result == "valid")
        assert is_public_key(public) == ("MixedOrder" not in flags)


def test_wycheproof_is_whole() -> None:
    results = [row[4] for group in WYCHEPROOF["groups"] for row in group["tests"]]
    assert (len(results), results.count("valid"), results.count("invalid")) == (210, 117, 64)


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize("case", SPECCHECK["cases"], ids=[c[3] for c in SPECCHECK["cases"]])
def test_speccheck(case: list[Any]) -> None:
    message, public, signature = (bytes.fromhex(text) for text in case[:3])
    assert verify(public, message, signature) == case[4]
    assert not is_public_key(public) or not case[4]


@pytest.mark.parametrize("last", [0x00, 0x80], ids=["sign 0", "sign 1"])
@pytest.mark.parametrize(
    "point",
    [
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ],
)
def test_small_order_and_non_canonical_keys_are_no_keys(point: str, last: int) -> None:
    public = bytearray.fromhex(point)
    public[31] |= last
    assert not is_public_key(bytes(public))
    # S = 0 and R = A: with the identity as key this satisfies the bare equation for any message.
    assert not verify(bytes(public), b"any message", bytes(public) + bytes(32))


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=300))
def test_what_is_signed_verifies_and_nothing_near_it_does(seed: bytes, message: bytes) -> None:
    signer = Signer(seed)
    signature = signer.sign(message)
    assert is_public_key(signer.public)
    assert verify(signer.public, message, signature)
    assert not verify(signer.public, message + b"\0", signature)
    assert not verify(Signer(bytes(31) + b"\x01").public, message, signature)
    scalar = int.from_bytes(signature[32:], "little") + GROUP_ORDER
    malleable = signature[:32] + scalar.to_bytes(32, "little")
    assert not verify(signer.public, message, malleable)


def test_a_missing_signature_never_verifies() -> None:
    """verify(signature + message, None) is what PyNaCl would accept."""
    signer = Signer(bytes(32))
    attack = signer.sign(b"attacker chosen") + b"attacker chosen"
    for signature in (None, b"", bytes(64), bytearray(64), "x" * 64, memoryview(attack)[:64]):
        assert not verify(signer.public, attack, signature)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [0, 1, 31, 33, 63, 65, 128])
def test_wrong_lengths_are_a_no(length: int) -> None:
    signer = Signer(bytes(32))
    signature = signer.sign(b"m")
    assert not verify(bytes(length), b"m", signature)
    assert not verify(signer.public, b"m", (signature * 2)[:length])
    assert not is_public_key(bytes(length))
    with pytest.raises(ContentError, match="32 bytes"):
        Signer(bytes(length))


def test_a_signer_does_not_show_its_seed() -> None:
    seed = hashlib.sha256(b"seed").digest()
    assert seed.hex() not in repr(Signer(seed))
    assert Signer(seed).public.hex() in repr(Signer(seed))


def hkdf_sha256(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869 in full, as an oracle."""
    key = hmac.new(salt or bytes(32), secret, hashlib.sha256).digest()
    block, out = b"", b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.new(key, block + info + bytes([counter]), hashlib.sha256).digest()
        out += block
    return out[:length]


def test_the_hkdf_oracle_gives_the_rfc_vectors() -> None:
    case_1 = hkdf_sha256(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)), 42)
    assert case_1.hex() == (
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )
    case_3 = hkdf_sha256(b"\x0b" * 22, b"", b"", 42)
    assert case_3.hex() == (
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    )


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=16, max_size=80))
def test_a_principal_seed_is_hkdf_of_the_api_key(api_key: str) -> None:
    expected = hkdf_sha256(api_key.encode(), b"", b"huginn.principal/1", 32)
    assert principal_seed(api_key) == expected
    assert principal_seed(api_key) != hashlib.sha256(api_key.encode()).digest()


def test_a_short_api_key_is_refused() -> None:
    with pytest.raises(ContentError, match="at least 16"):
        principal_seed("x" * 15)


def test_signed_records_have_one_shape() -> None:
    signer = Signer(bytes(32))
    packed = pack_signed(signer, b"kind/1\0", b"payload")
    payload, signature = unpack_signed(packed, size_max=200)
    assert payload == b"payload"
    assert verify(signer.public, b"kind/1\0payload", signature)
    assert not verify(signer.public, b"kind/2\0payload", signature)
    for value in ([payload], [payload, signature[1:]], [payload, signature, b""], [1, signature]):
        with pytest.raises(RecordError, match="signed record"):
            unpack_signed(cbor.encode(value), size_max=200)  # type: ignore[arg-type]
    with pytest.raises(EncodingError, match="size"):
        unpack_signed(packed, size_max=len(packed) - 1)
    with pytest.raises(EncodingError, match="trailing"):
        unpack_signed(packed + b"\0", size_max=200)
