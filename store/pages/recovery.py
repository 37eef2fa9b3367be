"""What a directory of pages holds, found out after a crash, a lost index, or a stranger's hand.

The files are what is true. A row of the index spares reading a file's head, if the file has the
length that the row says; a file without such a row is asked itself; what is no page is removed.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from store.pages.catalog import Entry, Key, key_of
from store.pages.files import Found, PageFiles
from store.pages.tier import Reason, Refused


@dataclass(slots=True)
class Recovered:
    """`adopted` are entries that no row told of; `stale` rows that no file bears out; `lost` says
    of which page there was something that is no page, or of which there is nothing but a row."""

    entries: list[Entry] = field(default_factory=list)
    adopted: list[Entry] = field(default_factory=list)
    stale: list[Key] = field(default_factory=list)
    reclaimed: int = 0
    refused: Counter[Reason] = field(default_factory=Counter)
    lost: dict[Key, Reason] = field(default_factory=dict)


def recover(files: PageFiles, rows: Mapping[Key, Entry]) -> Recovered:
    """The pages that are there; files that are none are gone afterwards. Raises OSError."""
    result = Recovered()
    seen: set[Key] = set()
    for found in files.scan():
        if found.chain is None:
            # Unfinished, or under a name that no page has.
            _remove(files, found)
            result.reclaimed += 1
            continue
        key = (found.domain, found.chain.digest)
        row = rows.get(key)
        if row is not None and row.file_bytes == found.bytes:
            seen.add(key)
            result.entries.append(row)
            continue
        header = files.head(found)
        if isinstance(header, Refused):
            if header.reason != "busy":
                _remove(files, found)
            result.refused[header.reason] += 1
            result.lost[key] = header.reason
            continue
        # When it was last used nobody knows any more; it was written then.
        used_ns = max(0, found.modified_ns)
        entry = Entry(header, found.bytes, used_ns, used_ns)
        seen.add(key_of(header))
        result.entries.append(entry)
        result.adopted.append(entry)
    result.stale = [key for key in rows if key not in seen]
    for key in result.stale:
        # Counted nowhere: an eviction that a death broke off leaves the same.
        result.lost.setdefault(key, "missing")
    return result


def _remove(files: PageFiles, found: Found) -> None:
    # A file that cannot be removed is not taken for a page either, which is what matters.
    with contextlib.suppress(OSError):
        files.remove(found.path)
