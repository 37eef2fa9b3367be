"""Registration and meaning (ASM-9): no contract is named that the root did not sign."""

from __future__ import annotations

import pytest

from actors.room import Call, Room
from protocol.assembly import REGISTRATION_CONTEXT, ContextAssembly
from protocol.blocks import BlockType, ContextBlock, Role, Source, text_block
from protocol.errors import AuthorityError, ContentError
from protocol.ids import ContractId, TextId
from protocol.messages import Empty
from protocol.messages import authority as authority_messages
from protocol.record import encode_record, object_id
from protocol.semantic import SemanticContract, mint
from protocol.signing import pack_signed
from tests.assembler_rooms import TALK, shown
from tests.block_samples import Pair
from tests.rooms import Installation, Principal, assemble, assembled, profile


@pytest.mark.req("ASM-9")
async def test_every_contract_is_registered_before_it_is_named(
    house: Installation, alice: Principal
) -> None:
    registered = house.tables.rows("contracts")
    for contracts in house.profiles.values():
        for record in contracts.records():
            assert str(object_id(record)).encode() in registered
    answer = await assembled(alice, assemble(TALK, tokens_max=4321))
    assembly = (await shown(alice, answer.context)).assembly
    registered = house.tables.rows("contracts")
    for field in ContextAssembly.__struct_fields__[2:]:
        assert str(getattr(assembly, field)).encode() in registered, field
    house.post.forget()
    await assembled(alice, assemble(TALK, tokens_max=4321))
    assert not [each for each in house.post.sent if each.op == "register"]


class Impostor(Room):
    """Answers as the authority does, with a key that is no anchor. `honest` registrations come
    first."""

    operations = authority_messages.OPERATIONS

    def __init__(self, house: Installation, honest: int) -> None:
        super().__init__("authority", house.world("authority"))
        self._house = house
        self._honest = honest

    async def on_current(self, call: Call, ask: Empty) -> authority_messages.Revocations:
        return authority_messages.Revocations(epoch=0, revoked=[])

    async def on_register(
        self, call: Call, ask: authority_messages.RegisterContract
    ) -> authority_messages.Registration:
        self._honest -= 1
        signer = self._house.root if self._honest >= 0 else self._house.signers["worker"]
        payload = authority_messages.RegistrationPayload(v=1, id=ask.id, epoch=0, registered_ns=0)
        signed = pack_signed(signer, REGISTRATION_CONTEXT, encode_record(payload))
        return authority_messages.Registration(signed=signed)


@pytest.mark.req("ASM-9")
async def test_no_assembler_starts_on_contracts_that_the_root_did_not_sign() -> None:
    house = Installation()
    await house.add(Impostor(house, honest=2))
    with pytest.raises(AuthorityError) as caught:
        await house.restart("assembler")
    assert caught.value.step == "registration"


@pytest.mark.req("ASM-9")
async def test_nor_is_a_context_minted_under_a_policy_that_it_did_not_sign() -> None:
    house = Installation()
    count = len({object_id(record) for record in profile().records()})
    await house.add(Impostor(house, honest=count))
    for room in ("ropes", "assembler"):
        await house.restart(room)
    alice = await house.enroll("alice")
    for store in (True, False):
        with pytest.raises(AuthorityError) as caught:
            await assembled(alice, assemble(TALK, store=store))
        assert caught.value.step == "registration"
    assert house.store.stats().objects == 0


PLAIN = SemanticContract(v=1, kind="semantic", canonicalizer="plain-text/1")
PLAIN_ID = ContractId.of(encode_record(PLAIN))


def meant(text: str, semantic: bytes, contract: ContractId = PLAIN_ID) -> Pair:
    source = Source(object=TextId.of(text.encode()), semantic=semantic, contract=contract)
    block = text_block(Role.USER, BlockType.FILE, text, rendering={"path": "x"}, trust=False)
    fields = {field: getattr(block, field) for field in block.__struct_fields__}
    return ContextBlock(**{**fields, "source": source}), text


@pytest.mark.req("ASM-9")
async def test_a_semantic_id_stands_with_what_its_registered_contract_mints() -> None:
    house = await Installation(semantics=(PLAIN,)).start()
    alice = await house.enroll("alice")
    assert str(PLAIN_ID).encode() in house.tables.rows("contracts")
    windows, unix = "a \r\nb\r\n", "a\nb"
    same = mint(PLAIN, windows)
    assert same == mint(PLAIN, unix)
    contexts = []
    for text in (windows, unix):
        answer = await assembled(alice, assemble([meant(text, same)]))
        contexts.append(answer.context)
        (block,) = (await shown(alice, answer.context, tokens=True)).blocks
        assert block.block.source == Source(
            object=TextId.of(text.encode()), semantic=same, contract=PLAIN_ID
        )
        assert block.content == text.encode()
    # One meaning, two contexts: identity is what the model reads.
    assert len(set(contexts)) == 2


@pytest.mark.req("ASM-9")
async def test_a_semantic_id_that_no_registered_contract_minted_is_refused() -> None:
    house = await Installation(semantics=(PLAIN,)).start()
    alice = await house.enroll("alice")
    for pair, text in (
        (meant("a", mint(PLAIN, "b")), "is not what plain-text/1 mints"),
        (meant("a", mint(PLAIN, "a"), ContractId(b"c" * 32)), "is not registered"),
    ):
        for store in (True, False):
            with pytest.raises(ContentError, match=text):
                await assembled(alice, assemble([pair], store=store))
    assert house.store.stats().objects == 0
    plain = await Installation().start()
    with pytest.raises(ContentError, match="is not registered"):
        await assembled(await plain.enroll("alice"), assemble([meant("a", mint(PLAIN, "a"))]))
