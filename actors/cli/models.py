"""`huginn models`: the profiles that are shipped, and whether their weights are here."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actors.cli.asked import Asked, Failure, Json, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

    from profiles.spec import ProfileSpec


@click.group()
def models() -> None:
    """List, fetch, look at, check and remove models."""


@models.command("list")
@verb
def list_(asked: Asked) -> None:
    """List every profile, and whether its weights are here and are the pinned ones."""
    from profiles import loader

    home = asked.config().home_path
    rows = [_row(loader.load(name), home) for name in loader.names()]

    def people() -> RenderableType:
        from actors.cli.output import size, table

        columns = (
            *("profile", "model", "weights", "verified", "size", "context", "streams"),
            *("reproducible", "instruct"),
        )
        return table(
            columns,
            [
                (
                    *(row[name] for name in ("profile", "model", "state", "verified")),
                    size(row["size_bytes"]),
                    *(row[name] for name in ("context_tokens", "streams", "reproducible")),
                    row["instruct"],
                )
                for row in rows
            ],
        )

    asked.show(rows, people)


@models.command()
@verb
@click.argument("name")
def pull(asked: Asked, name: str) -> None:
    """Fetch the weights of NAME, a profile or a model."""
    from actors.cli.fetch import ensure_weights
    from profiles import weights
    from store.files import make_directory

    spec = _spec(name)
    home = asked.config().home_path
    make_directory(home)
    path = ensure_weights(spec, home, asked)
    terms = weights.terms_path(spec, home)
    document = {
        "profile": spec.name,
        "path": str(path),
        "sha256": spec.weights.sha256,
        "terms": str(terms) if terms is not None and terms.exists() else None,
    }
    asked.show(document, lambda: f"{spec.model.name} is here, verified: {path}")


@models.command()
@verb
@click.argument("name")
def show(asked: Asked, name: str) -> None:
    """Show everything that the profile NAME pins."""
    import msgspec

    from profiles import weights

    spec = _spec(name)
    home = asked.config().home_path
    document = {
        "profile": spec.name,
        "path": str(weights.weights_path(spec, home)),
        "state": _state(spec, home),
        **{
            part: msgspec.to_builtins(getattr(spec, part))
            for part in ("weights", "model", "tokenizer", "runtime")
        },
    }

    def people() -> RenderableType:
        from rich.console import Group

        from actors.cli.output import facts

        plain = [(key, value) for key, value in document.items() if not isinstance(value, dict)]
        parts: list[RenderableType] = [facts(plain)]
        for key, value in document.items():
            if isinstance(value, dict):
                parts += ["", key, facts((f"  {name}", each) for name, each in value.items())]
        return Group(*parts)

    asked.show(document, people)


@models.command()
@verb
@click.argument("name")
def verify(asked: Asked, name: str) -> None:
    """Read the weights of NAME anew, all of them, and compare them with what is pinned."""
    from profiles import weights

    spec = _spec(name)
    path = weights.weights_path(spec, asked.config().home_path)
    if not path.exists():
        raise _absent(spec, path)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != spec.weights.sha256:
        raise Failure(
            f"{path} has SHA-256 {found}, pinned is {spec.weights.sha256}: `huginn models rm "
            f"{spec.name} --yes`, then `huginn models pull {spec.name}`",
            code="profile",
        )
    document = {"profile": spec.name, "path": str(path), "sha256": found, "verified": True}
    asked.show(document, lambda: f"{path} is what {spec.name} pins ({found})")


@models.command()
@verb
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(asked: Asked, name: str, yes: bool) -> None:
    """Remove the weights of NAME and what was kept beside them."""
    from actors.cli.service_file import running
    from profiles import weights

    spec = _spec(name)
    home = asked.config().home_path
    path = weights.weights_path(spec, home)
    service = running(home)
    if service is not None and _spec(service.profile).weights.file == spec.weights.file:
        raise Failure(
            f"the service (pid {service.pid}) uses them: `huginn down` first", code="busy"
        )
    if not path.exists():
        raise _absent(spec, path)
    if not yes:
        if asked.json or not sys.stdin.isatty():
            raise click.UsageError("removing weights needs --yes where nobody can be asked")
        click.confirm(f"Remove {path}?", abort=True, err=True)
    path.unlink()
    _remove_company(path, weights.terms_path(spec, home))
    asked.show({"profile": spec.name, "removed": str(path)}, lambda: f"removed {path}")


def _remove_company(path: Path, terms: Path | None) -> None:
    """The stamp and the lock of a weights file, and the terms that came with it."""
    import shutil

    for beside in path.parent.glob(f".{path.name}.*"):
        beside.unlink(missing_ok=True)
    if terms is not None:
        shutil.rmtree(terms.parent, ignore_errors=True)


def _row(spec: ProfileSpec, home: Path) -> Json:
    state = _state(spec, home)
    return {
        "profile": spec.name,
        "model": spec.model.name,
        "file": spec.weights.file,
        "state": state,
        "present": state != "absent",
        "verified": None if state == "absent" else state == "present",
        "size_bytes": spec.weights.size_bytes,
        "context_tokens": spec.runtime.context_tokens,
        "streams": spec.runtime.streams,
        "reproducible": spec.runtime.reproducible_generation,
        "instruct": spec.model.instruct,
    }


def _state(spec: ProfileSpec, home: Path) -> str:
    """present, absent, or other: a file that is not the pinned one."""
    from profiles import weights
    from protocol.errors import ProfileFault

    path = weights.weights_path(spec, home)
    if not path.exists():
        return "absent"
    try:
        weights.verify(path, spec.weights.sha256)
    except ProfileFault:
        return "other"
    return "present"


def _spec(name: str) -> ProfileSpec:
    """The profile of that name or file, or the first profile of that model."""
    from profiles import loader

    if name not in loader.names() and not name.endswith(".toml"):
        # The default before others: profiles of one model share its weights.
        for each in sorted(loader.names(), key=lambda each: each != loader.DEFAULT):
            spec = loader.load(each)
            if spec.model.name == name:
                return spec
    return loader.load(name)


def _absent(spec: ProfileSpec, path: Path) -> Failure:
    return Failure(f"{path} is not here: `huginn models pull {spec.name}`", code="absent")
