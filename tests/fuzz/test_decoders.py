"""Any bytes give a value whose encoding is those bytes, or a documented error; never another.

One target for each decoder of the protocol. The fuzz profile runs them with many more draws, and
new ones each time.
"""

from __future__ import annotations

import contextlib
import os
from random import Random, SystemRandom

import cbor2
import cbrrr
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol import cbor, errors, ids, tokens
from protocol.event_log import START, SourceLog, Verdict
from protocol.events import EVENT_CONTEXT, event_id, open_entry, read_entry, sign_event
from protocol.record import Record, decode_record, encode_record
from protocol.signing import pack_signed
from tests.cbor_vectors import REFUSED, REPORTS, Refused
from tests.event_logs import SIGNER, entry_after
from tests.records import RECORDS, Sampler

# A plain loop is a hundred times faster than Hypothesis: more draws, for as long a run.
MUTANTS = max(20_000, 30 * settings().max_examples)
RECORDS_OF_A_KIND = max(20, settings().max_examples // 40)
# New draws in each long run. The seed stands in the test's name; `HUGINN_SEED` draws them again.
_FRESH = 7 if settings().derandomize else SystemRandom().getrandbits(32)
with_seed = pytest.mark.parametrize("seed", [int(os.environ.get("HUGINN_SEED", _FRESH))])
# A mutated head is where most defects of decoders were: heads, lengths, and the ends of text.
_BYTES = bytes.fromhex("00 17 18 19 1a 1b 1f 20 38 3b 40 58 5f 60 61 78 7f 80 81 98 9b 9f a0 a1 b8")
_BYTES += bytes.fromhex("bb bf c0 c2 d8 d9 e0 f4 f5 f6 f7 f8 f9 fa fb ff 7f 80 c3 ed")

SEEDS = st.integers(0, 2**63)
PREFIXES = st.sampled_from(["block", "ctx", "rope", ""])
DIGESTS = st.text("abcdefghijklmnopqrstuvwxyz234567AZ=", min_size=50, max_size=54)


def mutate(random: Random, data: bytes) -> bytes:
    """`data` with one to three small wounds."""
    wounded = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(wounded) + 1)
        match random.randrange(7):
            case 0 if wounded:
                wounded[at % len(wounded)] ^= 1 << random.randrange(8)
            case 1 if wounded:
                wounded[at % len(wounded)] = random.choice(_BYTES)
            case 2:
                wounded.insert(at, random.choice(_BYTES))
            case 3:
                del wounded[at : at + random.choice((1, 1, 2, 8))]
            case 4:
                del wounded[at:]
            case 5:
                wounded += wounded[at:]
            case _:
                other = random.randrange(len(wounded) + 1)
                wounded[at:at] = wounded[other : other + random.randrange(1, 40)]
    return bytes(wounded)


def taken_elsewhere(data: bytes) -> bool:
    try:
        cbrrr.decode_dag_cbor(data)
    except ValueError:
        return False
    return True


def check_cbor(data: bytes) -> str:
    """`value`, or the rule that refused; asserts the one property of the decoder."""
    try:
        value = cbor.decode(data)
    except errors.EncodingError as refused:
        error = refused
    else:
        assert cbor.encode(value) == data
        assert cbrrr.decode_dag_cbor(data) == cbor2.loads(data) == value
        return "value"
    assert 0 <= error.offset <= len(data)
    # The other strict decoder takes a wider profile, and only in these ways.
    assert error.rule in ("float", "tag", "range", "depth") or not taken_elsewhere(data)
    return error.rule


@pytest.mark.req("ID-1")
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    check_cbor(data)


@pytest.mark.req("ID-1", "ID-2")
@with_seed
def test_mutated_encodings(seed: int) -> None:
    sampler = Sampler(Random(seed))
    outcomes: set[str] = set()
    for _ in range(MUTANTS):
        outcomes.add(check_cbor(mutate(sampler.random, cbor.encode(sampler.value()))))
    # The wounds reach every rule, but for those that need a special shape, which have vectors.
    assert outcomes >= {v.rule for v in REFUSED} - {"depth"} | {"value"}


@pytest.mark.req("ID-1")
@given(st.sampled_from([*REFUSED, *REPORTS]), SEEDS)
def test_mutated_vectors(vector: Refused, seed: int) -> None:
    check_cbor(mutate(Random(seed), bytes.fromhex(vector.hex)))


