"""Evidence: accepted only whole, from whom it counts, of exactly what it states; and its log."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from actors.muninn.evidence import (
    OPENING,
    EvidenceLog,
    Kept,
    domain_stem,
    examine,
    kept,
    last_generation,
    reopened,
)
from protocol.derivation import Derivation, Output, invocation_id
from protocol.errors import (
    AuthorityError,
    ContentError,
    CorruptObject,
    EncodingError,
    RecordError,
)
from protocol.families import assembled
from protocol.ids import ContractId, TokensId
from protocol.messages.muninn import Body
from protocol.record import encode_record
from store.memory_tables import MemoryTables
from store.tables import LogHead, entry_digest
from tests.derivations import (
    ASSEMBLER,
    EXECUTORS,
    STRANGER,
    WORKER,
    advance,
    assembly,
    seen,
    signed,
)

ASSEMBLED = assembled(assembly(1), TokensId.of(b"stream"))


def test_evidence_that_holds_is_named_here() -> None:
    examined = examine(advance(1).invocation, signed(advance(1)), EXECUTORS)
    assert examined.key == invocation_id(advance(1).invocation)
    assert examined.evidence.outputs == advance(1).outputs
    again = seen(advance(1), ASSEMBLER, run=3)
    assert again.id != examined.id
    assert again.outputs_digest == examined.outputs_digest
    assert seen(advance(1, page=1)).outputs_digest != examined.outputs_digest


@pytest.mark.req("DRV-3")
def test_only_the_word_of_a_room_that_executes_counts() -> None:
    derivation = advance(1)
    with pytest.raises(ContentError, match="does not count"):
        examine(derivation.invocation, signed(derivation, STRANGER), EXECUTORS)
    with pytest.raises(ContentError, match="does not count"):
        examine(derivation.invocation, signed(derivation, WORKER), (ASSEMBLER.public,))
    forged = bytearray(signed(derivation))
    forged[-1] ^= 1
    with pytest.raises(AuthorityError):
        examine(derivation.invocation, bytes(forged), EXECUTORS)


@pytest.mark.req("DRV-3")
def test_evidence_of_something_else_is_none() -> None:
    with pytest.raises(ContentError, match="evidence of"):
        examine(advance(2).invocation, signed(advance(1)), EXECUTORS)
    fewer = Derivation(advance(1).invocation, ())
    with pytest.raises(ContentError, match="'chain', which is missing"):
        examine(fewer.invocation, signed(fewer), EXECUTORS)
    unknown = msgspec.structs.replace(
        advance(1).invocation, transform_contract=ContractId.of(b"mine")
    )
    with pytest.raises(ContentError, match="no family"):
        examine(unknown, signed(Derivation(unknown, advance(1).outputs)), EXECUTORS)
    with pytest.raises(ContentError, match="at most"):
        examine(advance(1).invocation, bytes(2**21 + 1), EXECUTORS)
    for nothing in (b"", b"\x80", b"\xff"):
        with pytest.raises((EncodingError, RecordError)):
            examine(advance(1).invocation, nothing, EXECUTORS)


@pytest.mark.req("DRV-3")
def test_an_output_with_its_bytes_is_named_anew() -> None:
    body = Body(label="context", body=encode_record(assembly(1)))
    examine(ASSEMBLED.invocation, signed(ASSEMBLED), EXECUTORS, [body])
    other = Body(label="context", body=encode_record(assembly(2)))
    with pytest.raises(CorruptObject):
        examine(ASSEMBLED.invocation, signed(ASSEMBLED), EXECUTORS, [body, other])
    stray = Body(label="page", body=b"")
    with pytest.raises(ContentError, match="not one output"):
        examine(ASSEMBLED.invocation, signed(ASSEMBLED), EXECUTORS, [stray])


def test_outputs_are_compared_with_their_labels_and_order() -> None:
    one, two = (Output("page", str(TokensId.of(body))) for body in (b"1", b"2"))
    base = seen(advance(1))
    digests = {
        replace(
            base, evidence=msgspec.structs.replace(base.evidence, outputs=outputs)
        ).outputs_digest
        for outputs in ((one, two), (two, one), (one,), (one._replace(label="pages"), two))
    }
    assert len(digests) == 4


# -- the log ---------------------------------------------------------------------------------


def filled(tables: MemoryTables, count: int = 5, generation: int = 0) -> EvidenceLog:
    log = EvidenceLog(tables, "alice", generation)
    tables.apply([log.append(kept(seen(advance(number)))) for number in range(count)])
    return log


def test_a_log_gives_back_what_was_appended() -> None:
    log = filled(MemoryTables())
    walked = list(log.walk())
    assert walked[-1][0] == log.head()
    assert [reopened(entry) for _, entry in walked] == [seen(advance(n)) for n in range(5)]
    assert log.read(3) == kept(seen(advance(2)))
    assert log.read(6) is None
    assert reopened(OPENING) is None
    assert reopened(Kept(v=1, key=seen(advance(1)).key)) == seen(advance(1)).key


def test_the_head_after_an_entry_is_known_before_it_is_appended() -> None:
    tables = MemoryTables()
    log = EvidenceLog(tables, "alice", 0)
    head = log.start
    assert head == log.head()
    for number in range(3):
        change = log.append(kept(seen(advance(number))))
        head = log.after(head, change)
        tables.apply([change])
        assert head == log.head()


def damaged_log(tables: MemoryTables, at: int, body: bytes, *, chained: bool) -> None:
    """Entry `at` (0-based) holds `body`; `chained`: with digests that fit, as a forger would."""
    entries = tables._entries[EvidenceLog(tables, "alice", 0).name]
    entries[at] = entries[at]._replace(body=body)
    if chained:
        for index in range(at, len(entries)):
            previous = entries[index - 1].digest if index else entries[index].previous
            digest = entry_digest(index + 1, previous, entries[index].body)
            entries[index] = entries[index]._replace(previous=previous, digest=digest)


@pytest.mark.parametrize("at", range(5))
def test_a_log_that_was_changed_is_damaged_there(at: int) -> None:
    tables = MemoryTables()
    log = filled(tables)
    damaged_log(tables, at, encode_record(OPENING), chained=False)
    with pytest.raises(CorruptObject, match=f"entry {at + 1} "):
        list(log.walk())


def test_an_entry_that_was_taken_out_is_missed() -> None:
    tables = MemoryTables()
    log = filled(tables)
    del tables._entries[log.name][2]
    with pytest.raises(CorruptObject, match="entry 4"):
        list(log.walk())


def test_what_is_no_entry_is_not_one() -> None:
    tables = MemoryTables()
    log = filled(tables)
    damaged_log(tables, 1, b"\x80", chained=True)
    with pytest.raises(CorruptObject, match="entry 2 is no evidence"):
        list(log.walk())
    assert log.head().seq == 5
    with pytest.raises(CorruptObject):
        log.read(2)


@pytest.mark.req("DRV-3")
def test_an_entry_that_does_not_hold_together_is_damage() -> None:
    whole = kept(seen(advance(1)))
    forged = bytearray(signed(advance(1)))
    forged[-1] ^= 1
    broken = (
        msgspec.structs.replace(whole, key=seen(advance(2)).key),
        msgspec.structs.replace(whole, key=None),
        msgspec.structs.replace(whole, evidence=None),
        msgspec.structs.replace(whole, invocation=None),
        msgspec.structs.replace(whole, invocation=advance(2).invocation),
        msgspec.structs.replace(whole, evidence=bytes(forged)),
    )
    for entry in broken:
        with pytest.raises(CorruptObject):
            reopened(entry)


def test_each_domain_has_its_own_logs() -> None:
    tables = MemoryTables()
    assert last_generation(tables, "alice") is None
    filled(tables, 1, generation=0)
    filled(tables, 1, generation=11)
    filled(tables, 1, generation=2)
    assert last_generation(tables, "alice") == 11
    assert last_generation(tables, "bob") is None
    assert domain_stem("alice") != domain_stem("bob")
    assert EvidenceLog(tables, "d" * 255, 10**9).head() == LogHead(
        0, EvidenceLog(tables, "d" * 255, 10**9).start.digest
    )
