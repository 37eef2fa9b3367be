"""Fences: how content that is not somebody's own words stands inside a turn.

    <file-ai5ocv4dqd3qmqhe path="notes.txt">
    …
    </file-ai5ocv4dqd3qmqhe>

Files, diffs, tool results, reminders and everything untrusted are fenced. The tag carries a nonce,
the first 80 bits of the content's own ObjectId: content cannot hold its own hash, so it cannot
close its fence, and the same content always renders the same. The second defence does not depend
on the first: in *all* content (fenced or plain, in every role) whatever looks like a tag of a fence
is escaped, `<` to `&lt;`. Look-alike: `<`, blanks, `/` or not, blanks, a kind of fence and `-`, in
any case of letters. An `&lt;` that already stands in such a place becomes `&amp;lt;`, so two
contents never render alike. Parameters (path, title, tool …) are attributes in the order of their
names, escaped so that no quote, angle or line break of theirs is one (ASM-3).
"""

from __future__ import annotations

import re
from typing import Final

from protocol.errors import ContentError
from protocol.ids import TextId

# 16 base32 characters are 80 bits: about a dozen tokens, and no search finds a collision.
NONCE_CHARS: Final = 16

KINDS: Final = (
    "context",
    "diagnostic",
    "diff",
    "file",
    "instruction",
    "memory",
    "message",
    "plan",
    "receipt",
    "summary",
    "symbol",
    "system-reminder",
    "tool-call",
    "tool-result",
    "tools",
)
# U+2581 is what vocabularies write for a space: content that holds it may come out as a space.
# Possessive blanks (`*+`) keep the search linear in hostile text.
_TAG: Final = rf"[ \t\u2581]*+/?[ \t\u2581]*+(?:{'|'.join(KINDS)})-"
_LOOK_ALIKE: Final = re.compile(f"<(?={_TAG})", re.IGNORECASE)
_ESCAPED: Final = re.compile(f"&(?=(?:amp;)*+lt;{_TAG})", re.IGNORECASE)
# Every character that could end an attribute, a tag or a line, and every other control character.
_UNSAFE: Final = re.compile('[&"<>\x00-\x1f\x7f-\x9f\u2028\u2029\u2581]')
_NAMED: Final = {"&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;"}


def escape(text: str) -> str:
    """`text` with every look-alike of a fence's tag escaped; other text comes back as it is."""
    return _LOOK_ALIKE.sub("&lt;", _ESCAPED.sub("&amp;", text))


def looks_like_tag(text: str) -> bool:
    """Whether something in `text` looks like a tag of a fence."""
    return _LOOK_ALIKE.search(text) is not None


def nonce(text: str) -> str:
    """The nonce of `text`: 16 base32 characters of the id of its UTF-8 bytes.

    Raises ContentError for text that is not Unicode (a lone surrogate).
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ContentError(
            f"character {error.start} is a lone surrogate: content is Unicode text",
            index=error.start,
        ) from error
    return str(TextId.of(data)).partition(":")[2][:NONCE_CHARS]


def attribute(value: str) -> str:
    """`value` as it stands between the quotes of an attribute: no quote, angle or line break."""
    return _UNSAFE.sub(_reference, value)


def fence(kind: str, text: str, attributes: dict[str, str]) -> str:
    """`text`, unchanged but for look-alikes, inside its fence. `kind` is one of KINDS."""
    tag = f"{kind}-{nonce(text)}"
    written = "".join(f' {key}="{attribute(attributes[key])}"' for key in sorted(attributes))
    return f"<{tag}{written}>\n{escape(text)}\n</{tag}>"


def _reference(match: re.Match[str]) -> str:
    return _NAMED.get(match[0]) or f"&#{ord(match[0])};"
