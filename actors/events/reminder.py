"""How events read in a prompt: one line to each, neutral, and never more than a line.

    huskies · 11-30 13:36 · MergeSucceeded: 1122 merged, merge_commit "9f3c" [merging → done]

A line says which source, when (UTC, by the event's own clock), which kind and what happened to
what. It instructs nobody and attributes no cause. Whatever came from outside is data: a subject
that is a plain name stands bare, all other text in quotes, and every character that could end a
line, hide or turn text, or look like our own separators is escaped, so a hostile text is a strange
word in its own line. The fence around the whole is the grammar's (`protocol.grammars.fence`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

from protocol.blocks import BlockType, Role, text_block
from protocol.events import AT_FIELD, Event
from protocol.messages.ropes import NewBlock

HEADING: Final = "Events since the previous turn, by source (times UTC):"
SEPARATOR: Final = " · "
# A story id, a branch or a commit fits; what is longer is told by its beginning and its length.
SUBJECT_CHARS: Final = 120
VALUE_CHARS: Final = 200
_ITEMS: Final = 8
_DEPTH: Final = 3
_NAME: Final = re.compile(r"[A-Za-z0-9_#][A-Za-z0-9_#.@+=/-]*")
# A commit or another digest: its beginning names it, and each digit more would cost a token.
_DIGEST: Final = re.compile(r"[0-9a-f]{32,128}")
_DIGEST_CHARS: Final = 12
# The escape itself, the quote, the separator, and what vocabularies write for a space.
_OURS: Final = frozenset('\\"·\u2581')
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", '"': '\\"'}
_SECONDS_MAX: Final = 253_402_300_799  # the end of the year 9999
_NS_PER_S: Final = 10**9

KIND_TO_PHRASE: Final[dict[str, str]] = {
    "DepsMet": "dependencies met",
    "GatesStarted": "gates started",
    "GatesPassed": "gates passed",
    "GatesFailed": "gates failed",
    "QaSkipped": "QA skipped",
    "MergeSucceeded": "merged",
    "MergeFailed": "merge failed",
    "MergeFailedFinal": "merge failed, final",
    "Accepted": "accepted",
    "Block": "blocked",
    "Unblock": "unblocked",
    "Abandon": "abandoned",
    "Supersede": "superseded",
    "ReviewHold": "held for review",
    "ReviewHoldCleared": "review hold cleared",
    "Reject": "rejected",
    "Triage": "triaged",
    "Close": "closed",
    "Demote": "demoted",
    "Freeze": "frozen",
    "Unfreeze": "unfrozen",
    "MergemasterAttempted": "mergemaster attempted",
    "FixupRequested": "fixup requested",
    "ReQueuedForQa": "queued for QA again",
    "MergeAborted": "merge aborted",
    "HotfixRequested": "hotfix requested",
    "MergeRetryStarted": "merge retry started",
    "SpawnRequested": "spawn requested",
    "SpawnedSuccessfully": "spawned",
    "Heartbeat": "heartbeat",
    "HitRateLimit": "hit a rate limit",
    "Exited": "exited",
    "Stopped": "stopped",
    "Reset": "reset",
    "ProjectAdopted": "project adopted",
    "Rebuilt": "rebuilt",
    "GatewayHealthChanged": "gateway health changed",
}


def reminder_block(text: str) -> NewBlock:
    """The block that tells `text`: of the user's turn, fenced, and without an instruction's
    trust."""
    block = text_block(Role.USER, BlockType.EVENT_REMINDER, text, trust=False)
    return NewBlock(block=block, content=text.encode("utf-8"))


def is_reminder(block: NewBlock) -> bool:
    return block.block.type is BlockType.EVENT_REMINDER


def event_line(label: str, event: Event) -> str:
    """The line of one event of the source that is called `label`."""
    details = [
        f"{name(key)} {value(event.body[key])}"
        for key in sorted(event.body)[:_ITEMS]
        if key != AT_FIELD
    ]
    if len(event.body) > _ITEMS:
        details.append(f"and {len(event.body) - _ITEMS} more")
    return ", ".join([_opening(label, event), *details]) + _stages(event)


def folded_line(label: str, newest: Event, count: int) -> str:
    """The line of `count` events of one kind about one subject, of which `newest` is the last."""
    times = f", {count} times" if count > 1 else ""
    return f"{_opening(label, newest)}{times}{_stages(newest)}"


def gap_line(label: str, first: int, last: int) -> str:
    """The line of entries `first` … `last` that are not there any more."""
    return SEPARATOR.join(
        (name(label), f"EventStreamGap: {last - first + 1} events not kept, {first} to {last}")
    )


def gaps_line(sources: int, count: int) -> str:
    """The line of gaps in `sources` sources, which are too many to be told one by one."""
    return f"EventStreamGap: {count} events of {sources} sources not kept"


def more_line(count: int) -> str:
    """The last line: `count` events that are only counted."""
    return f"and {count} more event{'s' if count > 1 else ''}"


def name(text: str, chars_max: int = SUBJECT_CHARS) -> str:
    """`text` bare, if it is a plain name; quoted otherwise."""
    return text if len(text) <= chars_max and _NAME.fullmatch(text) else quoted(text, chars_max)


def quoted(text: str, chars_max: int = VALUE_CHARS) -> str:
    """`text` in quotes, on one line, with everything unprintable escaped, and cut after
    `chars_max` characters with the number that is missing."""
    shown = "".join(map(_character, text[:chars_max]))
    rest = len(text) - chars_max
    return f'"{shown}"' if rest <= 0 else f'"{shown}"… ({rest} characters more)'


def value(item: Any, depth: int = _DEPTH) -> str:
    """A payload's value in words: text quoted, lists and maps by their first few entries."""
    match item:
        case str():
            return quoted(item) if not _DIGEST.fullmatch(item) else f'"{item[:_DIGEST_CHARS]}…"'
        case None | bool():
            return {None: "none", True: "true", False: "false"}[item]
        case int():
            return str(item)
        case bytes():
            return f"({len(item)} bytes)"
        case list() if depth:
            inner = [value(each, depth - 1) for each in item[:_ITEMS]]
            return f"[{', '.join(_and_more(inner, len(item)))}]"
        case dict() if depth:
            shown = sorted(item)[:_ITEMS]
            inner = [f"{name(key)} {value(item[key], depth - 1)}" for key in shown]
            return f"{{{', '.join(_and_more(inner, len(item)))}}}"
        case _:
            return f"({len(item)} entries)"


def _and_more(shown: list[str], total: int) -> list[str]:
    return shown if len(shown) == total else [*shown, f"and {total - len(shown)} more"]


def _character(character: str) -> str:
    if character.isprintable() and character not in _OURS:
        return character
    code = ord(character)
    return _SHORT.get(character) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def _opening(label: str, event: Event) -> str:
    phrase = KIND_TO_PHRASE.get(event.kind, "")
    said = f"{event.kind}: {name(event.subject)} {phrase}".rstrip()
    return SEPARATOR.join((name(label), _time(event), said))


def _stages(event: Event) -> str:
    if event.before is None or event.after is None:
        return ""
    return f" [{name(event.before)} → {name(event.after)}]"


def _time(event: Event) -> str:
    at = event.body.get(AT_FIELD)
    seconds = at if type(at) is int and 0 <= at <= _SECONDS_MAX else event.hlc // _NS_PER_S
    return f"{datetime.fromtimestamp(min(seconds, _SECONDS_MAX), UTC):%m-%d %H:%M}"
