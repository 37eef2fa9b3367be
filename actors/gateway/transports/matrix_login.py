"""Logging in to a Matrix server, once, for the account that a service answers with."""

from __future__ import annotations

import contextlib

import nio
from aiohttp import ClientError

from actors.gateway.transports.matrix_account import Account
from protocol.errors import ContentError


async def log_in(
    url: str, user: str, password: str, allow: tuple[str, ...], key_file: str
) -> Account:
    """The account of `user`, with a new device there. Raises ContentError for what the server
    refuses, and for a server that cannot be reached."""
    client = nio.AsyncClient(url, user, config=nio.AsyncClientConfig(max_timeouts=0))
    try:
        answer = await client.login(password, device_name="huginn")
    except (OSError, TimeoutError, ClientError) as error:
        raise ContentError(f"{url} cannot be reached: {error}") from error
    finally:
        await client.close()
    if not isinstance(answer, nio.LoginResponse):
        raise ContentError(f"{url} refused the login of {user}: {answer.message}")
    return Account(
        url=url,
        user=answer.user_id,
        device=answer.device_id,
        token=answer.access_token,
        allow=allow,
        key_file=key_file,
    )


async def log_out(account: Account) -> None:
    """End the login at the server, as far as it can be reached."""
    client = nio.AsyncClient(account.url, account.user, device_id=account.device)
    client.access_token = account.token
    with contextlib.suppress(OSError, TimeoutError, ClientError):
        await client.logout()
    await client.close()
