"""The frozen ids: `python -m tests.golden.generate` adds what is missing to `ids.json`.

It adds and never changes: an entry whose id has moved stops it. An id that moves is a new format,
which gets a new version in its record (`v`) or its kind's tag, beside the old one. (A format that
nobody has stored anything under may still change: delete its lines from `ids.json` first.)

`kinds` holds fixed bodies under every kind of id; `records` holds instances of every record that
has an id: the ones of `EXAMPLES`, written by hand, and for each record the smallest, the fullest
and two more, drawn once. `--print` writes the ids as this process computes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final, TypedDict

from protocol import cbor
from protocol.blocks import BlockType, ContextBlock, Representation, Role, Source, text_block
from protocol.errors import HuginnError
from protocol.ids import PREFIX_TO_KIND, BlockId, ContractId, TextId
from protocol.record import Identified, decode_record, encode_record, from_value, object_id
from protocol.tokens import pack
from tests.records import IDENTIFIED, Sampler

PATH: Final = Path(__file__).with_name("ids.json")
BODIES: Final = (b"", b"huginn", bytes(range(256)))
NAME_TO_KIND: Final = {kind.__name__: kind for kind in IDENTIFIED}

_FILE = Source(
    object=TextId.of(b"x = 1\n"), semantic=b"s" * 32, contract=ContractId.of(b"python syntax")
)
EXAMPLES: Final[dict[str, Identified]] = {
    "a user turn": text_block(Role.USER, BlockType.USER_TURN, "Hvað heitir þú?"),
    "a tool result": text_block(
        Role.TOOL,
        BlockType.TOOL_RESULT,
        '{"ok": true}',
        rendering={"name": "run", "call": "call_1"},
        trust=False,
        name="run",
    ),
    "an answer as generated": ContextBlock(
        v=1,
        role=Role.MODEL,
        type=BlockType.MODEL_TURN,
        source=Source(object=TextId.of(b"Huginn.")),
        representation=Representation(
            kind="exact-tokens",
            tokens=pack((24190, 5908, 236761)),
            tokenizer=ContractId.of(b"tokenizer"),
        ),
        rendering={},
        trust=False,
    ),
    "a file by its meaning": ContextBlock(
        v=1,
        role=Role.USER,
        type=BlockType.FILE,
        source=_FILE,
        representation=Representation(kind="exact-text"),
        rendering={"path": "a.py", "language": "python"},
        trust=False,
    ),
    "a summary": ContextBlock(
        v=1,
        role=Role.SYSTEM,
        type=BlockType.SUMMARY,
        source=Source(object=TextId.of("🐦".encode())),
        representation=Representation(kind="summary-of", of=BlockId.of(b"block")),
        rendering={},
        trust=True,
    ),
}


class KindEntry(TypedDict):
    kind: str
    body: str
    id: str


class RecordEntry(TypedDict):
    """`bytes` in hexadecimal; `diagnostic`: the same for the eye (RFC 8949 §8), not compared."""

    record: str
    instance: str
    bytes: str
    diagnostic: str
    id: str


class Frozen(TypedDict):
    kinds: list[KindEntry]
    records: list[RecordEntry]


def load(path: Path = PATH) -> Frozen:
    if not path.exists():
        return {"kinds": [], "records": []}
    frozen: Frozen = json.loads(path.read_text("utf-8"))
    return frozen


def save(frozen: Frozen, path: Path = PATH) -> None:
    """One line for each entry, so that a change of one shows as one line."""
    parts = [
        f'  "{part}": [\n' + ",\n".join(f"    {json.dumps(entry)}" for entry in entries) + "\n  ]"
        for part, entries in (("kinds", frozen["kinds"]), ("records", frozen["records"]))
    ]
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def kind_id(entry: KindEntry) -> str:
    """The id that the entry's body has today."""
    kinds = {kind.__name__: kind for kind in PREFIX_TO_KIND.values()}
    return str(kinds[entry["kind"]].of(bytes.fromhex(entry["body"])))


