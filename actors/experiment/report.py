"""An experiment's report, three times: JSON for programs, a table for people, a chart."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from actors import VERSION
from actors.experiment.chart import chart
from actors.experiment.checks import Check
from actors.experiment.measure import Row

Json = dict[str, Any]

_DIGEST_CHARS: Final = 18
_MEMORY: Final = ("resident_kv_bytes", "stream_kv_bytes_max", "device_bytes", "worker_rss_bytes")
COLUMNS: Final = (
    *(
        "condition",
        "prompt",
        "reused",
        "hit",
        "tiers",
        "prefilled",
        "TTFT ms",
        "client ms",
        "tok/s",
    ),
    *("assembly ms", "resident", "resident KV MB", "largest KV MB", "device MB", "RSS MB"),
    *("age s", "state", "answer"),
)


def machine() -> Json:
    """The facts of this machine that figures depend on."""
    return {
        "huginn": VERSION,
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def document(head: Json, rows: Sequence[Row], checks: Sequence[Check]) -> Json:
    """The whole report. `head` has at least profile, machine, seed."""
    return {
        **head,
        "ok": all(check.ok for check in checks),
        "hits": dict(Counter(row["hit"] for row in rows)),
        "reuse_age_s": reuse_age_s(rows),
        "rows": list(rows),
        "checks": [check.document() for check in checks],
    }


def reuse_age_s(rows: Sequence[Row]) -> dict[str, float]:
    """How old the oldest state was that each tier still had, in seconds: since its messages were
    first asked. A tier that gave nothing, or nothing of these messages, is not listed."""
    ages: dict[str, float] = {}
    for row in rows:
        for tier, tokens in row["tiers"].items():
            if tokens and row["age_s"] is not None:
                ages[tier] = max(ages.get(tier, 0.0), row["age_s"])
    return ages


def write(report: Json, directory: Path) -> list[Path]:
    """`report.json`, `report.md` and `report.svg` in `directory`, which is made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    facts = report["machine"]
    subtitle = (
        f"{facts['cpu']}, {facts['cores']} cores; seed {report['seed']}; brown: nothing reused"
    )
    title = f"Time to first token by condition, {report['profile']}"
    texts = {
        "report.json": json.dumps(report, indent=2) + "\n",
        "report.md": markdown(report),
        "report.svg": chart(report["rows"], title, subtitle),
    }
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    return [directory / name for name in texts]


def cells(row: Row) -> list[str]:
    """A row as the table shows it, in the order of COLUMNS."""
    tiers = ", ".join(f"{name} {count}" for name, count in row["tiers"].items() if count)
    return [
        row["condition"],
        str(row["prompt_tokens"]),
        str(row["reused_tokens"]),
        row["hit"],
        tiers or "–",
        str(row["prefilled_tokens"]),
        _number(row["ttft_ms"]),
        _number(row["ttft_client_ms"]),
        _number(row["decode_tokens_s"]),
        _number(row["assembly_ms"]),
        _number(row["resident_tokens"]),
        *(_megabytes(row[name]) for name in _MEMORY),
        _number(row["age_s"]),
        _short(row["state_digest"]),
        _short(row["answer_digest"]),
    ]


def markdown(report: Json) -> str:
    """The report as a Markdown page."""
    lines = [f"# Experiment: {report['profile']}", ""]
    lines += [
        f"- {name}: {value}" for name, value in {**report["machine"], **_plain(report)}.items()
    ]
    lines += ["", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(cells(row))} |" for row in report["rows"]]
    lines += ["", "## Checks", ""]
    for each in report["checks"]:
        verdict = "holds" if each["ok"] else f"FAILS in {', '.join(each['failed'])}"
        lines.append(f"- {each['name']} ({len(each['compared'])} runs): {verdict}")
    return "\n".join([*lines, ""])


def _plain(report: Json) -> Json:
    return {
        name: value
        for name, value in report.items()
        if name not in ("profile", "machine", "rows", "checks", "log")
    }


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"


def _megabytes(size_bytes: int | None) -> str:
    return _number(None if size_bytes is None else size_bytes / 1e6)


def _short(text: str | None) -> str:
    return "–" if text is None else text[:_DIGEST_CHARS]


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"
