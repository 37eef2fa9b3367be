"""`huginn doctor`: what is wrong here, and the cure for it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from actors.cli.asked import Asked, verb
from actors.cli.checks import examine, healthy

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command()
@verb
@click.pass_context
def doctor(context: click.Context, asked: Asked) -> None:
    """Check the machine, the model and the service; exit 1 if something fails."""
    from actors.cli.machine_checks import machine_checks
    from actors.cli.model_checks import model_checks
    from actors.cli.service_checks import service_checks
    from actors.cli.service_file import running

    config = asked.config()
    service = running(config.home_path)
    if service is not None:
        # What runs is what is looked at, whatever the next start would take.
        flags = {"profile": service.profile, "shell": service.shell}
        config = asked.origins(flags).config
    checks = [
        *machine_checks(config),
        *model_checks(config),
        *service_checks(asked, config, service),
    ]
    findings = examine(checks)
    document = {"ok": healthy(findings), "checks": [asdict(each) for each in findings]}

    def people() -> RenderableType:
        from actors.cli.output import table

        rows = [(each.state, each.name, each.detail, each.cure or "") for each in findings]
        return table(("", "check", "found", "cure"), rows)

    asked.show(document, people)
    if not document["ok"]:
        context.exit(1)
