"""Configuration: one TOML file, `HUGINN_*` over it, flags over both; each value knows its origin.

    [huginn]
    port = 7717

Unknown keys are refused by name. The data directory is `$HUGINN_HOME`, or
`$XDG_DATA_HOME/huginn`; the file is `huginn.toml` inside it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.errors import ContentError
from protocol.limits import RENDER_TOKENS_MAX, RENDER_TOKENS_MIN

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_AT_LEAST_ONE: Final = (
    "threads_prefill",
    "answer_tokens_default",
    "answer_seconds_max",
    "ping_seconds",
    "receipts_max",
    "turn_lease_seconds",
    "session_idle_days",
    "events_max",
    "event_days_max",
    "unseen_events_max",
)
LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical")


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What a service runs with. Sizes are tokens or bytes as named; times are seconds.

    `threads_prefill` changes no bit of a prefix state; decoding uses the profile's own count.
    `settle_answers` false leaves answers to be advanced by the next turn. `host_bytes` and
    `disk_bytes` bound the prefix states that are kept, each worker's in memory and those on disk,
    and of either no domain takes more than `domain_percent_max` percent: up to its share, it can
    push out what others have; beyond that, only its own. `publish_pages` false reads what is on
    disk and writes nothing. `reminder_tokens` bounds what a turn is told of events; of each source
    `events_max` are kept, none older than `event_days_max`, and up to `unseen_events_max` as long
    as a session has not seen them. `requests_open_max` and `requests_minute_max` are for each
    principal, 0 for no limit.
    """

    home: str
    host: str = "127.0.0.1"
    port: int = 7717
    profile: str = "gemma3-270m-exact"
    threads_prefill: int = 1
    shell: str = "ray"
    answer_tokens_default: int = 512
    answer_seconds_max: int = 600
    ping_seconds: int = 10
    receipts_max: int = 10_000
    settle_answers: bool = True
    host_bytes: int = 512 * 2**20
    disk_bytes: int = 8 * 2**30
    domain_percent_max: int = 100
    publish_pages: bool = True
    reminder_tokens: int = 2048
    turn_lease_seconds: int = 30
    session_idle_days: int = 30
    events_max: int = 100_000
    event_days_max: int = 90
    unseen_events_max: int = 1_000_000
    requests_open_max: int = 48
    requests_minute_max: int = 60_000
    log_level: str = "warning"

    @property
    def home_path(self) -> Path:
        return Path(self.home)


class Origins(msgspec.Struct, frozen=True):
    """A configuration, and for each of its keys where the value came from."""

    config: Config
    key_to_origin: dict[str, str]


def default_home(environment: Mapping[str, str]) -> Path:
    """`$HUGINN_HOME`, else `$XDG_DATA_HOME/huginn`, else `~/.local/share/huginn`."""
    if environment.get("HUGINN_HOME"):
        return Path(environment["HUGINN_HOME"]).expanduser().absolute()
    data = environment.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser().absolute() / "huginn"


