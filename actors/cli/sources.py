"""`huginn source` and `huginn emit`: where events come from, and telling one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from actors.cli.asked import Asked, Json, emit, verb

if TYPE_CHECKING:
    from rich.console import RenderableType

    from actors.cli.client import Client

_SOURCES: Final = "/huginn/v1/sources"
_EVENTS: Final = "/huginn/v1/events"
_GAP: Final = "EventStreamGap"
_NS_PER_S: Final = 10**9


@click.group()
def source() -> None:
    """List, add, read and remove sources of events."""


@source.command()
@verb
def ls(asked: Asked) -> None:
    """List the sources that this key may observe."""
    from actors.cli.client import connect

    rows = connect(asked).get(_SOURCES)["data"]

    def people() -> RenderableType:
        from actors.cli.output import table

        columns = ("name", "state", "first", "head", "parked", "equivocations", "reason", "id")
        return table(columns, [[row[name] for name in columns] for row in rows])

    asked.show(rows, people)


@source.command()
@verb
@click.argument("name")
@click.option("--url", help="Follow it from there: …/huginn/v1/sources/NAME.")
@click.option("--public-key", help="With --url: the key of its entries, in base64.")
@click.option("--api-key-file", help="With --url: the file in remote-keys/ with the key to show.")
def add(
    asked: Asked, name: str, url: str | None, public_key: str | None, api_key_file: str | None
) -> None:
    """Make the source NAME, or follow it from another installation.

    Who may be asked is the operator's to say: --api-key-file names a file in the data directory's
    remote-keys/ (mode 0600) with three words, the API key, the origin that it is shown to, such as
    http://far:7717, and the namespace whose sources may use it.
    """
    from actors.cli.client import connect

    body = {"name": name, "url": url, "public_key": public_key, "api_key_file": api_key_file}
    made = connect(asked).post(_SOURCES, body)

    def people() -> RenderableType:
        from actors.cli.output import facts

        return facts((field, made[field]) for field in ("name", "state", "head", "id"))

    asked.show(made, people)


@source.command()
@verb
@click.argument("name")
def rm(asked: Asked, name: str) -> None:
    """Forget the source NAME and its log."""
    from actors.cli.client import connect, segment

    done = connect(asked).delete(f"{_SOURCES}/{segment(name)}")
    asked.show(done, lambda: f"removed {name}")


@source.command()
@verb
@click.argument("name", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--after", help="From this number on, or, without NAME, from this cursor on.")
@click.option("-n", "--lines", type=click.IntRange(1), help="At most so many.")
def tail(
    asked: Asked, name: str | None, follow: bool, after: str | None, lines: int | None
) -> None:
    """Print the events of NAME, or of all sources in their order; one line of JSON each with
    --json. Without --after from the beginning."""
    from actors.cli.client import connect, segment

    client = connect(asked)
    path = _EVENTS if name is None else f"{_SOURCES}/{segment(name)}/events"
    start = after or ("beginning" if name is None else "0")
    try:
        if follow:
            _follow(asked, client, f"{path}?after={segment(start)}", lines)
        else:
            _pages(asked, client, path, start, lines)
    except KeyboardInterrupt:
        return


def _follow(asked: Asked, client: Client, path: str, lines: int | None) -> None:
    with client.tail(path) as stream:
        for count, item in enumerate(stream.events(), 1):
            _print(asked, item)
            if count == lines:
                return


def _pages(asked: Asked, client: Client, path: str, start: str, lines: int | None) -> None:
    """What there is now, page by page."""
    from actors.cli.client import segment

    left = lines
    while True:
        limit = 1000 if left is None else min(left, 1000)
        page = client.get(f"{path}?after={segment(start)}&limit={limit}")
        items = ([page["gap"]] if page.get("gap") else []) + page["data"]
        if not items:
            return
        for item in items[:left]:
            _print(asked, item)
        start = page.get("cursor") or str(items[-1].get("seq", items[-1].get("to")))
        if left is not None:
            left -= len(items)
            if left <= 0:
                return


def _print(asked: Asked, item: Json) -> None:
    if asked.json:
        emit(item)
        return
    from actors.cli.output import printable

    # One line each: an event says what a stranger wrote.
    print(printable(_line(item)).replace("\n", "\ufffd"), flush=True)


def _line(item: Json) -> str:
    if item.get("type") == _GAP:
        return (
            f"{item['source']}  {item['count']} events are not here: {item['from']} … {item['to']} "
            f"({item['cause']})"
        )
    when = datetime.fromtimestamp(item["hlc"] // _NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S")
    stages = f"  {item['from']} → {item['to']}" if item["from"] else ""
    body = f"  {json.dumps(item['body'], ensure_ascii=False)}" if item["body"] else ""
    place = f"{item['source']} {item['seq']}"
    return f"{place}  {when}  {item['kind']}  {item['subject']}{stages}{body}"


@click.command("emit")
@verb
@click.argument("source")
@click.argument("kind")
@click.argument("subject")
@click.option("--field", "fields", multiple=True, help="k=text, or k:=JSON; repeatable.")
@click.option("--from", "before", help="The stage before, with --to.")
@click.option("--to", "after", help="The stage after, with --from.")
@click.option("--key", help="Sent again with the same key, it is the same event.")
def emit_event(
    asked: Asked,
    *,
    source: str,
    kind: str,
    subject: str,
    fields: tuple[str, ...],
    before: str | None,
    after: str | None,
    key: str | None,
) -> None:
    """Tell the event KIND about SUBJECT to SOURCE. Answers when it is durable.

    huginn emit builds MergeSucceeded 1122 --field merge_commit=9f3c
    """
    from actors.cli.client import connect, segment

    event = {
        "kind": kind,
        "subject": subject,
        "body": _body(kind, fields),
        "from": before,
        "to": after,
    }
    more = {} if key is None else {"Idempotency-Key": key}
    path = f"{_SOURCES}/{segment(source)}/events"
    done = connect(asked).post(path, event, more)
    asked.show(done, lambda: f"{source} {done['seq']}  {done['id']}")


def _body(kind: str, fields: tuple[str, ...]) -> dict[str, Any]:
    """The fields as a body. A number of the taxonomy may be written as any text is."""
    from protocol.events import KINDS

    known = KINDS.get(kind)
    integers = {field.name for field in known.fields if field.kind is int} if known else set()
    body: dict[str, Any] = {}
    for field in fields:
        name, equals, text = field.partition("=")
        if not equals or not name.rstrip(":"):
            raise click.UsageError(f"--field is k=text or k:=JSON, not {field!r}")
        if name.endswith(":"):
            try:
                body[name[:-1]] = json.loads(text)
            except ValueError as error:
                raise click.UsageError(f"--field {field!r}: {error}") from error
        elif name in integers and text.lstrip("-").isdigit():
            body[name] = int(text)
        else:
            body[name] = text
    return body
