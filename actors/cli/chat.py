"""`huginn chat`: a conversation. Ctrl-C stops the answer, not the program.

The conversation is a session of the service: each turn sends what is new and nothing else, so the
program keeps no history, and what it began can be gone on with later, or from an earlier turn.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from actors.cli.asked import Asked, Failure, Json, emit, verb

if TYPE_CHECKING:
    from actors.cli.answers import Answer
    from actors.cli.client import Client

_HELP = (
    "/system TEXT  set the system message    /reset     begin a new session\n"
    "/receipt      the last answer's cost    /context   the last answer's context\n"
    "/turns        the turns so far          /branch N  go on from turn N\n"
    "/session      which session this is     /exit      leave (or Ctrl-D)"
)


@click.command()
@verb
@click.option("--model", help="By default the first that is served.")
@click.option("--session", help="Go on with this session.")
@click.option("--new", is_flag=True, help="Begin a new session, which is the default.")
@click.option("--system", help="The system message.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="At most so many for each answer.")
@click.option("--temperature", type=float)
def chat(
    asked: Asked,
    *,
    model: str | None,
    session: str | None,
    new: bool,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
) -> None:
    """Talk with a model, one line a turn. /help lists what else can be said.

    With --json each line of standard input is a turn, and each answer one line of JSON.
    """
    from actors.cli.answers import served_model
    from actors.cli.client import connect

    if new and session:
        raise click.UsageError("--new begins a session, --session goes on with one")
    client = connect(asked)
    body = {
        "model": served_model(client, model),
        "max_output_tokens": max_tokens,
        "temperature": temperature,
    }
    _Conversation(asked, client, body, system, session).run()


class _Conversation:
    """Where the conversation is kept, and the last answer. `_parent` is the response to go on from
    once, where that is not the newest."""

    def __init__(
        self, asked: Asked, client: Client, body: Json, system: str | None, session: str | None
    ) -> None:
        self._asked = asked
        self._client = client
        self._body = body
        self._system = system
        self._session = session
        self._parent: str | None = None
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
                self._session = self._parent = self._last = None
            case "/session":
                self._show_session()
            case "/turns":
                self._show_turns()
            case "/branch":
                self._branch(rest.strip())
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
        from actors.cli.answers import Answer, respond, reuse_line

        answer = Answer()
        try:
            respond(self._client, self._question(line), answer, self._asked.pieces())
        except KeyboardInterrupt:
            # As in the service: half a turn is no turn.
            self._asked.note("\n(stopped; this turn is not kept)")
            return
        finally:
            if answer.session:
                self._session, self._parent = answer.session, None
        self._last = answer
        if self._asked.json:
            emit(answer.document())
            return
        print(flush=True)
        if answer.receipt is not None and self._typed:
            self._asked.note(f"({reuse_line(answer.receipt)})")

    def _question(self, line: str) -> Json:
        return {
            **self._body,
            "input": line,
            "instructions": self._system,
            "previous_response_id": self._parent,
            "huginn": {"session": self._session} if self._session else {},
        }

    def _branch(self, number: str) -> None:
        turns = [turn for turn in self._kept()["turns"] if str(turn["number"]) == number]
        if not turns or turns[0]["response"] is None or turns[0]["state"] != "finished":
            raise Failure(
                f"there is no finished turn {number!r:.20}: /turns lists them", code="no_turn"
            )
        self._parent = turns[0]["response"]
        self._asked.show({"branch": turns[0]}, lambda: f"the next turn goes on from turn {number}")

    def _show_session(self) -> None:
        kept = self._kept()
        self._asked.show(kept, lambda: f"session {kept['id']}, {kept['turns_count']} turns")

    def _show_turns(self) -> None:
        from actors.cli.sessions import turns_people

        kept = self._kept()
        self._asked.show(kept, lambda: turns_people(kept["turns"]))

    def _kept(self) -> Json:
        from actors.cli.client import segment

        if self._session is None:
            raise Failure("no turn was taken yet, so there is no session", code="no_session")
        found: Json = self._client.get(f"/huginn/v1/sessions/{segment(self._session)}")
        return found

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
