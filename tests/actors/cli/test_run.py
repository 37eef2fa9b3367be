"""`huginn run`."""

from __future__ import annotations

from pathlib import Path

from tests.fake_rooms import Service
from tests.huginn import answered, huginn, reach, refused
from tests.scripted_worker import ANSWER


def test_a_question_from_the_command_line(service: Service, home: Path) -> None:
    result = huginn("run", "hi", "--temperature", "0", home=home, **reach(service))
    assert (result.exit_code, result.stdout) == (0, f"{ANSWER}\n")


def test_a_question_from_standard_input(service: Service, home: Path) -> None:
    asked = answered("run", "-", "--temperature", "0", home=home, given="hi\n", **reach(service))
    assert (asked["content"], asked["model"], asked["finish_reason"]) == (ANSWER, "raven", "stop")


def test_every_option_arrives(service: Service, home: Path) -> None:
    words = ["--system", "Be brief.", "--max-tokens", "7", "--seed", "3", "--stop", "x"]
    asked = answered("run", "hi", *words, home=home, **reach(service))
    job = service.worker.asked[-1]
    assert [part.role for part in job.segments] == ["system", "user"]
    assert (job.tokens_max, job.sampler.seed, job.stops) == (7, 3, ["x"])
    assert asked["finish_reason"] == "length"


def test_complete_has_no_context(service: Service, home: Path) -> None:
    asked = answered("run", "Once", "--complete", home=home, **reach(service))
    assert asked["context_id"] is None
    assert asked["id"].startswith("cmpl-")


def test_wrong_use(service: Service, home: Path) -> None:
    refused("run", " ", home=home, code="usage", exit_code=2)
    refused("run", "a", "--complete", "--system", "b", home=home, code="usage", exit_code=2)


def test_a_refusal_keeps_its_code(service: Service, home: Path) -> None:
    words = ("run", "hi", "--model", "crow")
    refused(*words, home=home, code="model_not_found", **reach(service))
    too_long = ("run", "x" * 5000)
    refused(*too_long, home=home, code="context_length_exceeded", **reach(service))
