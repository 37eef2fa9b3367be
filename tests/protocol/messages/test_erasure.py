"""The order of an erasure: which namespaces it takes."""

from __future__ import annotations

import pytest

from protocol.messages.erasure import Erase


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize(
    ("namespace", "taken"),
    [
        ("team", False),
        ("team/a", True),
        ("team/a/x", True),
        ("team/ab", False),
        ("team/a/kept", False),
        ("team/a/kept/deep", False),
        ("team/a/keptnot", True),
        ("other", True),
        ("", False),
    ],
)
def test_an_order_takes_paths_with_what_is_below_and_spares_paths_likewise(
    namespace: str, taken: bool
) -> None:
    order = Erase(
        domains=[],
        namespaces=["team/a", "other"],
        spared=["team/a/kept", "elsewhere"],
        principals=[],
        names=[],
    )
    assert order.takes(namespace) is taken
