"""`huginn down`, `status` and `ps`: the service that runs on a data directory."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import click

from actors.cli.asked import Asked, Failure, Json, verb
from actors.cli.processes import Process, descendants, look, start_ticks
from actors.cli.service_file import Service, is_claimed, running

if TYPE_CHECKING:
    from rich.console import RenderableType

_POLL_SECONDS = 0.05
_COMMAND_CHARS = 70


@click.command()
@verb
@click.option("--wait-s", type=click.IntRange(min=1), default=60, show_default=True)
def down(asked: Asked, wait_s: int) -> None:
    """Stop the service and wait until all of it is gone."""
    home = asked.config().home_path
    service = running(home)
    if service is None:
        if is_claimed(home):
            raise Failure(f"another huginn command works on {home}: wait for it", code="busy")
        asked.show({"stopped": False, "pid": None}, lambda: f"no service of {home} runs")
        return
    _terminate(service)
    deadline = time.monotonic() + wait_s
    while is_claimed(home) or look(service.pid) is not None:
        if time.monotonic() > deadline:
            raise Failure(
                f"the service (pid {service.pid}) still runs after {wait_s} s: wait longer, or "
                f"end it with `kill -9 {service.pid}`",
                code="still_running",
            )
        time.sleep(_POLL_SECONDS)
    asked.show({"stopped": True, "pid": service.pid}, lambda: f"stopped (pid {service.pid})")


@click.command()
@verb
@click.pass_context
def status(context: click.Context, asked: Asked) -> None:
    """Say whether the service runs and is ready; exit 1 if not."""
    from actors.cli.client import Client, base_url

    config = asked.config()
    service = running(config.home_path)
    base = base_url(asked)
    document: Json = {
        "running": False,
        "ready": False,
        "url": base,
        "home": str(config.home_path),
        "pid": None if service is None else service.pid,
        "shell": None if service is None else service.shell,
        "profile": None if service is None else service.profile,
        "uptime_s": None if service is None else (time.time_ns() - service.started_ns) // 10**9,
    }
    try:
        code, health = Client(base).health()
        document |= {"running": True, "ready": code == 200, "health": health}
    except Failure as failure:
        document |= {"running": service is not None, "health": None, "error": failure.message}

    def people() -> RenderableType:
        from actors.cli.output import facts

        hidden = {"health"}
        shown = [(name, value) for name, value in document.items() if name not in hidden]
        health = document["health"] or {}
        served = ", ".join(health.get("models", [])) or None
        told = [("models", served), ("health", health.get("status"))]
        trouble = [("reason", health["reason"])] if "reason" in health else []
        return facts([*shown, *told, *trouble])

    asked.show(document, people)
    if not document["ready"]:
        context.exit(1)


@click.command()
@verb
def ps(asked: Asked) -> None:
    """Show the rooms, the worker's counters, and the processes."""
    from actors.cli.client import connect

    shown = connect(asked).get("/huginn/v1/status")
    service = running(asked.config().home_path)
    processes = [] if service is None else _processes(service)
    document = {**shown, "processes": [_process(each) for each in processes]}
    asked.show(document, lambda: _ps_people(shown, processes))


def _terminate(service: Service) -> None:
    """SIGTERM to that very process, and not to one that has its number by now."""
    import os

    if not hasattr(os, "pidfd_open"):
        os.kill(service.pid, signal.SIGTERM)
        return
    try:
        handle = os.pidfd_open(service.pid)
    except ProcessLookupError:
        return
    try:
        # Asked with the handle open: from here on the number cannot change hands unnoticed.
        if start_ticks(service.pid) == service.start_ticks:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def _processes(service: Service) -> list[Process]:
    found = look(service.pid)
    return [] if found is None else [found, *descendants(service.pid)]


def _process(process: Process) -> Json:
    return {
        "pid": process.pid,
        "parent": process.parent,
        "command": process.command,
        "rss_bytes": process.rss_bytes,
        "cpu_s": round(process.cpu_seconds, 2),
    }


def _memo(muninn: Any) -> str:
    """What the memo holds, in one line."""
    if muninn["error"] is not None or not muninn["enabled"]:
        return f"off: {muninn['error'] or 'its file cannot be used, see the log'}"
    domains = muninn["domains"]
    known = sum(domain["invocations"] for domain in domains)
    evidence = sum(domain["evidence"] for domain in domains)
    return (
        f"{known} invocations with {evidence} evidence in {len(domains)} domains, "
        f"{muninn['quarantined']} quarantined"
    )


def _tier(counts: Any) -> str:
    """One tier of pages in a line: what lies there, and what went wrong if anything did."""
    from actors.cli.output import size

    line = f"{counts['pages']}, {size(counts['bytes'])}, {counts['hits']} hits"
    troubles = ("evicted", "refused", "dropped", "unroomed", "write_errors")
    seen = [f"{counts[name]} {name.replace('_', ' ')}" for name in troubles if counts.get(name)]
    return ", ".join([line, *seen, *(["paused"] if counts.get("paused") else [])])


def _ps_people(shown: Any, processes: list[Process]) -> RenderableType:
    from rich.console import Group

    from actors.cli.output import facts, size, table

    parts: list[RenderableType] = [facts([("rooms", ", ".join(shown["rooms"]))])]
    for worker in shown["workers"]:
        counters = dict(worker["stats"] or {"error": worker["error"]})
        tiers = counters.pop("tiers", {})
        parts += ["", facts([("worker", worker["model"]), *counters.items()])]
        parts += [facts([(f"{name} pages", _tier(tier)) for name, tier in sorted(tiers.items())])]
    parts += ["", facts([("memo", _memo(shown["muninn"]))])]
    rows = [
        (each.pid, size(each.rss_bytes), round(each.cpu_seconds, 1), each.command[:_COMMAND_CHARS])
        for each in processes
    ]
    if rows:
        parts += ["", table(("pid", "resident", "CPU s", "command"), rows)]
    return Group(*parts)
