"""Checks of the service: its port, who can reach Ray's ports, and a streamed answer of its own."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from actors.cli.asked import Asked
from actors.cli.checks import Check, Finding

if TYPE_CHECKING:
    from actors.cli.service_file import Service
    from actors.config import Config

_SECONDS_MAX: Final = 60.0
_PORTS_SHOWN: Final = 6


def service_checks(asked: Asked, config: Config, service: Service | None) -> list[Check]:
    """The checks in the order in which they are shown; `service` is the one that runs."""
    if service is None:
        return [
            ("port", lambda: _port(config)),
            ("service", lambda: Finding("service", "ok", "does not run: `huginn up` starts it")),
        ]
    return [
        ("service", lambda: _health(service)),
        ("open ports", lambda: _open_ports(service)),
        ("streaming", lambda: _stream(asked)),
    ]


def _port(config: Config) -> Finding:
    where = f"{config.host}:{config.port}"
    with socket.socket() as probe:
        probe.settimeout(1.0)
        taken = probe.connect_ex(("127.0.0.1", config.port)) == 0
    if taken and config.port:
        cure = "choose another with --port or HUGINN_PORT, or stop what listens there"
        return Finding("port", "fail", f"{where} is another program's", cure)
    return Finding("port", "ok", f"{where} is free")


def _health(service: Service) -> Finding:
    from actors.cli.client import Client

    status, body = Client(service.url, seconds_max=_SECONDS_MAX).health()
    detail = f"pid {service.pid}, {service.shell}, {service.url}: {body.get('status')}"
    if status != 200:
        return Finding("service", "warn", detail, "wait; its log says what it does")
    if body.get("reason"):
        return Finding("service", "warn", f"{detail}: {body['reason']}", "free some space")
    return Finding("service", "ok", detail)


def _open_ports(service: Service) -> Finding:
    """Ray listens on every interface whatever it is told; the token is what guards it."""
    from actors.cli.processes import descendants, ports_on_all_interfaces

    pids = [service.pid, *(process.pid for process in descendants(service.pid))]
    ports = ports_on_all_interfaces(pids)
    if not ports:
        return Finding("open ports", "ok", "none is open to other machines")
    shown = ", ".join(map(str, ports[:_PORTS_SHOWN])) + (" …" if len(ports) > _PORTS_SHOWN else "")
    cure = "block them in a firewall where others reach this machine; a token guards Ray's"
    return Finding("open ports", "warn", f"{len(ports)} on all interfaces: {shown}", cure)


def _stream(asked: Asked) -> Finding:
    from actors.cli.answers import CHAT, ask, served_model
    from actors.cli.client import connect

    client = connect(asked, seconds_max=_SECONDS_MAX)
    body = {
        "model": served_model(client, None),
        "messages": [{"role": "user", "content": "Say yes."}],
        "max_tokens": 1,
        "temperature": 0,
    }
    answer = ask(client, CHAT, body, lambda piece: None)
    if answer.finish is None or not answer.usage:
        return Finding("streaming", "fail", "the stream has no proper end", "huginn down and up")
    return Finding("streaming", "ok", f"{answer.id}: {answer.usage['prompt_tokens']} tokens in")
