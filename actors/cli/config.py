"""`huginn config`: what a service would run with, where it comes from, and a file to begin with."""

from __future__ import annotations

import os

import click

from actors.cli.asked import Asked, Failure, Json, verb


@click.group()
def config() -> None:
    """Look at the configuration, or begin one."""


@config.command()
@verb
@click.option("--origin", is_flag=True, help="Say where each value came from.")
def show(asked: Asked, origin: bool) -> None:
    """Print every key and its value."""
    import msgspec

    origins = asked.origins()
    values: Json = msgspec.structs.asdict(origins.config)
    document: Json = values
    if origin:
        document = {
            name: {"value": value, "origin": origins.key_to_origin[name]}
            for name, value in values.items()
        }

    def people() -> object:
        from actors.cli.output import facts, table

        if not origin:
            return facts(values.items())
        rows = [(name, value, origins.key_to_origin[name]) for name, value in values.items()]
        # Text, so that a number stands where it stands for every other key.
        return table(("key", "value", "origin"), [(n, str(v), o) for n, v, o in rows])

    asked.show(document, people)  # type: ignore[arg-type]


@config.command()
@verb
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(asked: Asked, force: bool) -> None:
    """Write a commented huginn.toml into the data directory."""
    from actors.config import SAMPLE
    from store.files import make_directory

    home = asked.config().home_path
    path = home / "huginn.toml"
    if path.exists() and not force:
        raise Failure(f"{path} is there already: edit it, or pass --force", code="exists")
    make_directory(home)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(SAMPLE, encoding="utf-8")
    os.replace(fresh, path)
    asked.show({"path": str(path)}, lambda: f"wrote {path}")