@pytest.mark.req("ID-1")
@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
@with_seed
def test_bytes_as_every_record(kind: type[Record], seed: int) -> None:
    sampler = Sampler(Random(f"{kind.__qualname__} {seed}"))
    accepted = 0
    for _ in range(RECORDS_OF_A_KIND):
        data = encode_record(sampler.record(kind))
        for wounded in (data, mutate(sampler.random, data), cbor.encode(sampler.value())):
            try:
                record = decode_record(kind, wounded)
            except (errors.EncodingError, errors.RecordError):
                continue
            accepted += 1
            assert type(record) is kind
            assert encode_record(record) == wounded
    assert accepted >= RECORDS_OF_A_KIND


def check_entry(data: bytes) -> str:
    """What the entry decoder makes of `data`; asserts that what it takes has no second form."""
    # The log's verdict on the same bytes is never an exception.
    (outcome,) = SourceLog(SIGNER.public, id_at=lambda seq: None).offer(data)
    try:
        id, event = open_entry(data, SIGNER.public)
    except errors.AuthorityError as error:
        assert outcome.verdict in (Verdict.FOREIGN, Verdict.UNSIGNED)
        return error.step
    except (errors.EncodingError, errors.RecordError) as error:
        assert outcome.verdict is Verdict.MALFORMED
        return error.code
    assert sign_event(event, SIGNER) == data
    assert read_entry(data) == (id, event)
    assert id == event_id(event)
    assert outcome.entry is not None
    assert outcome.entry[:2] == (id, event)
    return "event"


@pytest.mark.req("EVT-2")
@with_seed
def test_mutated_entries(seed: int) -> None:
    random = Random(seed)
    entries = [
        entry_after(START, subject, body={"deep": [None, {"é": b"\0"}], "n": -1}, after=after)
        for subject in ("", "1122", "🐦" * 300)
        for after in (None, "Done")
    ]
    outcomes: set[str] = set()
    for _ in range(MUTANTS // 20):
        entry = random.choice(entries)
        # Bytes that a stranger changed, and ones that the source itself signed.
        payload = encode_record(entry.event)
        outcomes.add(check_entry(mutate(random, entry.body)))
        outcomes.add(check_entry(pack_signed(SIGNER, EVENT_CONTEXT, mutate(random, payload))))
    assert outcomes == {"event", "encoding", "record", "source", "signature"}


@given(st.binary(max_size=200))
def test_any_bytes_as_an_entry(data: bytes) -> None:
    check_entry(data)


@given(st.text() | st.builds("{}:{}".format, PREFIXES, DIGESTS))
@example("block:" + "ß" * 52)
@example("block:" + "ſ" * 52)
@example("block:" + "a" * 51 + "b")
@example("block:" + "a" * 50 + "==")
def test_any_text_as_an_id(text: str) -> None:
    for parse in (ids.parse_any, ids.BlockId.parse, ids.ContextId.parse):
        with contextlib.suppress(errors.ContentError):
            assert str(parse(text)) == text


@given(st.binary(max_size=64))
def test_any_bytes_as_tokens(data: bytes) -> None:
    with contextlib.suppress(errors.ContentError):
        assert tokens.pack(tokens.unpack(data)) == data


@given(SEEDS)
def test_any_value_as_an_error(seed: int) -> None:
    sampler = Sampler(Random(seed))
    code = sampler.random.choice([*errors.CODE_TO_ERROR, "unheard of"])
    names = ["message", "self", "kind", "code", "rule", "offset", "step", sampler.text()]
    details = {sampler.random.choice(names): sampler.value(2) for _ in range(3)}
    message = sampler.random.choice((sampler.text(), sampler.value(2)))
    wire: cbor.Value = {"code": code, "message": message, "details": details}
    error = errors.from_map(wire)
    assert errors.from_map(error.to_map()).to_map() == error.to_map()
    assert str(error) == error.message
    # What `from_map` insisted on is there, of the type that is promised.
    if isinstance(error, errors.EncodingError):
        assert (type(error.rule), type(error.offset)) == (str, int)
    if isinstance(error, errors.AuthorityError):
        assert type(error.details["step"]) is str
    cbor.encode(error.to_map())  # type: ignore[arg-type]
