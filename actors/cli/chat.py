"""`huginn chat`: a conversation. Ctrl-C stops the answer, not the program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from actors.cli.asked import Asked, Failure, Json, emit, verb

if TYPE_CHECKING:
    from actors.cli.answers import Answer
    from actors.cli.client import Client

_HELP = (
    "/system TEXT  set the system message   /reset    begin anew\n"
    "/receipt      the last answer's cost    /context  the last answer's context\n"
    "/exit         leave (or Ctrl-D)"
)


@click.command()
@verb
@click.option("--model", help="By default the first that is served.")
@click.option("--system", help="The system message.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="At most so many for each answer.")
@click.option("--temperature", type=float)
def chat(
    asked: Asked,
    model: str | None,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
) -> None:
    """Talk with a model, one line a turn. /help lists what else can be said.

    With --json each line of standard input is a turn, and each answer one line of JSON.
    """
    from actors.cli.answers import served_model
    from actors.cli.client import connect

    client = connect(asked)
    body = {
        "model": served_model(client, model),
        "max_tokens": max_tokens,
        "temperature": temperature,
    }
    _Conversation(asked, client, body, system).run()


class _Conversation:
    """What was said, and the last answer."""

    def __init__(self, asked: Asked, client: Client, body: Json, system: str | None) -> None:
        self._asked = asked
        self._client = client
        self._body = body
        self._system = system
        self._messages: list[Json] = []
        self._last: Answer | None = None
        self._typed = sys.stdin.isatty() and not asked.json
        if self._typed:
            # Importing it gives input() line editing and history.
            import readline  # noqa: F401

            asked.note(f"{body['model']}: /help lists commands, Ctrl-C stops an answer")

    def run(self) -> None:
        while True:
            try:
                line = input("> ") if self._typed else _line()
                if line.strip() == "/exit":
                    return
                if line.strip():
                    self._take(line)
            except EOFError:
                return
            except KeyboardInterrupt:
                if not self._typed:
                    raise
                self._asked.note("\n(/exit or Ctrl-D leaves)")
            except Failure as failure:
                if not self._typed:
                    raise
                self._asked.note(f"huginn: {failure.message}")

    def _take(self, line: str) -> None:
        command, _, rest = line.strip().partition(" ")
        match command:
            case "/system":
                self._system = rest.strip() or None
            case "/reset":
                self._messages, self._last = [], None
            case "/receipt":
                self._show_receipt()
            case "/context":
                self._show_context()
            case "/help":
                self._asked.note(_HELP)
            case _ if command.startswith("/") and self._typed:
                self._asked.note(f"no command {command}\n{_HELP}")
            case _:
                self._turn(line)

    def _turn(self, line: str) -> None:
        from actors.cli.answers import CHAT, ask, reuse_line

        before = [{"role": "system", "content": self._system}] if self._system else []
        question = {"role": "user", "content": line}
        body = {**self._body, "messages": [*before, *self._messages, question]}
        try:
            answer = ask(self._client, CHAT, body, self._asked.pieces())
        except KeyboardInterrupt:
            # As in the service: half a turn is no turn.
            self._asked.note("\n(stopped; this turn is not kept)")
            return
        self._messages += [question, {"role": "assistant", "content": answer.text}]
        self._last = answer
        if self._asked.json:
            emit(answer.document())
            return
        print(flush=True)
        if answer.receipt is not None and self._typed:
            self._asked.note(f"({reuse_line(answer.receipt)})")

    def _show_receipt(self) -> None:
        from actors.cli.client import segment
        from actors.cli.why import receipt_people

        last = self._answered()
        receipt = self._client.get(f"/huginn/v1/receipts/{segment(last.id)}")
        self._asked.show(receipt, lambda: receipt_people(receipt))

    def _show_context(self) -> None:
        from actors.cli.client import segment
        from actors.cli.contexts import context_people

        last = self._answered()
        shown = self._client.get(f"/huginn/v1/contexts/{segment(last.context or '')}")
        self._asked.show(shown, lambda: context_people(shown))

    def _answered(self) -> Answer:
        if self._last is None:
            raise Failure("nothing was answered yet", code="no_answer")
        return self._last


def _line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")
