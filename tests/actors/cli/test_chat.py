"""`huginn chat`: turns as lines, and on a real terminal, where Ctrl-C stops the answer alone."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fake_rooms import Service
from tests.happenings import QUESTION, happened, newcomer, prompt_text, prompt_types
from tests.huginn import huginn, reach, refused
from tests.scripted_worker import ANSWER, Script


def turns(text: str, service: Service, home: Path, *words: str) -> list[dict[str, object]]:
    said = huginn("chat", "--json", *words, home=home, given=text, **reach(service))
    assert said.exit_code == 0, said.output
    return [json.loads(line) for line in said.stdout.splitlines()]


@pytest.mark.req("SRV-5", "EVT-7")
def test_turns_build_on_each_other(service: Service, home: Path) -> None:
    first, second = turns("hi\n\nand?\n", service, home, "--temperature", "0")
    assert first["content"] == second["content"] == ANSWER
    roles = [part.role for part in service.worker.asked[-1].segments]
    assert roles == ["user", "model", "user"]
    receipt = second["receipt"]
    assert isinstance(receipt, dict)
    assert receipt["reused_tokens"] > 0


def test_commands(service: Service, home: Path) -> None:
    text = "/system Be brief.\nhi\n/receipt\n/context\n/reset\n/system\nagain\n/exit\nnever\n"
    answer, receipt, context, again = turns(text, service, home)
    assert receipt["response_id"] == answer["id"]
    assert context["context_id"] == answer["context_id"]
    assert again["id"] != answer["id"]
    sizes = [len(job.segments) for job in service.worker.asked[-2:]]
    assert sizes == [2, 1]


@pytest.mark.req("EVT-7")
def test_only_what_is_new_is_sent_and_the_session_is_told(service: Service, home: Path) -> None:
    first, second = turns("hi\nand?\n", service, home)
    assert first["session"] == second["session"]
    assert first["turn"] != second["turn"]
    again = turns("/session\nmore\n", service, home, "--session", str(first["session"]))
    assert (again[0]["id"], again[0]["turns_count"]) == (first["session"], 2)
    roles = [part.role for part in service.worker.asked[-1].segments]
    assert roles == ["user", "model", "user", "model", "user"]


def test_going_on_from_an_earlier_turn(service: Service, home: Path) -> None:
    said = "one\ntwo\n/turns\n/branch 1\nthree\nfour\n"
    _, _, listed, branch, _, _ = turns(said, service, home)
    numbers = [turn["number"] for turn in listed["turns"]]  # type: ignore[attr-defined]
    assert numbers == [1, 2]
    assert branch["branch"] == listed["turns"][0]  # type: ignore[index]
    text = prompt_text(service)
    assert "one" in text
    assert "two" not in text
    assert "three" in text


def test_there_is_no_such_turn(service: Service, home: Path) -> None:
    for given in ("/branch 1\n", "hi\n/branch 2\n", "hi\n/branch x\n", "/turns\n", "/session\n"):
        said = huginn("chat", home=home, given=given, **reach(service))
        assert said.exit_code == 1
        assert "turn" in said.stderr


def test_people_see_turns_and_sessions(service: Service, home: Path) -> None:
    said = huginn("chat", home=home, given="hi\n/turns\n/session\n/branch 1\n", **reach(service))
    assert said.exit_code == 0, said.output
    assert "finished" in said.stdout
    assert "1 turns" in said.stdout
    assert "the next turn goes on from turn 1" in said.stdout


def test_a_new_session_is_not_an_old_one(service: Service, home: Path) -> None:
    said = huginn("chat", "--new", "--session", "s", home=home, **reach(service))
    assert said.exit_code == 2
    (answer,) = turns("hi\n", service, home, "--new")
    assert answer["content"]
    unknown = huginn("chat", "--session", "s", home=home, given="hi\n", **reach(service))
    assert unknown.exit_code == 1
    assert "no such session" in unknown.stderr


@pytest.mark.req("EVT-11")
def test_a_chat_knows_what_happened(service: Service, home: Path) -> None:
    key = newcomer(service, "sally")
    happened(service.base_url, key, "1122")
    said = huginn("chat", home=home, given=f"{QUESTION}\nand?\n", **reach(service, key))
    assert said.exit_code == 0, said.output
    for index in (-2, -1):
        assert prompt_text(service, index).count("1122 merged") == 1
    assert prompt_types(service)[:2] == ["event reminder", "user turn"]


def test_nothing_to_show_yet(service: Service, home: Path) -> None:
    said = huginn("chat", home=home, given="/receipt\n", **reach(service))
    assert (said.exit_code, said.stderr) == (1, "huginn: nothing was answered yet\n")


def test_no_service(home: Path) -> None:
    refused("chat", home=home, code="not_running", HUGINN_API_KEY="hg-x", HUGINN_PORT="1")


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self._seen = b""
        self.process = subprocess.Popen(
            words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str, seconds_max: float = 60.0) -> str:
        """What was shown up to and with `text`."""
        deadline = time.monotonic() + seconds_max
        while text.encode() not in self._seen:
            assert time.monotonic() < deadline, self._seen
            if select.select([self._master], [], [], 0.1)[0]:
                self._seen += os.read(self._master, 65536)
        shown, _, self._seen = self._seen.partition(text.encode())
        return (shown + text.encode()).decode("utf-8", "replace")

    def interrupt_for(self, text: str) -> str:
        """What was shown up to and with `text`, for Ctrl-C at a prompt. A signal that comes between
        the prompt and the wait for a key is noticed with the next one: then it is typed again."""
        for _ in range(30):
            self.type("\x03")
            try:
                return self.wait_for(text, 2.0)
            except AssertionError:
                continue
        raise AssertionError(f"30 times Ctrl-C, and never {text!r}: {self._seen!r}")

    def close(self) -> int:
        """The exit status."""
        status = self.process.wait(60)
        os.close(self._master)
        return status


# Takes the terminal as its controlling one, so that typing Ctrl-C is a signal, and hears it, also
# where the tests run in the background of a shell, which has its children ignore it.
_ON_A_TERMINAL = (
    "import fcntl, signal, sys, termios\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "from actors.cli.main import main\n"
    "main(sys.argv[1:], prog_name='huginn')"
)


def test_ctrl_c_stops_the_answer_and_not_the_program(service: Service, home: Path) -> None:
    service.worker.script = Script(answer="slow " * 1000, pace_s=0.02)
    words = [sys.executable, "-c", _ON_A_TERMINAL, "chat", "--home", str(home)]
    environment = {**os.environ, "TERM": "dumb", **reach(service)}
    terminal = Terminal(words, environment)
    terminal.wait_for("> ")
    terminal.type("/nothing\n")
    terminal.wait_for("no command /nothing")
    terminal.wait_for("> ")
    terminal.type("hi\n")
    terminal.wait_for("slow slow")
    terminal.type("\x03")
    terminal.wait_for("(stopped; this turn is not kept)")
    terminal.wait_for("> ")
    terminal.interrupt_for("/exit or Ctrl-D leaves")
    terminal.wait_for("> ")
    service.worker.script = Script(answer="quick \x1b[2J")
    terminal.type("again\n")
    shown = terminal.wait_for("prompt tokens")
    # An end of file typed while nobody reads is lost when the line editor takes the terminal again.
    terminal.wait_for("> ")
    assert "quick \ufffd[2J" in shown
    assert len(service.worker.asked[-1].segments) == 1
    terminal.type("\x04")
    assert terminal.close() == 0
