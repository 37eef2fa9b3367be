"""Logging: one JSON object a line on standard error. Never content, never a key."""

from __future__ import annotations

import json
import logging
import sys

from actors.config import Config


class JsonLines(logging.Formatter):
    """Time (Unix seconds), level, logger, message, and the fields that were passed as `extra`."""

    _STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in self._STANDARD and isinstance(value, int | str | float | bool):
                line[name] = value
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(config: Config) -> None:
    """Send all logs of this process to standard error at the configured level."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.log_level.upper())
