"""Families: what is taken and given, and what may be remembered."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import cbor
from protocol.derivation import (
    Derivation,
    DerivationInvocation,
    ExecutionClass,
    Output,
    Parameters,
    invocation_id,
    numbered,
)
from protocol.errors import ContentError
from protocol.families import (
    ADVANCE,
    ADVANCE_FAMILY,
    ASSEMBLE_FAMILY,
    FAMILIES,
    GENERATE,
    GENERATE_FAMILY,
    NO_PARAMETERS,
    advanced,
    advancing,
    assembled,
    assembling,
    generated,
    generating,
    unremembered,
)
from protocol.ids import (
    BlockId,
    ChainId,
    ContextId,
    ContractId,
    PageId,
    ProfileId,
    StateId,
    TokensId,
    TransformId,
)
from protocol.record import object_id
from tests.derivations import PROFILE, advance, assembly, generation

# What is stored names these. One that moves makes a new family beside the old one.
FROZEN = {
    "advance": "transform:xx6woxisy7u7bdls26433miacd62xzsyhkspakhrja4pxsxto4ia",
    "generate": "transform:gizszz3edi65ucdanmxjruh3ktmduycu2juqtzepw6xkn7uyijlq",
    "parameters": "params:djvqxyh7cd22ahg6kgfv3qawt4spudmrb67z6ug3aho75fewrsoa",
    "assemble takes": "contract:vubi26hpkdij2jrxhmxuyrxkerjo6rnlvad4xapcxeygvazbq54a",
    "assemble gives": "contract:ldmwplttc7rjklzyqz22bajuezrzwaqoypd5yjtoxovxkuvypvfq",
    "advance takes": "contract:dmchasolt4sl2y7js7xvcjzf5agmykjeukmwgkn4fozeg6mzdbfa",
    "advance gives": "contract:xhke3utbxqeupsbdir3hce73esbcv6vhydmkggmerxpninaluebq",
    "generate takes": "contract:rh47z7ydjfcxrvubhekkt6hy6oxqiv7iatl6sz2pnt2nwlhnex2a",
    "generate gives": "contract:e4mohya36jlamukpaur7o6p5a5ckwcmsogtkeyqoreqibae5siuq",
}
STREAM = TokensId.of(b"stream")


@pytest.mark.req("DRV-7")
def test_the_families_keep_their_names() -> None:
    found = {
        "advance": object_id(ADVANCE),
        "generate": object_id(GENERATE),
        "parameters": object_id(NO_PARAMETERS),
    }
    for family in (ASSEMBLE_FAMILY, ADVANCE_FAMILY, GENERATE_FAMILY):
        found[f"{family.takes.name} takes"] = object_id(family.takes)
        found[f"{family.takes.name} gives"] = object_id(family.gives)
    assert {name: str(each) for name, each in found.items()} == FROZEN
    assert len(FAMILIES) == 3


@pytest.mark.req("DRV-7")
def test_assembling_names_what_the_context_names() -> None:
    derivation = assembled(assembly(1), STREAM)
    assert derivation.invocation == assembling(assembly(1))
    assert derivation.outputs == (
        Output("context", str(object_id(assembly(1)))),
        Output("stream", str(STREAM)),
    )
    FAMILIES[derivation.invocation.transform_contract].check(derivation)
    # Each field of the assembly is in the invocation: another value is another invocation.
    others = [assembling(assembly(1))]
    for name in type(assembly(1)).__struct_fields__:
        if name == "format_version":
            continue
        kind = type(getattr(assembly(1), name))
        others.append(
            assembling(msgspec.structs.replace(assembly(1), **{name: kind.of(b"another")}))
        )
    assert len({invocation_id(each) for each in others}) == len(others) == 10


@pytest.mark.req("DRV-7")
def test_advancing_names_profile_state_and_tokens() -> None:
    chain, tokens = ChainId.of(b"c"), TokensId.of(b"t")
    base = advancing(PROFILE, chain, tokens)
    others = [
        base,
        advancing(ProfileId.of(b"other"), chain, tokens),
        advancing(PROFILE, ChainId.of(b"d"), tokens),
        advancing(PROFILE, None, tokens),
        advancing(PROFILE, chain, TokensId.of(b"u")),
    ]
    assert len({invocation_id(each) for each in others}) == len(others)
    pages = [PageId.of(b"1"), PageId.of(b"2")]
    derivation = advanced(PROFILE, chain, tokens, ChainId.of(b"e"), pages)
    assert derivation.invocation == base
    assert [output.id for output in derivation.outputs[1:]] == [str(page) for page in pages]
    ADVANCE_FAMILY.check(derivation)
    ADVANCE_FAMILY.check(advance(0))


@pytest.mark.req("DRV-3")
@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ((), "'chain', which is missing"),
        ((Output("page", str(PageId.of(b""))),), "'chain', which is missing"),
        ((Output("chain", str(PageId.of(b""))),), "a chain id"),
        ((Output("chain", str(ChainId.of(b""))),) * 2, "no 'chain' in that place"),
        (
            (Output("chain", str(ChainId.of(b""))), Output("more", str(ChainId.of(b"")))),
            "no 'more' in that place",
        ),
    ],
)
def test_a_result_that_is_not_whole_is_none(outputs: tuple[Output, ...], said: str) -> None:
    with pytest.raises(ContentError, match=said):
        ADVANCE_FAMILY.check(Derivation(advance(1).invocation, outputs))


@pytest.mark.parametrize(
    "change",
    [
        {"transform": TransformId.of(b"other")},
        {"output_contract": ContractId.of(b"other")},
        {"runtime_profile": None},
        {"inputs": ()},
        {"inputs": numbered([("previous", BlockId.of(b"")), ("tokens", STREAM)])},
        {"inputs": numbered([("tokens", STREAM), ("previous", ChainId.of(b""))])},
        {"inputs": numbered([("tokens", STREAM), ("tokens", STREAM)])},
    ],
    ids=str,
)
def test_an_invocation_fits_its_contract(change: dict[str, object]) -> None:
    derivation = advance(1)
    invocation = msgspec.structs.replace(derivation.invocation, **change)
    with pytest.raises(ContentError):
        ADVANCE_FAMILY.check(Derivation(invocation, derivation.outputs))


def test_assembling_has_no_profile() -> None:
    derivation = assembled(assembly(1), STREAM)
    invocation = msgspec.structs.replace(derivation.invocation, runtime_profile=PROFILE)
    with pytest.raises(ContentError, match="no runtime profile"):
        ASSEMBLE_FAMILY.check(Derivation(invocation, derivation.outputs))


@pytest.mark.req("KV-2", "DRV-1", "DRV-7")
@given(
    profile=st.binary(max_size=2),
    previous=st.none() | st.binary(max_size=2),
    fed=st.binary(max_size=2),
    snapshots=st.lists(st.none() | st.lists(st.binary(max_size=2), max_size=3), max_size=6),
)
def test_a_snapshot_is_all_that_tells_two_advances_apart(
    profile: bytes, previous: bytes | None, fed: bytes, snapshots: list[list[bytes] | None]
) -> None:
    started = [
        None if pages is None else StateId.of(cbor.encode([PageId.of(p).digest for p in pages]))
        for pages in snapshots
    ]
    before = None if previous is None else ChainId.of(previous)
    made = [
        advanced(
            ProfileId.of(profile),
            before,
            TokensId.of(fed),
            ChainId.of(b"after"),
            [PageId.of(b"page")],
            snapshot=snapshot,
        )
        for snapshot in started
    ]
    for one, snapshot in zip(made, started, strict=True):
        ADVANCE_FAMILY.check(one)
        assert unremembered(one.invocation, ()) is None
        assert one.invocation == advancing(
            ProfileId.of(profile), before, TokensId.of(fed), snapshot=snapshot
        )
        bound = one.invocation.execution_class is ExecutionClass.SNAPSHOT_BOUND
        assert bound is (snapshot is not None)
    ids = {invocation_id(one.invocation) for one in made}
    assert len(ids) == len(set(started))


@pytest.mark.req("DRV-2", "KV-2")
def test_only_an_advance_is_bound_to_a_snapshot_and_only_to_a_state() -> None:
    state = str(StateId.of(b""))
    for derivation, snapshot in (
        (advance(1), str(ContextId.of(b""))),
        (assembled(assembly(1), STREAM), state),
        (Derivation(generation(), (Output("answer", str(STREAM)),)), state),
    ):
        family = FAMILIES[derivation.invocation.transform_contract]
        family.check(derivation)
        bound = msgspec.structs.replace(
            derivation.invocation,
            execution_class=ExecutionClass.SNAPSHOT_BOUND,
            snapshot=snapshot,
        )
        with pytest.raises(ContentError, match="is bound to"):
            family.check(Derivation(bound, derivation.outputs))


# -- what is remembered ----------------------------------------------------------------------


def classed(execution_class: ExecutionClass) -> DerivationInvocation:
    snapshot = str(ContextId.of(b"")) if execution_class is ExecutionClass.SNAPSHOT_BOUND else None
    return msgspec.structs.replace(
        advance(1).invocation, execution_class=execution_class, snapshot=snapshot
    )


@pytest.mark.req("DRV-2")
def test_only_what_is_pure_or_bound_to_a_snapshot_is_remembered() -> None:
    remembered = {each for each in ExecutionClass if unremembered(classed(each), ()) is None}
    assert remembered == {ExecutionClass.PURE, ExecutionClass.SNAPSHOT_BOUND}


@pytest.mark.req("DRV-2")
def test_sampling_is_remembered_only_where_it_was_proved_reproducible() -> None:
    assert unremembered(advance(1).invocation, ()) is None
    assert "without a seed" in str(unremembered(generation(seed=None), {PROFILE}))
    assert "has not proved" in str(unremembered(generation(), ()))
    assert "has not proved" in str(unremembered(generation(), {ProfileId.of(b"other")}))
    assert "has not proved" in str(unremembered(generation(runtime_profile=None), {PROFILE}))
    assert unremembered(generation(), {PROFILE}) is None
    chance = generation(execution_class=ExecutionClass.NONDETERMINISTIC)
    assert "nondeterministic" in str(unremembered(chance, {PROFILE}))
    # A seed makes whatever takes one depend on a promise.
    seeded = msgspec.structs.replace(advance(1).invocation, seed=1)
    assert "has not proved" in str(unremembered(seeded, ()))


@pytest.mark.req("DRV-2")
def test_what_no_family_knows_is_not_remembered() -> None:
    unknown = msgspec.structs.replace(
        advance(1).invocation, transform_contract=ContractId.of(b"mine")
    )
    assert "no family" in str(unremembered(unknown, ()))


def test_parameters_that_are_spelled_out_are_others() -> None:
    assert object_id(Parameters(v=1, values={"top_k": 0})) != object_id(NO_PARAMETERS)


@pytest.mark.req("DRV-1", "DRV-7")
def test_generating_names_state_parameters_and_seed() -> None:
    state, parameters = ChainId.of(b"state"), Parameters(v=1, values={"top_k": 3})
    answer = TokensId.of(b"answer")
    derivation = generated(PROFILE, state, parameters, 5, answer)
    FAMILIES[derivation.invocation.transform_contract].check(derivation)
    assert derivation.invocation == generating(PROFILE, state, parameters, 5)
    assert derivation.outputs == (Output("answer", str(answer)),)
    others = [
        generating(ProfileId.of(b"other"), state, parameters, 5),
        generating(PROFILE, ChainId.of(b"other"), parameters, 5),
        generating(PROFILE, state, NO_PARAMETERS, 5),
        generating(PROFILE, state, parameters, 6),
    ]
    named = {invocation_id(each) for each in (derivation.invocation, *others)}
    assert len(named) == 5
    assert unremembered(derivation.invocation, [PROFILE]) is None
    assert unremembered(derivation.invocation, []) is not None
