"""Limits that depend on each other hold together."""

from __future__ import annotations

from protocol import cbor, limits


def test_the_largest_content_fits_in_a_record_and_several_records_in_a_message() -> None:
    record = cbor.encode({"content": b"x" * limits.CONTENT_BYTES_MAX, "id": b"i" * 32, "v": 1})
    assert len(record) <= limits.RECORD_BYTES_MAX
    assert 4 * limits.RECORD_BYTES_MAX < limits.MESSAGE_BYTES_MAX
    # What a client may send fits in one message with its envelope.
    assert limits.BODY_BYTES_MAX < limits.MESSAGE_BYTES_MAX


def test_a_turns_handle_lives_no_longer_than_any_handle() -> None:
    assert limits.TURN_HANDLE_LIFETIME_NS < limits.CAPABILITY_LIFETIME_NS_MAX
