"""What somebody was answered, so that it can be compared with what is answered in another world.

What differs between two worlds are drawn ids: they are numbered in the order in which they are met.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# An id that was drawn: a word and 26 characters of base32, or 20 hexadecimal digits. The key of a
# source is drawn, and with it the ids of the source and of its events, entries, and cursors.
_DRAWN = re.compile(
    r"\b[a-z]+[-_](?:[a-z2-7]{26}|[0-9a-f]{20})\b"
    r"|\b(?:source|event):[a-z2-7]{52}\b"
    r"|\b(?:public_key|entry|cursor)\":\"[^\"]+"
)
ID = re.compile(r"\b[a-z]+:[a-z2-7]{52}\b")


class Different(Exception):
    """An answer that is not the one of the other world."""


@dataclass
class Seen:
    """What somebody was answered: `said`, with drawn ids numbered, and `ids` as they were. With
    `wanted`, what is said in another world, the first answer that differs raises Different."""

    wanted: list[tuple[str, str]] | None = None
    said: list[tuple[str, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def add(self, label: str, text: str) -> None:
        self.ids += [*_DRAWN.findall(text), *ID.findall(text)]
        self.said.append((self._numbered(label), self._numbered(text)))
        if self.wanted is not None:
            wanted = self.wanted[len(self.said) - 1]
            if self.said[-1] != wanted:
                raise Different(f"{self.said[-1]} where the other world has {wanted}")

    def known(self, id: str) -> str:
        """An id that is asked for: it counts as met, so that it has one number in both worlds."""
        self._numbers.setdefault(id, len(self._numbers))
        return id

    def _numbered(self, text: str) -> str:
        def number(found: re.Match[str]) -> str:
            word = re.split('[-:_"]', found[0])[0]
            return f"<{word} {self._numbers.setdefault(found[0], len(self._numbers))}>"

        return _DRAWN.sub(number, text)
