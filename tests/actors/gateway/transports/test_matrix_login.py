"""Logging in at a real server, and being refused there."""

from __future__ import annotations

import pytest

from actors.gateway.transports.matrix_login import log_in, log_out
from protocol.errors import ContentError
from tests.matrix.synapse import Synapse

pytestmark = pytest.mark.slow


async def test_a_login_is_a_device_of_its_own_until_it_is_ended(synapse: Synapse) -> None:
    synapse.register("ada", password="a password")
    account = await log_in(synapse.url, "@ada:localhost", "a password", ("@eve:localhost",), "k")
    assert (account.user, account.allow, account.key_file) == (
        "@ada:localhost",
        ("@eve:localhost",),
        "k",
    )
    assert synapse.whoami(account.token) == "@ada:localhost"
    await log_out(account)
    assert synapse.whoami(account.token) is None
    # Ending it again, or at a server that is gone, is no error: the login is forgotten here.
    await log_out(account)


async def test_what_the_server_refuses_is_said(synapse: Synapse) -> None:
    with pytest.raises(ContentError, match="refused the login of @nobody:localhost"):
        await log_in(synapse.url, "@nobody:localhost", "wrong", ("@a:b",), "k")
    with pytest.raises(ContentError, match=r"http://127\.0\.0\.1:1 cannot be reached"):
        await log_in("http://127.0.0.1:1", "@nobody:localhost", "wrong", ("@a:b",), "k")
