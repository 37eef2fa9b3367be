"""Building rooms from a plan: the one place that knows which class and which files a room has.

Both shells build rooms here; they differ in where a room runs and how messages reach it.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from actors import VERSION
from actors.assembler.contracts import ProfileContracts
from actors.assembler.room import AssemblerRoom
from actors.authority.room import AuthorityRoom
from actors.config import Config
from actors.gateway.caller import Ports
from actors.gateway.front import FrontRoom
from actors.gateway.limits import Limits
from actors.gateway.models import ServedModel
from actors.gateway.readiness import Readiness
from actors.gateway.room import Gateway
from actors.muninn.ports import NothingHeld, Uncharged
from actors.muninn.room import MuninnRoom
from actors.ports import Clock, Entropy, Mailbox
from actors.room import Room, World
from actors.ropes.room import RopesRoom
from actors.runtime.plan import Plan, database_path, room_signer
from actors.runtime.world import SystemClock, SystemEntropy
from actors.worker.backends.llama import LlamaBackend
from actors.worker.backends.llama_library import build_digest
from actors.worker.backends.llama_tokenizer import LlamaTokenizer
from actors.worker.limits import WorkerLimits
from actors.worker.room import WorkerRoom
from actors.worker.tiers import Tiers
from actors.worker.writer import PageWriter
from profiles import loader, weights
from profiles.profile import RuntimeProfile
from protocol.errors import ContentError, FaultError, ProfileFault, StoreFault
from protocol.grammars import GRAMMARS, grammar
from protocol.ids import ProfileId
from protocol.messages.worker import ModelInfo
from protocol.record import encode_record
from protocol.tokenizer import Tokenizer
from store.blobs import BlobFiles
from store.keys import KeyStore
from store.pages.disk import PageStore
from store.pages.header import domain_digest
from store.pages.memory import MemoryPageTier
from store.pages.seal import DOMAIN_KEY_BYTES
from store.sqlite import Database
from store.sqlite_objects import SqliteObjectStore
from store.sqlite_tables import SqliteTables

log = logging.getLogger("huginn.runtime")
_SECOND_NS: Final = 10**9


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
            root = room_signer(home, "root", entropy)
            return AuthorityRoom(world, _tables(plan, name), root)
        case "ropes":
            database = Database(database_path(home, name))
            return RopesRoom(world, SqliteObjectStore(database, BlobFiles(home / "blobs")))
        case "assembler":
            contracts = profile_contracts(bound_profile(plan), vocabulary(plan))
            return AssemblerRoom(
                world, {contracts.name: contracts}, engine_build=f"huginn {VERSION}"
            )
        case "muninn":
            return _muninn(plan, world)
        case "worker":
            return _worker(plan, world)
        case _:
            return _gateway(plan, world)


def bound_profile(plan: Plan) -> RuntimeProfile:
    """The configured profile on this machine; raises ProfileFault for weights or libraries that
    are not what it pins."""
    spec = loader.load(plan.config.profile)
    path = weights.weights_path(spec, plan.config.home_path)
    return loader.bind(spec, path, build_digest())


def vocabulary(plan: Plan) -> Tokenizer:
    """The vocabulary of the configured weights, without the model."""
    spec = loader.load(plan.config.profile)
    return LlamaTokenizer(weights.weights_path(spec, plan.config.home_path))


def profile_contracts(profile: RuntimeProfile, tokenizer: Tokenizer) -> ProfileContracts:
    """What `profile` brings to an assembly. Grammars that its vocabulary cannot write are left
    out; its own must be there (ProfileFault)."""
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


def _muninn(plan: Plan, world: World) -> MuninnRoom:
    """The memo. A file that cannot be used disables it, and nothing else (DRV-5)."""
    tables: SqliteTables | None = None
    try:
        tables = _tables(plan, "muninn")
    except FaultError as error:
        log.warning("nothing is remembered of derivations: %s", error)
    profile = bound_profile(plan)
    proven = profile.reproducible_generation
    return MuninnRoom(
        world,
        tables,
        # Nobody looks yet, so nobody is asked who holds what, and nothing is charged.
        NothingHeld(),
        Uncharged(),
        reproducible={ProfileId.of(encode_record(profile))} if proven else (),
    )


def page_tiers(config: Config, clock: Clock, entropy: Entropy) -> Tiers:
    """Where a worker keeps prefix states: in memory, and under `pages` in the data directory,
    sealed with a key for each domain. They are derived: a directory that cannot be used costs
    recomputation, never the start."""
    host = MemoryPageTier(clock, config.host_bytes)
    keys = KeyStore(config.home_path / "keys", entropy=entropy.draw)

    def key_for(domain: str) -> bytes:
        return keys.secret(f"pages-{domain_digest(domain).hex()}", DOMAIN_KEY_BYTES)

    try:
        disk = PageStore(config.home_path / "pages", clock, key_for, config.disk_bytes)
    except StoreFault as error:
        log.warning("no prefix states are kept on disk: %s", error)
        return Tiers(host)
    writer = PageWriter(disk, host).start() if config.publish_pages else None
    return Tiers(host, disk, writer)


def _worker(plan: Plan, world: World) -> WorkerRoom:
    profile = bound_profile(plan)
    spec = loader.load(plan.config.profile)
    path = weights.weights_path(spec, plan.config.home_path)
    backend = LlamaBackend(path, profile, threads_batch=plan.config.threads_prefill)
    return WorkerRoom(
        world,
        backend,
        ProfileId.of(encode_record(profile)),
        model_info(profile),
        _tables(plan, "worker").keyed("receipts"),
        profile_name=profile.name,
        tiers=page_tiers(plan.config, world.clock, world.entropy),
        limits=WorkerLimits(
            chunk_tokens=profile.chunk_tokens,
            reproducible=profile.reproducible_generation,
            states_equal=profile.equality == "bitwise",
            receipts_kept=plan.config.receipts_max,
        ),
        process=os.getpid(),
        engine_build=f"{profile.backend} {profile.build_digest.hex()}",
    )


def _gateway(plan: Plan, world: World) -> FrontRoom:
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
    )
    keys = _tables(plan, "gateway").keyed("keys")
    gateway = Gateway(ports, keys, [model], version=VERSION, limits=limits)
    return FrontRoom(world, gateway, host=config.host, port=config.port)
