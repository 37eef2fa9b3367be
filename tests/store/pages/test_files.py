from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from protocol.ids import ChainId
from protocol.page import PageRows
from store.pages.files import PageFiles, file_bytes
from store.pages.header import PageHeader, domain_digest, encode_head
from store.pages.seal import SEAL_BYTES
from store.pages.tier import BOTH, FULL, PUBLIC, Refused, header_of
from tests.page_samples import (
    MODEL_FULL_BYTES,
    MODEL_SLIDING_BYTES,
    Pages,
    chain,
    files_below,
    key_for,
    no_sync,
    overwrite,
    rows_of,
    talk,
)

PAGE, ROWS = talk("ann", "a", "b")[1]
HEADER = header_of(PAGE, ROWS)
KEY = (HEADER.domain, HEADER.chain.digest)
SECRET = key_for("ann")


@pytest.fixture
def files(tmp_path: Path) -> PageFiles:
    return PageFiles(tmp_path / "pages", fsync=no_sync)


def reason(found: PageRows | PageHeader | Refused) -> str:
    return found.reason if isinstance(found, Refused) else "none"


def test_a_file_lies_under_its_chain_in_a_folder_that_does_not_say_whose(files: PageFiles) -> None:
    size = files.write(HEADER, ROWS, SECRET)
    path = files.root / domain_digest("ann").hex() / str(PAGE.chain)
    assert files_below(files.root) == [path] == [files.path(KEY)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.stat().st_size == size == file_bytes(HEADER, encode_head(HEADER))
    body = path.read_bytes()
    assert b"ann" not in body
    assert ROWS.full[:16] not in body
    assert ROWS.sliding[:16] not in body
    assert files.read(HEADER, BOTH, SECRET) == ROWS
    assert files.has(KEY, size)
    assert not files.has(KEY, size - 1)


def test_a_public_file_lies_open(files: PageFiles) -> None:
    page, rows = talk(PUBLIC, "a")[0]
    header = header_of(page, rows)
    size = files.write(header, rows, None)
    body = files.path((header.domain, page.chain.digest)).read_bytes()
    assert body == encode_head(header) + rows.full + rows.sliding
    assert len(body) == size
    assert files.read(header, BOTH, None) == rows


@pytest.mark.req("KV-3")
@pytest.mark.parametrize("tokens", [256, 24, 1])
@pytest.mark.parametrize("domain", ["ann", PUBLIC])
def test_a_page_of_the_model_costs_five_percent_at_most(
    files: PageFiles, domain: str, tokens: int
) -> None:
    page = talk(domain, "a", "b", tokens=tokens)[1][0]
    rows = rows_of(page, MODEL_FULL_BYTES * tokens, MODEL_SLIDING_BYTES * tokens)
    header = header_of(page, rows)
    files.write(header, rows, None if domain == PUBLIC else SECRET)
    on_disk = sum(path.stat().st_size for path in files_below(files.root))
    payload = len(rows.full) + len(rows.sliding)
    assert payload == 18_432 * tokens
    assert on_disk <= 1.05 * payload
    # The head and two seals, and not a byte more.
    assert on_disk == payload + len(encode_head(header)) + (domain != PUBLIC) * 2 * SEAL_BYTES


def test_the_order_that_a_power_cut_needs(tmp_path: Path) -> None:
    log: list[tuple[str, bool]] = []
    files = PageFiles(
        tmp_path,
        fsync=lambda fd: log.append((os.readlink(f"/proc/self/fd/{fd}"), path.exists())),
    )
    path = files.path(KEY)
    files.write(HEADER, ROWS, SECRET)
    files.sync(HEADER.domain)
    assert log == [
        (str(tmp_path), False),
        (f"{path}.unfinished", False),
        (str(path.parent), True),
    ]


def test_what_a_crash_left_is_written_over(files: PageFiles) -> None:
    path = files.path(KEY)
    path.parent.mkdir(parents=True)
    path.with_name(path.name + ".unfinished").write_bytes(b"half")
    files.write(HEADER, ROWS, SECRET)
    assert files_below(files.root) == [path]
    assert files.read(HEADER, BOTH, SECRET) == ROWS


def test_a_rename_that_fails_leaves_nothing(files: PageFiles) -> None:
    # A directory in its place.
    (files.path(KEY) / "below").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        files.write(HEADER, ROWS, SECRET)
    assert files_below(files.root) == []


def test_only_the_section_that_is_asked_for_is_read(files: PageFiles) -> None:
    files.write(HEADER, ROWS, SECRET)
    path = files.path(KEY)
    body = path.read_bytes()
    overwrite(path, body[:-1] + bytes((body[-1] ^ 1,)))
    assert files.read(HEADER, FULL, SECRET) == PageRows(full=ROWS.full, sliding=b"")
    assert reason(files.read(HEADER, BOTH, SECRET)) == "seal"
    assert reason(files.read(HEADER, ("sliding",), SECRET)) == "seal"


def test_each_way_to_be_refused(files: PageFiles) -> None:
    path = files.path(KEY)
    assert reason(files.read(HEADER, FULL, SECRET)) == "missing"
    files.write(HEADER, ROWS, SECRET)
    body = path.read_bytes()
    assert reason(files.read(HEADER, FULL, key_for("bob"))) == "seal"
    other = header_of(PAGE, PageRows(full=ROWS.full, sliding=b""))
    assert reason(files.read(other, FULL, SECRET)) == "mismatch"
    for wounded, expected in (
        (b"", "header"),
        (b"X" + body[1:], "header"),
        (body[:200], "header"),
        (body[:-1], "size"),
        (body + b"\0", "size"),
    ):
        overwrite(path, wounded)
        assert reason(files.read(HEADER, FULL, SECRET)) == expected
    path.unlink()
    path.mkdir()
    assert reason(files.read(HEADER, FULL, SECRET)) == "io"
    path.rmdir()
    os.mkfifo(path)
    assert reason(files.read(HEADER, FULL, SECRET)) == "io"
    path.unlink()
    path.symlink_to("/dev/zero")
    assert reason(files.read(HEADER, FULL, SECRET)) == "io"
    page, rows = talk(PUBLIC, "a")[0]
    public = header_of(page, rows)
    files.write(public, rows, None)
    path = files.path((public.domain, page.chain.digest))
    overwrite(path, path.read_bytes()[:-1] + b"?")
    assert reason(files.read(public, BOTH, None)) == "digest"


def test_a_page_under_another_name_is_refused(files: PageFiles) -> None:
    files.write(HEADER, ROWS, SECRET)
    body = files.path(KEY).read_bytes()
    for key in ((HEADER.domain, bytes(32)), (domain_digest("bob"), PAGE.chain.digest)):
        path = files.path(key)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(body)
    found = {(each.domain, each.chain): files.head(each) for each in files.scan()}
    assert found.pop((HEADER.domain, PAGE.chain)) == HEADER
    assert [reason(each) for each in found.values()] == ["name", "name"]


def test_a_scan_lists_files_in_domain_folders_alone(files: PageFiles) -> None:
    files.write(HEADER, ROWS, SECRET)
    folder = files.path(KEY).parent
    (folder / "stray").write_bytes(b"12")
    (folder / f"{chain('x')}.unfinished").write_bytes(b"1")
    (folder / str(chain("y"))).symlink_to("stray")
    (folder / "below").mkdir()
    (files.root / "index.db").write_bytes(b"1")
    (files.root / "other").mkdir()
    (files.root / "other" / str(chain("z"))).write_bytes(b"1")
    (files.root / ("ab" * 32)).symlink_to(folder)
    found = {each.path.name: each for each in files.scan()}
    assert found.keys() == {str(PAGE.chain), "stray", f"{chain('x')}.unfinished", str(chain("y"))}
    assert [each.chain for each in found.values() if each.chain] == [PAGE.chain]
    assert found["stray"].bytes == 2
    assert reason(files.head(found[str(chain("y"))])) == "io"


def test_removing_and_dropping(files: PageFiles) -> None:
    pages: Pages = [*talk("ann", *"abc"), *talk("bob", "a")]
    sizes = [files.write(header_of(*each), each[1], key_for(each[0].domain)) for each in pages]
    ann = domain_digest("ann")
    first = files.path((ann, pages[0][0].chain.digest))
    assert files.remove(first) == sizes[0]
    assert files.remove(first) == 0
    (first.parent / "below").mkdir()
    (first.parent / "below" / "stray").write_bytes(b"12")
    (first.parent / "link").symlink_to(files.root)
    count, size = files.drop(ann)
    assert count in (3, 4)  # the link to a folder is a folder to the walk
    assert size >= sum(sizes[1:3]) + 2
    assert not first.parent.exists()
    assert files.drop(ann) == (0, 0)
    assert len(files_below(files.root)) == 1
    assert ChainId.parse(files_below(files.root)[0].name) == pages[3][0].chain
