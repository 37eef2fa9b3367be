"""`huginn key handle` to `take-back`, against a gateway with a real authority room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_rooms import Service
from tests.huginn import answered, huginn, reach, refused


@pytest.fixture
def client(service: Service, newcomer: tuple[str, str]) -> dict[str, str]:
    """The variables of a principal of this test alone."""
    return reach(service, newcomer[1])


def kept(client: dict[str, str], home: Path, path: Path) -> str:
    """A file with what `huginn key handle` prints for the client's key."""
    path.write_text(huginn("key", "handle", home=home, **client).output)
    return str(path)


@pytest.mark.req("AUT-1", "AUT-4")
def test_a_handle_from_made_offline_to_taken_back(
    service: Service, client: dict[str, str], home: Path, tmp_path: Path
) -> None:
    file = kept(client, home, tmp_path / "own")
    # Nobody listens there: it is made without the service.
    offline = {**client, "HUGINN_PORT": "1"}
    words = ("key", "attenuate", file, "--right", "assemble", "--right", "read", "--right", "write")
    handle = huginn(*words, "--lifetime-s", "600", home=home, **offline).output.strip()
    holder = reach(service, handle)
    assert answered("key", "handles", home=home, **holder) == []
    assert answered("key", "handles", home=home, **client) == []
    assert huginn("key", "take-back", handle, home=home, **client).output == "taken back\n"
    refused("key", "handles", home=home, code="key_revoked", **holder)


@pytest.mark.req("AUT-1")
def test_nothing_wider_is_made(
    service: Service, client: dict[str, str], home: Path, tmp_path: Path
) -> None:
    file = kept(client, home, tmp_path / "own")
    for narrowed in (
        ("--right", "telemetry"),
        ("--right", "rule"),
        ("--namespace", "clientele"),
        ("--namespace", "../up"),
        ("--audience", "xyz"),
    ):
        refused("key", "attenuate", file, *narrowed, home=home, code="handle", **client)
    # Signed by another key than the handle is of.
    message = refused("key", "attenuate", file, home=home, code="handle", **reach(service))
    assert "not issued by the audience of its parent" in message
    empty = tmp_path / "empty"
    empty.write_text("")
    refused("key", "attenuate", str(empty), home=home, code="handle", **client)


def test_handles_on_record_are_listed(service: Service, client: dict[str, str], home: Path) -> None:
    for row in answered("key", "handles", home=home, **client):
        assert row["id"] not in huginn("key", "ls", home=home, **reach(service)).output
    refused("key", "take-back", "cap:none", home=home, code="not_found", **client)
