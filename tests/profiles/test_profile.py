"""A profile's id covers every field, and workers under two profiles share nothing (KV-1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec
import pytest

from actors.worker.drivers import LoopDriver
from profiles.profile import MACHINE_ISA, RuntimeProfile, isa
from protocol.derivation import invocation_id, open_evidence
from protocol.ids import ChainId, InvocationId, ProfileId, StateId
from protocol.record import Record, decode_record, encode_record, object_id
from protocol.tokens import TokenIds, pack
from tests.fake_backend import FakeBackend
from tests.kept_states import BACKEND, Keeper
from tests.model_fixtures import tiny
from tests.worker_rooms import CHUNK, OPENER, Listener, opened
from tests.worker_talks import some_talk

R = TypeVar("R", bound=Record)


def pinned(kind: type[Record]) -> Iterator[str]:
    """The names of the fields of `kind`, and of the records in it: all that there are."""
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, Record):
            yield from (f"{field.name}.{name}" for name in pinned(field.type))
        else:
            yield field.name


def changed(record: R, name: str) -> R:
    """The record with that one field, maybe of a record in it, changed."""
    first, _, rest = name.partition(".")
    value = getattr(record, first)
    if rest:
        return msgspec.structs.replace(record, **{first: changed(value, rest)})
    (kind,) = (field.type for field in msgspec.structs.fields(type(record)) if field.name == first)
    return msgspec.structs.replace(record, **{first: other(value, kind)})


def other(value: object, kind: object) -> object:
    """Another value of that type: one that the type allows, if it allows more than one."""
    if get_origin(kind) is Literal:
        for choice in get_args(kind):
            if choice != value:
                return choice
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "x"
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:]
        case tuple():
            return (*value, "x")
        case dict():
            return {**value, "x": 7}
    raise TypeError(value)


# From the record itself: a new field is a new case, or fails for want of another value.
PINNED = tuple(pinned(RuntimeProfile))
TALK = some_talk()


class Came(NamedTuple):
    """What came of one answer: its receipt's numbers, and what the tiers and muninn had of it."""

    ids: TokenIds
    digest: StateId | None
    prompt_tokens: int
    reused_tokens: int
    last_advance: int
    pages_verified: int
    tiers: dict[str, int]
    chains: set[ChainId]
    found_before: set[ChainId]
    found_after: set[ChainId]
    told: set[InvocationId]


async def came_of(root: Path, profile: RuntimeProfile) -> Came:
    """A new worker under `profile` over the pages in `root` answers `TALK`, and is gone."""
    profile_id, listener, keeper = ProfileId(object_id(profile).digest), Listener(), Keeper(root)
    backend = FakeBackend(chunk_tokens=CHUNK, **BACKEND)
    tiers = keeper.open()
    async with opened(
        backend,
        driver=LoopDriver(),
        profile=profile_id,
        tiers=tiers,
        mailbox=listener,
        states_equal=True,
    ) as bench:
        prompt = bench.room._reader.read(TALK.segments, pack(OPENER), answer_tokens=1)
        before = {info.page.chain for info in keeper.disk.find("alice", prompt.chains)}
        answer = await bench.answer(TALK.segments)
        receipt = await bench.receipt()
        keeper.writer.flush()
        after = {info.page.chain for info in keeper.disk.find("alice", prompt.chains)}
    evidence = [open_evidence(each.evidence or b"") for each in listener.heard]
    assert {each.domain for each in evidence} == {"alice"}
    return Came(
        ids=answer.ids,
        digest=receipt.state_digest,
        prompt_tokens=receipt.prompt_tokens,
        reused_tokens=receipt.reused_tokens,
        last_advance=len(prompt.advances[-1].ids),
        pages_verified=receipt.pages_verified,
        tiers=receipt.tiers,
        chains=set(prompt.chains),
        found_before=before,
        found_after=after,
        told={invocation_id(each.invocation) for each in listener.heard},
    )


@pytest.mark.req("KV-1")
@pytest.mark.parametrize("field", PINNED)
async def test_two_workers_whose_profiles_differ_in_one_field_share_nothing(
    field: str, tmp_path: Path
) -> None:
    """Over one directory, for one domain and one prompt. The back end does not know its profile:
    both compute the same bytes, and the profile's id alone keeps them apart."""
    _, profile = tiny()
    one = await came_of(tmp_path, profile)
    assert one.found_after == one.chains
    assert len(one.told) > len(one.chains), "each advance, and the answer"
    two = await came_of(tmp_path, changed(profile, field))
    assert two.found_before == set()
    assert (two.reused_tokens, two.pages_verified, set(two.tiers.values())) == (0, 0, {0})
    assert not two.chains & one.chains
    assert not two.told & one.told
    assert (two.ids, two.digest) == (one.ids, one.digest)
    # The first again: all that it kept is still there, beside the other's.
    again = await came_of(tmp_path, profile)
    assert again.found_before == one.chains
    assert again.reused_tokens == one.prompt_tokens - one.last_advance > 0
    assert again.pages_verified == len(one.chains) - 1
    assert again.tiers == {**one.tiers, "disk": again.reused_tokens}
    assert again.told < one.told
    assert (again.ids, again.digest) == (one.ids, one.digest)


@pytest.mark.req("KV-1")
def test_every_field_has_an_id_of_its_own_and_all_that_is_required_is_pinned() -> None:
    _, profile = tiny()
    ids = {object_id(changed(profile, field)) for field in PINNED} | {object_id(profile)}
    assert len(ids) == len(PINNED) + 1
    # What the requirement lists, by the name of the field that pins it.
    assert set(PINNED) >= {
        *("model.weights_digest", "model.window_tokens", "model.layers", "model.architecture"),
        *("tokenizer.vocabulary_digest", "tokenizer.deny_digest", "tokenizer.control"),
        *("tokenizer.discipline", "grammar", "compute_dtype", "kv_type", "kv_layout"),
        *("attention", "rope", "context_tokens", "adapter", "device_class", "backend"),
        *("backend_version", "build_digest", "machine", "isa", "threads_decode", "schedule"),
        *("batch_tokens", "ubatch_tokens", "streams", "swa_full", "kv_unified", "group_max"),
        *("page_tokens", "reduction", "equality", "reproducible_generation", "weights_repack"),
    }


def test_a_profile_is_a_record_that_comes_back() -> None:
    _, profile = tiny()
    assert decode_record(RuntimeProfile, encode_record(profile)) == profile


def test_instruction_sets_by_machine() -> None:
    assert isa("x86_64") == isa("AMD64") == ("avx2", "bmi2", "f16c", "fma")
    assert isa("aarch64") == ()
    assert all(list(sets) == sorted(sets) for sets in MACHINE_ISA.values())
