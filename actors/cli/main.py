"""The group `huginn`: its verbs, and the one place where their failures become words and exits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from actors import VERSION
from actors.cli.asked import Asked, Failure, report, verb
from actors.cli.audit import audit
from actors.cli.chat import chat
from actors.cli.config import config
from actors.cli.contexts import ctx
from actors.cli.doctor import doctor
from actors.cli.erase import erase, retention
from actors.cli.experiment import experiment
from actors.cli.fsck import fsck
from actors.cli.handles import attenuate, list_handles, own_handle, take_back
from actors.cli.keys import key
from actors.cli.ledger import ledger
from actors.cli.matrix import matrix
from actors.cli.models import models
from actors.cli.publications import publications, publish, unpublish
from actors.cli.run import run
from actors.cli.service import down, ps, status
from actors.cli.sessions import session
from actors.cli.sources import emit_event, source
from actors.cli.up import up
from actors.cli.verify import verify
from protocol.errors import HuginnError

FAILED: Final = 1
USAGE: Final = 2


class Verbs(click.Group):
    """A group whose failures are one line on standard error and an exit status."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        given = sys.argv[1:] if args is None else list(args)
        if not standalone_mode:
            return super().main(given, prog_name, complete_var, standalone_mode=False, **extra)
        as_json = "--json" in (given[: given.index("--")] if "--" in given else given)
        try:
            status = super().main(given, prog_name, complete_var, standalone_mode=False, **extra)
        except click.UsageError as error:
            where = "" if error.ctx is None else f" (see `{error.ctx.command_path} --help`)"
            report(Failure(f"{error.format_message()}{where}", code="usage"), as_json=as_json)
            sys.exit(USAGE)
        except click.Abort:
            report(Failure("interrupted", code="interrupted"), as_json=as_json)
            sys.exit(FAILED)
        except (Failure, HuginnError, OSError, click.ClickException) as error:
            if isinstance(error, BrokenPipeError):
                # Whoever read our output is done with it; nothing is left to tell.
                sys.stdout = None
                sys.exit(FAILED)
            report(_failure(error), as_json=as_json)
            sys.exit(FAILED)
        sys.exit(status if isinstance(status, int) else 0)


def _failure(error: Exception) -> Failure:
    if isinstance(error, Failure):
        return error
    if isinstance(error, HuginnError):
        return Failure(error.message, code=error.code)
    return Failure(str(error) or type(error).__name__, code="system")


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Huginn: a model's context as a build artefact, served on this machine.

    `huginn up` starts it, `huginn run "Why is the sky blue?"` asks it, `huginn doctor` says what
    is wrong and how to cure it.
    """


@click.command()
@verb
def version(asked: Asked) -> None:
    """Print the version."""
    if asked.json:
        asked.show({"version": VERSION}, str)
    else:
        print(f"huginn {VERSION}")


for command in (
    *(up, down, status, ps, models, run, chat, ctx, session, key, doctor, fsck, config, version),
    *(matrix, experiment, verify, publish, publications, unpublish, source, emit_event),
    audit,
    ledger,
    erase,
    retention,
):
    main.add_command(command)

for command in (own_handle, attenuate, list_handles, take_back):
    key.add_command(command)

if __name__ == "__main__":
    main(prog_name="huginn")
