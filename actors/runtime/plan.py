"""The plan of a start: who is who. Made once by the shell, given to every room's process.

Preparing is the operator's act. It makes the data directory and the keys that are missing, grants
the operator its handles, and keeps the operator's API key in the gateway's table; it runs before
any room does, so the files are still nobody's. Each room gets a handle of its own for what rooms
say to each other (revocations, registrations, counters): it carries no right on any namespace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from actors.authority.principals import NAMESPACE_RIGHTS, Principals
from actors.config import Config
from actors.gateway.keys import KEY_ENTROPY_BYTES, ApiKeys, KeyRow, mint_key
from actors.ports import Clock, Entropy
from profiles import loader
from protocol.capability import issue
from protocol.limits import CAPABILITY_LIFETIME_NS_MAX
from protocol.messages.authority import Enroll
from protocol.publication import PUBLIC
from protocol.resource import Resource, ResourceKind, Right
from protocol.signing import NONCE_BYTES, Signer, principal_seed
from store.files import make_directory
from store.keys import KeyStore
from store.sqlite import Database
from store.sqlite_tables import SqliteTables

ROOMS: Final = ("authority", "ropes", "muninn", "events", "assembler", "worker", "gateway")
# Whose key signs what executing again on this machine gave: no room's, so it opens no door.
VERIFIER: Final = "verifier"
OPERATOR: Final = "operator"
OPERATOR_KEY_FILE: Final = "operator.key"
_NS_PER_S: Final = 10**9


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a process needs to run any room. No secret in it: keys are read from the key store."""

    config: Config
    anchors: list[bytes]
    room_to_key: dict[str, bytes]
    service_chains: dict[str, list[bytes]]

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Plan:
        return msgspec.json.decode(data, type=cls)


def room_signer(home: Path, name: str, entropy: Entropy) -> Signer:
    """The signing key of the room `name` ("root": of the root authority)."""
    return Signer(bytes(KeyStore(home / "keys", entropy=entropy.draw).ed25519(name)))


def operator_key(home: Path, entropy: Entropy) -> str:
    """The operator's API key: the one line of `operator.key`, written the first time."""
    keys = KeyStore(home, entropy=entropy.draw)
    return keys.text_once(OPERATOR_KEY_FILE, lambda: mint_key(entropy.draw(KEY_ENTROPY_BYTES)))


def database_path(home: Path, name: str) -> Path:
    """The SQLite file of one room."""
    return home / "rooms" / f"{name}.sqlite"


async def prepare(config: Config, clock: Clock, entropy: Entropy) -> Plan:
    """The plan of this start. Raises StoreFault if the data directory cannot be used, is open to
    other users, or belongs to a service that runs; ProfileFault if there is no such profile."""
    home = config.home_path
    make_directory(home)
    root = room_signer(home, "root", entropy)
    room_to_key = {name: room_signer(home, name, entropy).public for name in ROOMS}
    await _enroll_operator(config, root, clock, entropy)
    # No service runs here, or the operator could not have been enrolled.
    for directory in (home, home / "keys"):
        KeyStore(directory, entropy=entropy.draw).sweep()
    return Plan(
        config=config,
        anchors=[root.public],
        room_to_key=room_to_key,
        service_chains={
            name: list(_service_chain(root, name, room_to_key[name], clock, entropy))
            for name in ROOMS
        },
    )


def _service_chain(
    root: Signer, name: str, key: bytes, clock: Clock, entropy: Entropy
) -> tuple[bytes, ...]:
    now_ns = clock.wall_ns()
    return issue(
        root,
        audience=key,
        resource=Resource(kind=ResourceKind.SERVICE, name=name),
        rights=(Right.OPERATE,),
        nbf_ns=now_ns,
        exp_ns=now_ns + CAPABILITY_LIFETIME_NS_MAX,
        nonce=entropy.draw(NONCE_BYTES),
    )


async def _enroll_operator(config: Config, root: Signer, clock: Clock, entropy: Entropy) -> None:
    home = config.home_path
    key = operator_key(home, entropy)
    ask = Enroll(
        name=OPERATOR,
        public_key=Signer(principal_seed(key)).public,
        namespace=OPERATOR,
        domain=OPERATOR,
        rights=sorted(right.value for right in NAMESPACE_RIGHTS),
        profiles=[loader.load(config.profile).name],
        administers=True,
        # Whoever runs the machine may be shown what of the public prefixes was reused.
        telemetry=[PUBLIC],
        lifetime_ns=CAPABILITY_LIFETIME_NS_MAX,
    )
    tables = SqliteTables(Database(database_path(home, "authority")))
    try:
        enrolled = await Principals(tables, root, clock, entropy).enroll(ask)
    finally:
        tables.close()
    front = SqliteTables(Database(database_path(home, "gateway")))
    try:
        keys = ApiKeys(front.keyed("keys"))
        row = KeyRow.granted(ask, enrolled, clock.wall_ns() // _NS_PER_S)
        held = keys.find(key)
        if held is None or held.row.chain != row.chain:
            keys.add(key, row)
    finally:
        front.close()
