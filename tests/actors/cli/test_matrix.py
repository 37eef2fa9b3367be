"""`huginn matrix`: an account is kept after a login, shown without its secret, and forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.gateway.transports.matrix_account import Account, read_account, write_account
from tests.huginn import answered, huginn, refused
from tests.matrix.synapse import Synapse

ACCOUNT = Account(
    url="http://127.0.0.1:1", user="@bot:h", device="D", token="secret", allow=("@a:h",)
)


@pytest.mark.slow
@pytest.mark.req("SRV-5")
def test_a_login_is_kept_until_the_logout(synapse: Synapse, home: Path) -> None:
    (home / "operator.key").write_text("hg-x\n")
    synapse.register("raven", password="of the gods")
    words = ("--url", synapse.url, "--user", "@raven:localhost", "--allow", "@odin:localhost")
    made = answered("matrix", "login", *words, home=home, given="of the gods\n")
    assert made == {"user": "@raven:localhost", "url": synapse.url, "allow": ["@odin:localhost"]}
    kept = read_account(home)
    assert kept is not None
    assert synapse.whoami(kept.token) == "@raven:localhost"
    answered("matrix", "logout", home=home)
    assert read_account(home) is None
    assert synapse.whoami(kept.token) is None


def test_the_account_is_shown_without_its_token(home: Path) -> None:
    write_account(home, ACCOUNT)
    shown = answered("matrix", "show", home=home)
    assert shown == {
        "user": "@bot:h",
        "url": "http://127.0.0.1:1",
        "allow": ["@a:h"],
        "key_file": "operator.key",
        "persona": "assistant",
    }
    people = huginn("matrix", "show", home=home)
    assert "@bot:h" in people.stdout
    assert "secret" not in people.stdout


def test_without_an_account_or_a_key_the_way_out_is_said(home: Path) -> None:
    for words in (("show",), ("logout",)):
        assert "huginn matrix login" in refused("matrix", *words, home=home, code="no_account")
    words = ("login", "--url", "http://127.0.0.1:1", "--user", "@a:b", "--allow", "@c:d")
    assert "start the service once" in refused("matrix", *words, home=home, code="no_key")
    (home / "operator.key").write_text("hg-x\n")
    result = huginn("matrix", *words, home=home, given="p\n")
    assert result.exit_code == 1
    assert "cannot be reached" in result.stderr
