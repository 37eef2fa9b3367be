"""Building rooms from a plan: the one place that knows which class and which files a room has.

Both shells build rooms here; they differ in where a room runs and how messages reach it. A process
that runs one room imports that room alone: a worker is back the sooner, the less it has to load
beside its model.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from actors import VERSION
from actors.config import Config
from actors.ports import Clock, Entropy, Mailbox
from actors.room import Room, World
from actors.runtime.marks import TableMark
from actors.runtime.plan import VERIFIER, Plan, database_path, room_signer
from actors.runtime.world import SystemClock, SystemEntropy
from profiles import loader, weights
from profiles.profile import RuntimeProfile
from protocol.errors import ContentError, FaultError, ProfileFault, StoreFault
from protocol.ids import ProfileId
from protocol.messages.worker import ModelInfo
from protocol.record import encode_record
from protocol.signing import Signer
from protocol.tokenizer import Tokenizer
from store.keys import KeyStore
from store.sqlite import Database
from store.sqlite_tables import SqliteTables

if TYPE_CHECKING:
    from actors.assembler.contracts import ProfileContracts
    from actors.assembler.room import AssemblerRoom
    from actors.authority.room import AuthorityRoom
    from actors.events.room import EventsRoom
    from actors.gateway.front import FrontRoom, Transport
    from actors.gateway.room import Gateway
    from actors.gateway.transports.matrix_inbox import Inbox
    from actors.muninn.room import MuninnRoom
    from actors.ropes.room import RopesRoom
    from actors.worker.room import WorkerRoom
    from actors.worker.tiers import Tiers

log = logging.getLogger("huginn.runtime")
_SECOND_NS: Final = 10**9
_DAY_NS: Final = 24 * 3600 * _SECOND_NS


def build_room(plan: Plan, name: str, mailbox: Mailbox) -> Room:
    """The room `name`, not started yet. Raises StoreFault, ProfileFault or WorkerFault."""
    if name not in plan.service_chains:
        raise ContentError(f"there is no room {name!r:.40}")
    home = plan.config.home_path
    entropy = SystemEntropy()
    world = World(
        clock=SystemClock(),
        entropy=entropy,
        mailbox=mailbox,
        signer=room_signer(home, name, entropy),
        anchors=frozenset(plan.anchors),
        room_to_key=plan.room_to_key,
        service_chain=tuple(plan.service_chains[name]),
    )
    match name:
        case "authority":
            return _authority(plan, world, room_signer(home, "root", entropy))
        case "ropes":
            return _ropes(plan, world)
        case "assembler":
            return _assembler(plan, world)
        case "muninn":
            return _muninn(plan, world)
        case "events":
            return _events(plan, world)
        case "worker":
            return _worker(plan, world)
        case _:
            return _gateway(plan, world)


def bound_profile(plan: Plan) -> RuntimeProfile:
    """The configured profile on this machine; raises ProfileFault for weights or libraries that
    are not what it pins."""
    from actors.worker.backends.llama_library import build_digest

    spec = loader.load(plan.config.profile)
    path = weights.weights_path(spec, plan.config.home_path)
    return loader.bind(spec, path, build_digest())


def vocabulary(plan: Plan) -> Tokenizer:
    """The vocabulary of the configured weights, without the model."""
    from actors.worker.backends.llama_tokenizer import LlamaTokenizer

    spec = loader.load(plan.config.profile)
    return LlamaTokenizer(weights.weights_path(spec, plan.config.home_path))


def profile_contracts(profile: RuntimeProfile, tokenizer: Tokenizer) -> ProfileContracts:
    """What `profile` brings to an assembly. Grammars that its vocabulary cannot write are left
    out; its own must be there (ProfileFault)."""
    from actors.assembler.contracts import ProfileContracts
    from protocol.grammars import GRAMMARS, grammar

    grammars = {}
    for name in GRAMMARS:
        try:
            grammars[name] = grammar(name, tokenizer)
        except ContentError:
            continue
    if profile.grammar not in grammars:
        raise ProfileFault(f"profile {profile.name}: its vocabulary cannot write {profile.grammar}")
    return ProfileContracts(
        name=profile.name,
        model=profile.model,
        grammar=grammars[profile.grammar],
        grammars=grammars,
    )


def model_info(profile: RuntimeProfile) -> ModelInfo:
    return ModelInfo(
        name=profile.model.name,
        profile=ProfileId.of(encode_record(profile)),
        context_tokens=profile.context_tokens,
        instruct=profile.model.instruct,
        grammar=profile.grammar,
    )


def _tables(plan: Plan, name: str) -> SqliteTables:
    return SqliteTables(Database(database_path(plan.config.home_path, name)))


def _marked(world: World, tables: SqliteTables) -> World:
    """`world` for a room that keeps what its door accepted in `tables`."""
    return replace(world, mark=TableMark(tables))


def _authority(plan: Plan, world: World, root: Signer) -> AuthorityRoom:
    from actors.authority.room import AuthorityRoom

    tables = _tables(plan, "authority")
    return AuthorityRoom(_marked(world, tables), tables, root)


def _ropes(plan: Plan, world: World) -> RopesRoom:
    from actors.ropes.room import RopesRoom
    from store.blobs import BlobFiles
    from store.sqlite_objects import SqliteObjectStore

    home = plan.config.home_path
    database = Database(database_path(home, "ropes"))
    marked = _marked(world, SqliteTables(database))
    return RopesRoom(marked, SqliteObjectStore(database, BlobFiles(home / "blobs")))


def _assembler(plan: Plan, world: World) -> AssemblerRoom:
    from actors.assembler.room import AssemblerRoom

    contracts = profile_contracts(bound_profile(plan), vocabulary(plan))
    # It keeps nothing but its mark: all that it knows can be had again.
    tables = _tables(plan, "assembler")
    return AssemblerRoom(
        _marked(world, tables),
        {contracts.name: contracts},
        engine_build=f"huginn {VERSION}",
        tables=tables,
    )


def _muninn(plan: Plan, world: World) -> MuninnRoom:
    """The memo. A file that cannot be used disables it, and nothing else (DRV-5)."""
    from actors.muninn.room import MuninnRoom

    tables: SqliteTables | None = None
    try:
        tables = _tables(plan, "muninn")
    except FaultError as error:
        log.warning("nothing is remembered of derivations: %s", error)
    profile = bound_profile(plan)
    proven = profile.reproducible_generation
    return MuninnRoom(
        world if tables is None else _marked(world, tables),
        tables,
        verifiers=(room_signer(plan.config.home_path, VERIFIER, world.entropy).public,),
        reproducible={ProfileId.of(encode_record(profile))} if proven else (),
    )


def _events(plan: Plan, world: World) -> EventsRoom:
    """Logs, sessions and turns in one file, so that they change in one transaction."""
    from actors.events.retention import Retention
    from actors.events.room import EventsRoom
    from actors.events.sessions import SessionLimits
    from actors.runtime.remote_feed import HttpFeed
    from actors.runtime.source_keys import StoredSourceKeys
    from store.sqlite_events import SqliteEventLogs

    config = plan.config
    database = Database(database_path(config.home_path, "events"))
    tables = SqliteTables(database)
    return EventsRoom(
        _marked(world, tables),
        SqliteEventLogs(database),
        tables,
        tokenizer=vocabulary(plan),
        keys=StoredSourceKeys(config.home_path / "keys", world.entropy),
        feed=HttpFeed(config.home_path / "remote-keys"),
        limits=SessionLimits(
            render_tokens=config.reminder_tokens,
            lease_ns=config.turn_lease_seconds * _SECOND_NS,
            idle_ns=config.session_idle_days * _DAY_NS,
        ),
        retention=Retention(
            events_max=config.events_max,
            age_ns_max=config.event_days_max * _DAY_NS,
            unseen_max=config.unseen_events_max,
        ),
    )


def page_tiers(config: Config, clock: Clock, entropy: Entropy) -> Tiers:
    """Where a worker keeps prefix states: in memory, and under `pages` in the data directory,
    sealed with a key for each domain. They are derived: a directory that cannot be used costs
    recomputation, never the start."""
    from actors.worker.tiers import Tiers
    from actors.worker.writer import PageWriter
    from store.pages.disk import PageStore
    from store.pages.header import domain_digest
    from store.pages.memory import MemoryPageTier
    from store.pages.seal import DOMAIN_KEY_BYTES

    def share(budget_bytes: int) -> int:
        return budget_bytes * config.domain_percent_max // 100

    host = MemoryPageTier(clock, config.host_bytes, share(config.host_bytes))
    keys = KeyStore(config.home_path / "keys", entropy=entropy.draw)

    def key_for(domain: str) -> bytes:
        return keys.secret(f"pages-{domain_digest(domain).hex()}", DOMAIN_KEY_BYTES)

    def destroy(domain: str) -> bool:
        return keys.destroy(f"pages-{domain_digest(domain).hex()}.secret")

    try:
        disk = PageStore(
            config.home_path / "pages",
            clock,
            key_for,
            config.disk_bytes,
            share(config.disk_bytes),
        )
    except StoreFault as error:
        log.warning("no prefix states are kept on disk: %s", error)
        return Tiers(host, destroy_key=destroy, unopened=error.message)
    writer = PageWriter(disk, host).start() if config.publish_pages else None
    return Tiers(host, disk, writer, destroy_key=destroy)


def _worker(plan: Plan, world: World) -> WorkerRoom:
    from actors.worker.backends.llama import LlamaBackend
    from actors.worker.ledgers import LedgerPorts
    from actors.worker.limits import WorkerLimits
    from actors.worker.room import WorkerRoom

    profile = bound_profile(plan)
    spec = loader.load(plan.config.profile)
    path = weights.weights_path(spec, plan.config.home_path)
    tables = _tables(plan, "worker")
    backend = LlamaBackend(path, profile, threads_batch=plan.config.threads_prefill)
    return WorkerRoom(
        _marked(world, tables),
        backend,
        ProfileId.of(encode_record(profile)),
        model_info(profile),
        tables.keyed("receipts"),
        profile_name=profile.name,
        public_table=tables.keyed("public"),
        ledgers=LedgerPorts(tables.keyed("charges"), tables.keyed("use"), time.process_time_ns),
        tiers=page_tiers(plan.config, world.clock, world.entropy),
        limits=WorkerLimits(
            chunk_tokens=profile.chunk_tokens,
            reproducible=profile.reproducible_generation,
            states_equal=profile.equality == "bitwise",
            receipts_kept=plan.config.receipts_max,
        ),
        process=os.getpid(),
        engine_build=f"{profile.backend} {profile.build_digest.hex()}",
        tables=tables,
    )


def _gateway(plan: Plan, world: World) -> FrontRoom:
    from actors.gateway.caller import Ports
    from actors.gateway.front import FrontRoom
    from actors.gateway.limits import Limits
    from actors.gateway.models import ServedModel
    from actors.gateway.readiness import Readiness
    from actors.gateway.room import Gateway
    from actors.gateway.transports.matrix_inbox import Inbox

    config = plan.config
    profile = bound_profile(plan)
    model = ServedModel(
        name=profile.model.name,
        profile=profile.name,
        room="worker",
        info=model_info(profile),
        tokenizer=vocabulary(plan),
        created_s=world.clock.wall_ns() // _SECOND_NS,
        temperature_default=loader.load(config.profile).answers.temperature,
    )
    ports = Ports(
        clock=world.clock,
        entropy=world.entropy,
        mailbox=world.mailbox,
        room_to_key=world.room_to_key,
        readiness=Readiness(ready=False),
    )
    limits = Limits(
        answer_tokens_default=config.answer_tokens_default,
        answer_ns_max=config.answer_seconds_max * _SECOND_NS,
        ping_ns=config.ping_seconds * _SECOND_NS,
        settle_answers=config.settle_answers,
        requests_open_max=config.requests_open_max,
        requests_minute_max=config.requests_minute_max,
    )
    tables = _tables(plan, "gateway")
    gateway = Gateway(
        ports,
        tables.keyed("keys"),
        [model],
        version=VERSION,
        limits=limits,
        signer=world.signer,
        anchors=world.anchors,
    )
    inbox = Inbox(tables)
    return FrontRoom(
        _marked(world, tables),
        gateway,
        host=config.host,
        port=config.port,
        transports=_transports(config.home_path, gateway, inbox),
        inbox=inbox,
        tables=tables,
    )


def _transports(home: Path, gateway: Gateway, inbox: Inbox) -> list[Transport]:
    """The transports that this installation has an account for."""
    from actors.gateway.transports.matrix_account import read_account, read_key

    try:
        account = read_account(home)
        if account is None:
            return []
        key = read_key(home, account)
    except (ContentError, StoreFault) as error:
        # HTTP is served all the same: who looks into the log finds what to mend.
        log.error("no Matrix transport: %s", error)
        return []
    from actors.gateway.transports.matrix import MatrixTransport

    return [MatrixTransport(gateway, account, key, inbox)]
