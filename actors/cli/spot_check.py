"""`huginn verify --sample`: derivations that the memo knows, executed again and compared.

A sample is drawn from what is known in the key's own domain. Each is executed again by a process
that shares nothing with the service but the weights, signed with the installation's key for
verifying, and handed to the memo, which compares: it alone knows what was said before. Equal
outputs are kept as a verification; other outputs put the derivation into quarantine, with both
sides to be seen. What has lost its inputs is *expired*, and no success; neither is an advance from
pages that are others here, which is of another snapshot.
"""

from __future__ import annotations

import base64
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from actors.cli.asked import Asked, Failure, Json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from actors.cli.client import Client
    from protocol.signing import Signer

_DERIVATIONS: Final = "/huginn/v1/derivations"
_NOT_FOUND: Final = 404
# Lines where there is no terminal: one for so many.
_TOLD_EVERY: Final = 10
# `skipped`: made under another profile than the service has, or with parameters that are not kept.
# `incomparable`: it is bound to a snapshot that is not the one here. `unknown`: the memo does not
# know it any more.
OUTCOMES: Final = ("equal", "different", "expired", "skipped", "incomparable", "unknown")
# Nothing came of these that could be handed in.
UNCHECKED: Final = ("skipped", "incomparable")
_VERDICT_TO_OUTCOME: Final = {
    "equal": "equal",
    "already-present": "equal",
    "conflict": "different",
    "expired": "expired",
    "unknown": "unknown",
}


def spot_check(asked: Asked, count: int, seed: str | None) -> bool:
    """Draw, execute again and tell; whether all that could be compared was equal, and anything
    could, unless nothing is known at all. Raises Failure."""
    from actors.cli.client import connect
    from actors.cli.fetch import ensure_library
    from actors.cli.verify import profile_of, served_model

    client = connect(asked, seconds_max=600.0)
    seed = seed or secrets.token_hex(8)
    profile = profile_of(asked, served_model(client))
    drawn = client.post(f"{_DERIVATIONS}/sample", {"count": count, "seed": seed})
    entries: list[Json] = drawn["entries"]
    ensure_library(asked)
    with _progress(asked, len(entries)) as tell:
        outcomes, again = _executed(asked, client, profile, entries, tell)
    checks = [
        _check(_verifier(asked), drawn, entries[place], again.get(place))
        for place, outcome in enumerate(outcomes)
        if outcome not in UNCHECKED
    ]
    results = iter(_handed_in(client, drawn["domain"], checks))
    outcomes = [each if each in UNCHECKED else outcome_of(next(results)) for each in outcomes]
    document = _document(client, entries, outcomes, again)
    document |= {"seed": seed, "domain": drawn["domain"]}
    asked.show(document, lambda: _people(document))
    return bool(document["ok"])


def _executed(
    asked: Asked,
    client: Client,
    profile: str,
    entries: Sequence[Json],
    tell: Callable[[int], None],
) -> tuple[list[str], dict[int, Json]]:
    """What came of each entry so far, and by its place what executing it gave."""
    from actors.experiment.recheck import recheck

    contexts = {
        context: blocks
        for context in dict.fromkeys(entry["context_id"] for entry in entries)
        if context is not None and (blocks := _blocks(client, context)) is not None
    }
    places = [place for place, each in enumerate(entries) if each["context_id"] in contexts]
    outcomes = ["expired"] * len(entries)
    again: dict[int, Json] = {}
    tell(len(entries) - len(places))
    if not places:
        return outcomes, again
    home = asked.config().home_path
    for line in recheck(profile, home, contexts, [entries[place] for place in places]):
        place = places[line["entry"]]
        outcomes[place] = line["why"] or "executed"
        if line["outputs"] is not None:
            again[place] = line
        tell(1)
    return outcomes, again


def _blocks(client: Client, context: str) -> list[Json] | None:
    """The blocks of a context; None: this key cannot see it."""
    from actors.cli.client import ApiFailure, segment

    try:
        blocks: list[Json] = client.get(f"/huginn/v1/contexts/{segment(context)}")["blocks"]
    except ApiFailure as failure:
        if failure.status == _NOT_FOUND:
            return None
        raise
    return blocks