def load(
    flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> Origins:
    """The configuration of this start. `flags` with the value None are as if not given.

    Raises ContentError that names the key, where it stands and what it should be; a `host` beyond
    loopback is allowed, since no request is served without a key.
    """
    environment = os.environ if environment is None else environment
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    # First of all: the file is the one of the data directory that a flag may name.
    values: dict[str, Any] = {"home": str(given.get("home") or default_home(environment))}
    origins = {field: "default" for field in Config.__struct_fields__}
    if environment.get("HUGINN_HOME"):
        origins["home"] = "HUGINN_HOME"
    file = Path(values["home"]) / "huginn.toml"
    _take(values, origins, _from_file(file), str(file))
    for field in Config.__struct_fields__:
        name = f"HUGINN_{field.upper()}"
        if field != "home" and environment.get(name):
            _take(values, origins, {field: environment[name]}, name)
    _take(values, origins, given, "flag")
    return Origins(_convert(values, origins), origins)


def _from_file(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ContentError(f"{path} is not TOML: {error}") from error
    table = document.pop("huginn", {})
    if document or not isinstance(table, dict):
        raise ContentError(f"{path}: everything belongs under [huginn]; found {sorted(document)}")
    if "home" in table:
        raise ContentError(f"{path}: home is where this file is: set HUGINN_HOME, or the flag")
    return table


def _take(
    values: dict[str, Any], origins: dict[str, str], more: Mapping[str, Any], origin: str
) -> None:
    for key, value in more.items():
        if key not in Config.__struct_fields__:
            known = ", ".join(Config.__struct_fields__)
            raise ContentError(f"{origin}: unknown key {key!r}; known keys: {known}")
        values[key] = value
        origins[key] = origin


def _convert(values: dict[str, Any], origins: dict[str, str]) -> Config:
    converted: dict[str, Any] = {}
    for field in msgspec.structs.fields(Config):
        if field.name in values:
            try:
                # Not strict: an environment variable is text whatever the field is.
                converted[field.name] = msgspec.convert(
                    values[field.name], field.type, strict=False
                )
            except msgspec.ValidationError as error:
                raise ContentError(f"{origins[field.name]}: {field.name}: {error}") from error
    config = Config(**converted)
    if not 0 <= config.port <= 65535:
        raise ContentError(f"{origins['port']}: port {config.port} is not in 0 … 65535")
    for name in _AT_LEAST_ONE:
        if getattr(config, name) < 1:
            raise ContentError(f"{origins[name]}: {name} is {getattr(config, name)}, at least 1")
    for name in ("host_bytes", "disk_bytes", "requests_open_max", "requests_minute_max"):
        if getattr(config, name) < 0:
            kind = "bytes, 0 for none" if name.endswith("bytes") else "requests, 0 for no limit"
            raise ContentError(f"{origins[name]}: {name} is a number of {kind}")
    if not RENDER_TOKENS_MIN <= config.reminder_tokens <= RENDER_TOKENS_MAX:
        raise ContentError(
            f"{origins['reminder_tokens']}: reminder_tokens is {config.reminder_tokens}, "
            f"{RENDER_TOKENS_MIN} to {RENDER_TOKENS_MAX}"
        )
    if not 1 <= config.domain_percent_max <= 100:
        raise ContentError(
            f"{origins['domain_percent_max']}: domain_percent_max is {config.domain_percent_max}, "
            "1 … 100 percent of host_bytes and of disk_bytes"
        )
    if config.log_level not in LOG_LEVELS:
        known = ", ".join(LOG_LEVELS)
        raise ContentError(f"{origins['log_level']}: log_level is one of {known}")
    if config.shell not in ("ray", "embedded"):
        raise ContentError(f"{origins['shell']}: shell {config.shell!r} is not ray or embedded")
    return config


SAMPLE: Final = """\
# Every key with its default. Uncomment what you change. Over this file goes HUGINN_<KEY>, over
# that a flag. `huginn config show --origin` says where each value came from.
[huginn]
# host = "127.0.0.1"
# port = 7717
# profile = "gemma3-270m-exact"     # a name that `huginn models list` shows, or a path to a TOML
# threads_prefill = 1               # prefill bits do not depend on it
# shell = "ray"                     # or "embedded"
# answer_tokens_default = 512       # when a request names no max_tokens
# answer_seconds_max = 600
# ping_seconds = 10                 # between two keep-alive comments of a stream
# receipts_max = 10000              # of each domain
# settle_answers = true
# host_bytes = 536870912            # prefix states in memory, beside those of live conversations
# disk_bytes = 8589934592           # prefix states under pages/, which may be deleted at any time
# domain_percent_max = 100          # of either, the most that one domain takes
# publish_pages = true              # false: write none
# reminder_tokens = 2048            # what a turn is told of events; past it they are counted
# turn_lease_seconds = 30           # an open turn that is not renewed for so long has crashed
# session_idle_days = 30            # then a session is collected, and its marks archived
# events_max = 100000               # kept of each source
# event_days_max = 90
# unseen_events_max = 1000000       # kept beyond both as long as a session has not seen them
# requests_open_max = 48            # of each principal, at once; 0: no limit
# requests_minute_max = 60000       # of each principal, a minute, a sixth of them at once
# log_level = "warning"
"""
