"""Loading and binding profiles."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from profiles import loader
from profiles.profile import isa
from protocol.errors import ProfileFault
from protocol.record import object_id
from tests import tiny_gemma

BUILD = b"\7" * 32


def test_every_shipped_profile_loads_under_its_name() -> None:
    assert loader.DEFAULT in loader.names()
    for name in loader.names():
        assert loader.load(name).name == name


def test_a_path_loads_as_the_name_does(tmp_path: Path) -> None:
    copy = tmp_path / "tiny-gemma.toml"
    copy.write_bytes((loader._DIRECTORY / "tiny-gemma.toml").read_bytes())
    assert loader.load(copy) == loader.load("tiny-gemma")
    assert loader.load(str(copy)) == loader.load("tiny-gemma")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ProfileFault, match=loader.DEFAULT):
        loader.load("gemma-9000")
    with pytest.raises(ProfileFault, match="no profile"):
        loader.load("../profiles/tiny-gemma")


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    for content in (b"[weights", b"\xff\xfe"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(ProfileFault, match=r"bad\.toml"):
            loader.load(tmp_path / "bad.toml")
    with pytest.raises(ProfileFault, match=r"none\.toml"):
        loader.load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("context_tokens = 2048", "context_tokens = 2000", "runtime.context_tokens"),
        ('schedule = "block/64"', 'schedule = "block/128"', "runtime.schedule"),
        ("batch_tokens = 256", "batch_tokens = 32", "runtime.batch_tokens"),
        ("window_tokens = 64", "window_tokens = 63", "runtime.chunk_tokens"),
        ("page_tokens = 64", "page_tokens = 128", "runtime.page_tokens"),
        ("group_max = 3", "group_max = 5", "runtime.group_max"),
        ('equality = "bitwise"', 'equality = "token"', "runtime.reproducible_generation"),
        ("bos = 2", "bos = 392", "tokenizer.control"),
        ("[weights]", 'name = "other"\n[weights]', "name"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    tmp_path: Path, old: str, new: str, named: str
) -> None:
    text = (loader._DIRECTORY / "tiny-gemma.toml").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "tiny-gemma.toml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ProfileFault) as caught:
        loader.load(path)
    assert f"`{named}`" in str(caught.value)


@pytest.mark.req("KV-1")
def test_binding_adds_the_machine_and_the_build() -> None:
    spec, path = loader.load("tiny-gemma"), tiny_gemma.cached()
    profile = loader.bind(spec, path, BUILD)
    assert profile.build_digest == BUILD
    assert profile.machine == platform.machine()
    assert profile.isa == isa(platform.machine())
    assert profile.model.weights_digest.hex() == spec.weights.sha256
    assert profile.model == loader.model_contract(spec)
    assert profile.tokenizer == loader.tokenizer_contract(spec)
    assert object_id(profile) == object_id(loader.bind(spec, path, BUILD))
    assert object_id(profile) != object_id(loader.bind(spec, path, b"\6" * 32))


@pytest.mark.req("KV-1")
def test_other_weights_do_not_bind(tmp_path: Path) -> None:
    spec = loader.load("tiny-gemma")
    other = tmp_path / "tiny-gemma.gguf"
    other.write_bytes(tiny_gemma.cached().read_bytes() + b"\0")
    with pytest.raises(ProfileFault, match=spec.weights.sha256):
        loader.bind(spec, other, BUILD)
    with pytest.raises(ProfileFault, match="cannot be read"):
        loader.bind(spec, tmp_path / "missing.gguf", BUILD)
    with pytest.raises(ProfileFault, match="32 bytes"):
        loader.bind(spec, tiny_gemma.cached(), b"short")


def test_the_default_names_the_real_model() -> None:
    spec = loader.load()
    assert spec.weights.size_bytes == 253_113_024
    assert len(spec.weights.parts) == 4
    assert (spec.model.layers, spec.model.window_tokens) == (18, 512)
    assert not spec.model.instruct
    assert spec.runtime.reproducible_generation


@pytest.mark.req("KV-1")
def test_the_throughput_profile_is_the_default_but_for_its_shape_and_its_promise() -> None:
    exact, wide = loader.load(), loader.load("gemma3-270m-throughput")
    assert (wide.weights, wide.model, wide.tokenizer) == (
        exact.weights,
        exact.model,
        exact.tokenizer,
    )
    pinned = {f: getattr(exact.runtime, f) for f in exact.runtime.__struct_fields__}
    differing = {
        f: getattr(wide.runtime, f) for f in pinned if getattr(wide.runtime, f) != pinned[f]
    }
    assert differing == {
        "streams": 8,
        "context_tokens": 4096,
        "group_max": 8,
        "reproducible_generation": False,
    }
    assert wide.runtime.equality == "bitwise"
    assert (
        wide.runtime.streams * wide.runtime.context_tokens
        == exact.runtime.streams * exact.runtime.context_tokens
    ), "both take the same memory"


@pytest.mark.req("KV-2")
def test_a_profile_may_promise_no_equal_states(tmp_path: Path) -> None:
    text = (loader._DIRECTORY / "tiny-gemma.toml").read_text(encoding="utf-8")
    text = text.replace('equality = "bitwise"', 'equality = "token"')
    text = text.replace("reproducible_generation = true", "reproducible_generation = false")
    path = tmp_path / "tiny-gemma.toml"
    path.write_text(text, encoding="utf-8")
    exact, token = loader.load("tiny-gemma"), loader.load(path)
    assert (token.runtime.equality, token.runtime.reproducible_generation) == ("token", False)
    bound = [loader.bind(each, tiny_gemma.cached(), BUILD) for each in (exact, token)]
    assert object_id(bound[0]) != object_id(bound[1])
