"""Any bytes as a page's head, a page file, or a sealed section: the value that has these bytes, or
a documented refusal. The fuzz profile runs them with many more draws, and new ones each time.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random, SystemRandom

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import CorruptObject
from protocol.ids import ChainId
from protocol.page import PageRows, page_digest
from protocol.record import encode_record
from store.pages.files import Found, PageFiles
from store.pages.header import MAGIC, decode_head, domain_digest, encode_head
from store.pages.seal import unseal
from store.pages.tier import BOTH, FULL, PUBLIC, Refused, header_of
from tests.fuzz.test_decoders import mutate
from tests.page_samples import key_for, no_sync, overwrite, talk
from tests.stores import FAST

MUTANTS = max(1_500, settings().max_examples)
_FRESH = 7 if settings().derandomize else SystemRandom().getrandbits(32)
with_seed = pytest.mark.parametrize("seed", [int(os.environ.get("HUGINN_SEED", _FRESH))])
PAGES = [*talk("ann", "a", "b"), *talk(PUBLIC, "a", "b")]


@pytest.fixture
def files() -> Iterator[PageFiles]:
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        yield PageFiles(Path(folder), fsync=no_sync)


def check_head(data: bytes) -> bool:
    """Whether `data` begins with a head; asserts the one property of the decoder."""
    try:
        header, head = decode_head(data)
    except CorruptObject:
        return False
    assert data.startswith(head)
    assert encode_head(header) == head
    return True


@given(st.binary(max_size=600))
def test_any_bytes_as_a_head(data: bytes) -> None:
    check_head(data)
    check_head(MAGIC + data)


@with_seed
def test_mutated_heads_with_a_digest_that_fits(seed: int) -> None:
    """The digest would refuse nearly all of them: here it is made to fit."""
    import hashlib

    random = Random(seed)
    outcomes: Counter[bool] = Counter()
    for _ in range(MUTANTS):
        page, rows = random.choice(PAGES)
        body = mutate(random, encode_record(header_of(page, rows)))
        framed = MAGIC + len(body).to_bytes(4, "big") + body
        outcomes[check_head(framed + hashlib.sha256(framed).digest())] += 1
    # Some wounds make another page's header, which is well formed; most make none.
    assert outcomes[True] > 20
    assert outcomes[False] > 20


@pytest.mark.req("KV-3")
@with_seed
def test_mutated_files(files: PageFiles, seed: int) -> None:
    random = Random(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(MUTANTS // 5):
        page, rows = random.choice(PAGES)
        header = header_of(page, rows)
        key = None if page.domain == PUBLIC else key_for(page.domain)
        files.write(header, rows, key)
        path = files.path((header.domain, page.chain.digest))
        body = path.read_bytes()
        for _ in range(5):
            wounded = mutate(random, body)
            overwrite(path, wounded)
            sections = random.choice((FULL, BOTH))
            found = files.read(header, sections, key)
            if isinstance(found, Refused):
                outcomes[found.reason] += 1
                continue
            outcomes["rows"] += 1
            # Only what was not read may be wounded.
            assert found.full == rows.full
            assert found.sliding == (rows.sliding if sections == BOTH else b"")
            assert wounded == body or sections == FULL
            if sections == BOTH:
                assert page_digest(found) == page_digest(PageRows(found.full, rows.sliding))
    assert outcomes.keys() >= {"header", "size", "seal", "digest", "rows"}


@with_seed
def test_any_file_in_the_directory(files: PageFiles, seed: int) -> None:
    random = Random(seed)
    page, rows = PAGES[1]
    header = header_of(page, rows)
    files.write(header, rows, key_for("ann"))
    path = files.path((header.domain, page.chain.digest))
    body = path.read_bytes()
    for _ in range(MUTANTS // 5):
        wounded = random.choice((mutate(random, body), random.randbytes(random.randrange(700))))
        overwrite(path, wounded)
        (found,) = files.scan()
        assert found.bytes == len(wounded)
        assert found.chain == page.chain
        head = files.head(found)
        assert isinstance(head, Refused) or head == header
    gone = Found(path.with_name("gone"), domain_digest("ann"), page.chain, 0, 0)
    assert isinstance(files.head(gone), Refused)


@given(st.binary(max_size=200), st.binary(max_size=20))
def test_any_bytes_as_a_sealed_section(data: bytes, head: bytes) -> None:
    for section in BOTH:
        with pytest.raises(CorruptObject):
            unseal(data, section, head=head, domain_key=key_for("ann"))


@given(st.text(max_size=80) | st.from_regex(r"chain:[a-z2-7=A-Z]{50,54}(\.unfinished)?"))
def test_any_name_in_the_directory(name: str) -> None:
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        return
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        files = PageFiles(Path(folder), fsync=no_sync)
        below = files.root / domain_digest("ann").hex()
        below.mkdir()
        try:
            (below / name).write_bytes(b"")
        except (OSError, UnicodeEncodeError):
            return
        (found,) = files.scan()
        assert found.chain is None or str(ChainId.parse(name)) == name
        assert files.remove(found.path) == 0
        assert list(files.scan()) == []