def _check(signer: Signer, drawn: Json, entry: Json, line: Json | None) -> Json:
    """What is handed in of one entry: signed evidence of what it gave, or that its inputs are
    gone."""
    from actors import VERSION
    from actors.experiment.recheck import derivation_of
    from protocol.derivation import attest
    from protocol.ids import EvidenceId

    check = {"invocation": entry["invocation"], "origin": entry["origin"]}
    if line is None:
        return check
    evidence = attest(
        signer,
        derivation_of(entry, line["outputs"]),
        engine_build=f"huginn {VERSION} verify",
        authority_epoch=drawn["authority_epoch"],
        domain=drawn["domain"],
        measurements={"tokens": line["tokens"], "checked_ns": time.time_ns()},
        verifier=EvidenceId.parse(entry["evidence_id"]),
    )
    return check | {"evidence": base64.b64encode(evidence).decode("ascii")}


def _verifier(asked: Asked) -> Signer:
    """The key of this installation for verifying."""
    from actors.runtime.plan import VERIFIER, room_signer
    from actors.runtime.world import SystemEntropy

    return room_signer(asked.config().home_path, VERIFIER, SystemEntropy())


def _handed_in(client: Client, domain: str, checks: Sequence[Json]) -> list[Json]:
    if not checks:
        return []
    body = {"domain": domain, "checks": checks}
    results: list[Json] = client.post(f"{_DERIVATIONS}/checks", body)["results"]
    return results


def outcome_of(result: Json) -> str:
    """What a verdict of the memo means. Raises Failure for a check that it does not take."""
    outcome = _VERDICT_TO_OUTCOME.get(result["result"])
    if outcome is None:
        raise Failure(
            f"the service does not take the check ({result['result']}: {result['reason']}): "
            "HUGINN_HOME has to name the data directory of the service that is asked",
            code="check_refused",
        )
    return outcome


def succeeded(counts: Mapping[str, int]) -> bool:
    """Whether all that could be compared was equal, and anything could, unless there was nothing
    at all. `counts` by outcome."""
    found = {name: counts.get(name, 0) for name in OUTCOMES}
    return not found["different"] and (found["equal"] > 0 or not any(found.values()))


def _document(
    client: Client, entries: Sequence[Json], outcomes: Sequence[str], again: dict[int, Json]
) -> Json:
    counts = Counter(outcomes)
    rows = []
    for place, (entry, outcome) in enumerate(zip(entries, outcomes, strict=True)):
        names = ("invocation_id", "family", "context_id")
        rows.append({name: entry[name] for name in names} | {"outcome": outcome})
        if outcome == "different":
            rows[-1] |= {"recomputed": again[place]["outputs"], "said": _said(client, entry)}
    return {
        "ok": succeeded(counts),
        "drawn": len(entries),
        **{name: counts[name] for name in OUTCOMES},
        "entries": rows,
    }


def _said(client: Client, entry: Json) -> list[Json]:
    """Every testimony that is kept of a derivation in quarantine."""
    conflicts = client.get("/huginn/v1/status")["muninn"]["conflicts"]
    return [
        said
        for conflict in conflicts
        if conflict["invocation"] == entry["invocation_id"]
        for said in conflict["testimonies"]
    ]


def _people(document: Json) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from actors.cli.output import table

    columns = ("family", "outcome", "invocation_id", "context_id")
    rows = [[entry[name] for name in columns] for entry in document["entries"]]
    lines: list[RenderableType] = [table(columns, rows), ""] if rows else []
    for entry in document["entries"]:
        for said in entry.get("said", ()):
            outputs = ", ".join(f"{each['label']} {each['id']}" for each in said["outputs"])
            line = f"{entry['invocation_id']}: {said['engine_build']} says {outputs}"
            lines.append(Text(line))
    told = ", ".join(f"{document[name]} {name}" for name in OUTCOMES if document[name])
    if not rows:
        lines.append("nothing is remembered in this domain yet")
    else:
        lines.append(f"{document['drawn']} drawn: {told} (seed {document['seed']})")
    if document["different"]:
        lines.append("what differs is in quarantine: neither side is served")
    elif not document["ok"]:
        lines.append("nothing could be compared")
    return Group(*lines)


@contextmanager
def _progress(asked: Asked, total: int) -> Iterator[Callable[[int], None]]:
    """What is told how many more are done: a bar on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        done = 0

        def line(more: int) -> None:
            nonlocal done
            if (done + more) // _TOLD_EVERY > done // _TOLD_EVERY:
                asked.note(f"{done + more} of {total} executed again")
            done += more

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns: tuple[Any, ...] = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("verify", total=total)
        yield lambda more: shown.advance(task, more)