def record_id(entry: RecordEntry) -> str:
    """The id that the entry's record has today: decoded, taken apart, built and encoded again.

    The maps are built in the order in which a set gives out their keys, which differs between
    processes. Raises HuginnError if the bytes are not that record any more.
    """
    kind = NAME_TO_KIND[entry["record"]]
    data = bytes.fromhex(entry["bytes"])
    decode_record(kind, data)
    return str(object_id(from_value(kind, _scattered(cbor.decode(data)))))


def _scattered(value: cbor.Value) -> cbor.Value:
    if isinstance(value, dict):
        return {key: _scattered(value[key]) for key in set(value)}
    return [_scattered(item) for item in value] if isinstance(value, list) else value


def diagnostic(value: cbor.Value) -> str:
    """The value in the diagnostic notation of RFC 8949 §8."""
    if isinstance(value, bytes):
        return f"h'{value.hex()}'"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {diagnostic(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(diagnostic(item) for item in value) + "]"
    return json.dumps(value)


def moved(frozen: Frozen) -> list[str]:
    """What is wrong with each entry that no longer has its id."""
    found: list[str] = []
    for entry in frozen["kinds"]:
        if kind_id(entry) != entry["id"]:
            found.append(f"{entry['kind']} of body {entry['body'][:16]}… is {kind_id(entry)}")
    for record in frozen["records"]:
        name = f"{record['record']} ({record['instance']})"
        if record["record"] not in NAME_TO_KIND:
            found.append(f"{name}: there is no such record any more")
            continue
        try:
            now = record_id(record)
        except HuginnError as error:
            found.append(f"{name}: its bytes are refused now: {error}")
        else:
            if now != record["id"]:
                found.append(f"{name}: was {record['id']}, is {now}")
    return found


def wanted() -> Iterator[tuple[str, str]]:
    """(record, instance) of every entry that there ought to be."""
    for instance, example in EXAMPLES.items():
        yield type(example).__name__, instance
    for name in NAME_TO_KIND:
        for instance in ("smallest", "fullest", "one more", "another"):
            yield name, instance


def _instance(record: str, instance: str) -> Identified:
    if instance in EXAMPLES:
        return EXAMPLES[instance]
    present = {"smallest": 0.0, "fullest": 1.0}.get(instance, 0.5)
    return Sampler(Random(f"{record}, {instance}"), present=present).record(NAME_TO_KIND[record])


def completed(frozen: Frozen) -> Frozen:
    """`frozen` with the missing entries added behind the ones that it has."""
    kinds, records = list(frozen["kinds"]), list(frozen["records"])
    have = {(entry["kind"], entry["body"]) for entry in kinds}
    for kind in PREFIX_TO_KIND.values():
        for body in BODIES:
            if (kind.__name__, body.hex()) not in have:
                made = str(kind.of(body))
                kinds.append({"kind": kind.__name__, "body": body.hex(), "id": made})
    present = {(entry["record"], entry["instance"]) for entry in records}
    for name, instance in wanted():
        if (name, instance) not in present:
            record = _instance(name, instance)
            data = encode_record(record)
            records.append(
                {
                    "record": name,
                    "instance": instance,
                    "bytes": data.hex(),
                    "diagnostic": diagnostic(cbor.decode(data)),
                    "id": str(object_id(record)),
                }
            )
    return {"kinds": kinds, "records": records}


def report(frozen: Frozen) -> dict[str, list[str]]:
    """The ids as this process computes them, and the order in which it gives out a set."""
    return {
        "order": list({f"key {number}" for number in range(16)}),
        "kinds": [kind_id(entry) for entry in frozen["kinds"]],
        "records": [record_id(entry) for entry in frozen["records"]],
    }


def main(arguments: list[str], path: Path = PATH) -> int:
    frozen = load(path)
    if arguments == ["--print"]:
        sys.stdout.write(json.dumps(report(frozen)))
        return 0
    problems = moved(frozen)
    if problems:
        sys.stderr.write("\n".join(["nothing was written; these ids moved:", *problems, ""]))
        return 1
    after = completed(frozen)
    save(after, path)
    added = len(after["kinds"]) - len(frozen["kinds"])
    added += len(after["records"]) - len(frozen["records"])
    sys.stdout.write(f"{added} entries added to {path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
