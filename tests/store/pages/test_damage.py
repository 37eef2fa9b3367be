"""Every way in which a page file or the index can be damaged: a read gives the page's rows or none.

The same sweeps run over a store that does not verify, and have to find wrong rows there: that they
do is the proof that they can see them.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import apsw
import pytest

from protocol.page import PageRows
from store.pages.disk import PageStore
from store.pages.files import PageFiles
from store.pages.header import PageHeader, domain_digest, encode_head
from store.pages.seal import SEAL_BYTES, Section
from store.pages.tier import BOTH, FULL, PUBLIC, Refused
from tests.page_samples import (
    MODEL_FULL_BYTES,
    MODEL_SLIDING_BYTES,
    Pages,
    chains_of,
    disk,
    files_below,
    no_sync,
    one,
    overwrite,
    rows_of,
    talk,
    wrong,
)
from tests.stores import FAST

DOMAINS = ("ann", PUBLIC)
# `make crash` sets this to 1: every byte also where the default samples.
STRIDE = int(os.environ.get("HUGINN_CRASH_STRIDE", "29"))


class Trusting(PageFiles):
    """Gives back what stands where the rows should be. (Public pages: nothing to open.)"""

    def read(
        self, header: PageHeader, sections: Sequence[Section], domain_key: bytes | None
    ) -> PageRows | Refused:
        body = self.path((header.domain, header.chain.digest)).read_bytes()[
            len(encode_head(header)) :
        ]
        full, sliding = body[: header.full_bytes], body[header.full_bytes :]
        return PageRows(full=full, sliding=sliding if "sliding" in sections else b"")


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        yield Path(folder)


def flips(body: bytes) -> Iterator[bytes]:
    for at in range(len(body)):
        yield body[:at] + bytes((body[at] ^ 1 << at % 8,)) + body[at + 1 :]


def cuts(body: bytes) -> Iterator[bytes]:
    for at in range(len(body)):
        yield body[:at]


def growths(body: bytes) -> Iterator[bytes]:
    yield from (body + b"\0", body + body, b"\0" + body)


def swept(
    store: PageStore, pages: Pages, damage: Callable[[bytes], Iterator[bytes]]
) -> Counter[str]:
    """What reading the last page gave after each wound of its file: `wrong` rows, `right` ones,
    or `refused`; asserts that what was refused is gone."""
    page, rows = pages[-1]
    store.put_many(pages)
    info = store.longest(page.domain, chains_of(pages))[-1]
    (path,) = (path for path in files_below(store.root) if path.name == str(page.chain))
    outcomes: Counter[str] = Counter()
    for wounded in damage(path.read_bytes()):
        overwrite(path, wounded)
        found = store.read(info, BOTH)
        if isinstance(found, Refused):
            outcomes["refused"] += 1
            assert not path.exists(), "a bad file stays"
            assert len(store.longest(page.domain, chains_of(pages))) == len(pages) - 1
        else:
            outcomes["right" if found == rows else "wrong"] += 1
            path.unlink()
        assert store.put_many(pages) == len(pages)
        assert store.read(info, BOTH) == rows
    return outcomes


@pytest.mark.req("KV-3")
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("damage", [flips, cuts, growths])
def test_no_wound_gives_wrong_rows(
    root: Path, domain: str, damage: Callable[[bytes], Iterator[bytes]]
) -> None:
    store = disk(root)
    assert set(swept(store, talk(domain, *"ab"), damage)) == {"refused"}
    store.close()


@pytest.mark.req("KV-3")
@pytest.mark.parametrize("domain", DOMAINS)
def test_no_wound_of_a_large_file_gives_wrong_rows(root: Path, domain: str) -> None:
    page = talk(domain, "a")[0][0]
    rows = rows_of(page, MODEL_FULL_BYTES * 24, MODEL_SLIDING_BYTES * 24)
    random = Random(7)

    def wounds(body: bytes) -> Iterator[bytes]:
        places = [random.randrange(len(body)) for _ in range(3_000 // STRIDE)]
        for at in [*range(0, 600, STRIDE), *places, len(body) - 1]:
            yield body[:at] + bytes((body[at] ^ 0x80,)) + body[at + 1 :]
        yield from (body[:at] for at in places[:20])

    store = disk(root)
    assert set(swept(store, [(page, rows)], wounds)) == {"refused"}
    store.close()


def test_a_wound_of_one_section_leaves_the_other_right(root: Path) -> None:
    store = disk(root)
    page, rows = talk("ann", "a")[0]
    store.put(page, rows)
    info, (path,) = one(store, page), files_below(root)
    body = path.read_bytes()
    for at in range(len(body) - SEAL_BYTES - info.sliding_bytes, len(body), 5):
        overwrite(path, body[:at] + bytes((body[at] ^ 1,)) + body[at + 1 :])
        assert store.read(info, FULL) == PageRows(full=rows.full, sliding=b"")
    assert isinstance(store.read(info, BOTH), Refused)
    assert files_below(root) == []
    store.close()


@pytest.mark.parametrize("damage", [flips, cuts])
def test_control_a_store_that_does_not_verify_is_caught(
    root: Path, damage: Callable[[bytes], Iterator[bytes]]
) -> None:
    store = disk(root)
    store._files = Trusting(root, fsync=no_sync)
    assert swept(store, talk(PUBLIC, *"ab"), damage)["wrong"] > 100
    store.close()


def reopened(root: Path, pages: Pages) -> tuple[int, int]:
    """(pages found, wrong ones) after opening `root`; asserts that what is found bad is gone."""
    store = disk(root)
    infos = store.longest(pages[0][0].domain, chains_of(pages))
    wrongs = sum(wrong(store, info) for info in infos)
    kept = len(store.longest(pages[0][0].domain, chains_of(pages)))
    assert len(files_below(root)) == store.stats().pages
    store.close()
    return kept, wrongs


@pytest.mark.req("KV-3", "KV-6")
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("domain", DOMAINS)
def test_damage_between_two_runs(root: Path, domain: str, index: bool) -> None:
    pages = talk(domain, *"abc")
    store = disk(root)
    store.put_many(pages)
    store.close()
    paths = {path.name: path for path in files_below(root)}
    first, second, third = (paths[str(page.chain)] for page, _ in pages)
    bodies = [path.read_bytes() for path in (first, second, third)]

    def swap() -> None:
        overwrite(second, bodies[2])
        overwrite(third, bodies[1])

    def duplicate() -> None:
        (first.parent / str(chains_of(talk("x", "y"))[0])).write_bytes(bodies[0])
        (first.parent / "copy").write_bytes(bodies[0])

    for damage, expected in (
        (swap, 1),
        (second.unlink, 1),
        (lambda: overwrite(second, bodies[1][:-1]), 1),
        (lambda: overwrite(second, b""), 1),
        (lambda: overwrite(second, bodies[0]), 1),
        (lambda: overwrite(second, bodies[1][:20] + b"?" + bodies[1][21:]), 1),
        (lambda: overwrite(second, bodies[1][:-1] + b"?"), 1),
        (duplicate, 3),
        (first.unlink, 0),
    ):
        for path, body in zip((first, second, third), bodies, strict=True):
            overwrite(path, body)
        damage()
        if not index:
            for path in root.glob("index.db*"):
                path.unlink()
        assert reopened(root, pages) == (expected, 0)


@pytest.mark.req("AUT-5")
def test_a_file_of_another_domain_opens_nothing(root: Path) -> None:
    store = disk(root)
    ann, bob = talk("ann", "a"), talk("bob", "a")
    store.put_many(ann)
    store.put_many(bob)
    info = one(store, bob[0][0])
    store.close()
    folders = {path.parent.name: path for path in files_below(root)}
    mine, theirs = (folders[domain_digest(domain).hex()] for domain in ("ann", "bob"))
    overwrite(theirs, mine.read_bytes())
    store = disk(root)
    found = store.read(info)
    assert isinstance(found, Refused)
    assert found.reason in ("name", "missing")
    assert not theirs.exists()
    store.close()


@pytest.mark.req("KV-6")
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM pages",
        "DELETE FROM pages WHERE start = 24",
        "UPDATE pages SET start = 0, parent = x'' WHERE start = 24",
        "UPDATE pages SET tokens = 25",
        "UPDATE pages SET full_digest = zeroblob(32)",
        "UPDATE pages SET full_bytes = full_bytes + 1, sliding_bytes = sliding_bytes - 1",
        "UPDATE pages SET used_ns = -5",
        "UPDATE pages SET used_ns = 9223372036854775807",
        "INSERT INTO pages SELECT domain, zeroblob(32), parent, profile, start, tokens, full_bytes,"
        " full_digest, sliding_bytes, sliding_digest, file_bytes, digest, used_ns FROM pages"
        " WHERE start = 0",
        "DROP TABLE pages",
        "PRAGMA user_version = 99",
        "PRAGMA application_id = 1",
    ],
)
def test_an_index_that_lies_gives_no_wrong_rows(root: Path, statement: str) -> None:
    pages = talk("ann", *"abc")
    store = disk(root)
    store.put_many(pages)
    store.close()
    connection = apsw.Connection(str(root / "index.db"))
    connection.execute(statement)
    connection.close()
    assert reopened(root, pages) == (3, 0)


@pytest.mark.req("KV-6")
def test_a_damaged_index_file_gives_no_wrong_rows(root: Path) -> None:
    pages = talk("ann", *"abc")
    store = disk(root)
    store.put_many(pages)
    store.close()
    body = (root / "index.db").read_bytes()
    random = Random(11)
    for _ in range(max(12, 350 // STRIDE)):
        wounded = bytearray(body)
        for _ in range(random.choice((1, 8, 200))):
            wounded[random.randrange(len(body))] ^= 1 << random.randrange(8)
        overwrite(root / "index.db", bytes(wounded[: random.choice((len(body), 5_000, 40))]))
        assert reopened(root, pages) == (3, 0)
