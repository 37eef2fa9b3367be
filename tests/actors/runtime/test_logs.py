"""Logs: one JSON object a line."""

from __future__ import annotations

import json
import logging

import pytest

from actors.config import Config
from actors.runtime.logs import JsonLines, configure


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "huginn.x", "levelname": "INFO", "levelno": 20, "msg": message, "args": args}
    )
    vars(made).update(extra)
    return made


@pytest.mark.req("SRV-7")
def test_a_record_is_one_line_of_json_with_its_fields() -> None:
    line = JsonLines().format(record("took %d ms\nand more", 7, request_id="r1", secret=object()))
    assert "\n" not in line
    found = json.loads(line)
    assert found["message"] == "took 7 ms\nand more"
    assert found["request_id"] == "r1"
    assert found["level"] == "info"
    assert "secret" not in found, "only plain values are written"


def test_an_exception_is_in_the_line() -> None:
    try:
        raise ValueError("why")
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    assert "ValueError: why" in json.loads(JsonLines().format(record("x", exc_info=info)))["error"]


def test_the_level_is_the_configured_one() -> None:
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    try:
        configure(Config(home="/nowhere", log_level="error"))
        assert root.level == logging.ERROR
        assert len(root.handlers) == 1
    finally:
        root.level, root.handlers[:] = before
