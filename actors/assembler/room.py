"""The assembler room: this sequence under this contract is this ContextId, and these tokens.

It folds blocks through the grammar that the profile pins, remembers each block's tokens, and has
the ropes room store what is new in one call. What it remembers is memory: the fold of the
reference transform is the definition, and forgetting everything changes time alone (ASM-2, ASM-8).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import structs

from actors.assembler.cache import BlockTokenCache
from actors.assembler.contracts import ProfileContracts, Registry
from actors.assembler.given import Given, text_of
from actors.assembler.lineage import Base, Lineage
from actors.reporting import EvidenceQueue
from actors.room import Call, Room, World
from protocol.assembly import BudgetPolicy, ContextAssembly
from protocol.blocks import ContextBlock
from protocol.budget import Budgeted, within_budget
from protocol.context_diff import Placed, first_difference
from protocol.errors import BudgetExceeded, ContentError, CorruptObject, DiskFull, NotVisible
from protocol.families import assembled
from protocol.grammar import BlockTokens, Grammar
from protocol.ids import BlockId, ContextId, ContractId, SequenceId, TextId, TokensId
from protocol.limits import BLOCKS_MAX
from protocol.messages import assembler as messages
from protocol.messages import ropes
from protocol.messages.authority import RegisterContract, Registration
from protocol.messages.erasure import Erase
from protocol.messages.muninn import Origin
from protocol.publication import state_prefix
from protocol.record import Identified, decode_record, encode_record, object_id
from protocol.resource import Resource, ResourceKind, Right
from protocol.semantic import SemanticContract, check_source
from protocol.tokens import pack
from store.tables import Tables

_CACHE_BLOCKS_MAX: Final = 100_000
_STORED_MAX: Final = 200_000
# From about here on it is worth knowing whether tokenizing can help: it takes half a second.
_LONG_CHARS: Final = 300_000


class AssemblerRoom(Room):
    """`profiles` by name; each brings its contracts and grammars. `semantics` are the registered
    contracts of semantic ids; `engine_build` names the code, in evidence."""

    operations = messages.OPERATIONS

    def __init__(
        self,
        world: World,
        profiles: Mapping[str, ProfileContracts],
        semantics: Sequence[SemanticContract] = (),
        *,
        engine_build: str = "huginn",
        tables: Tables | None = None,
    ) -> None:
        """Owns `tables`, where its world's mark lies if it has one; closes them when drained."""
        super().__init__("assembler", world)
        self._tables = tables
        self._profiles = profiles
        self._semantics = {ContractId.of(encode_record(each)): each for each in semantics}
        self._registry = Registry(world.anchors)
        self._cache = BlockTokenCache(_CACHE_BLOCKS_MAX)
        self._lineage = Lineage()
        self._evidence = EvidenceQueue(self, engine_build)
        # (namespace, block) known to be stored: such a block goes by its id alone.
        self._stored: OrderedDict[tuple[str, BlockId], None] = OrderedDict()

    async def start(self) -> None:
        await super().start()
        for profile in self._profiles.values():
            for record in (*profile.records(), *self._semantics.values()):
                await self._register(record)

    async def _register(self, record: Identified) -> None:
        contract = object_id(record)
        if contract not in self._registry:
            registration = await self.ask_as_self(
                "authority",
                "register",
                RegisterContract(id=str(contract), body=encode_record(record)),
                Registration,
            )
            self._registry.admit(record, registration)

    # -- assembling --------------------------------------------------------------------------

    async def on_assemble(self, call: Call, ask: messages.Assemble) -> messages.Assembled:
        _require_namespace(call, ask.namespace)
        profile = self._profile(ask.profile)
        grammar = profile.grammar_named(ask.template)
        policy = BudgetPolicy(
            v=1,
            kind="budget",
            policy=ask.policy,
            tokens_max=ask.tokens_max,
            keep_turns=ask.keep_turns,
        )
        given = await self._given(call, ask)
        _check_reachable(policy, profile, given.texts)
        budgeted = within_budget(
            policy,
            grammar,
            [new.block for new in given.blocks],
            self._cache.stepper(grammar, given.ids, given.load),
        )
        kept = given.only(budgeted.kept) if budgeted.dropped else given
        fields = profile.fields(grammar, policy)
        stored = await self._stored_as(call, ask, policy, kept, fields)
        if stored is None:
            sequence, context = kept.unstored(fields)
            answer = _assembled(context, sequence, kept, budgeted, grammar)
            return structs.replace(answer, unstored=True) if ask.store else answer
        sequence, context, public = stored
        answer = _assembled(context, sequence, kept, budgeted, grammar)
        if public:
            statement = state_prefix(self.world.signer, profile.name, answer.segments[:public])
            answer = structs.replace(answer, public=statement)
        self._learn(call, fields, answer)
        return answer

    async def _stored_as(
        self,
        call: Call,
        ask: messages.Assemble,
        policy: BudgetPolicy,
        kept: Given,
        fields: ropes.AssemblyFields,
    ) -> tuple[SequenceId, ContextId, int] | None:
        """What was stored, if that was asked for and there was room, or DiskFull where it had to
        be. Nothing is remembered as stored that was not."""
        try:
            await self._register(policy)
            return await self._commit(call, ask.namespace, kept, fields) if ask.store else None
        except DiskFull:
            if ask.store and not ask.else_unstored:
                raise
            return None

    def _learn(self, call: Call, fields: ropes.AssemblyFields, answer: messages.Assembled) -> None:
        """Have muninn told, later, what was assembled."""
        domain = call.handle.domain
        if domain is None:
            return
        stream = TokensId.of(b"".join(each.head + each.content for each in answer.segments))
        derive = partial(assembled, fields.over(answer.sequence), stream)
        origin = Origin(context=answer.context)
        self._evidence.put(domain, answer.context, derive, {"tokens": answer.tokens}, origin)

    async def erase(self, ask: Erase) -> dict[str, int]:
        """Everything remembered, of whoever it is: it is found again where it stays (I-DERIVED)."""
        blocks = len(self._cache)
        self._cache = BlockTokenCache(_CACHE_BLOCKS_MAX)
        self._lineage = Lineage()
        self._stored.clear()
        await self._evidence.forget(ask.domains)
        return {"blocks": blocks}

    async def drain(self) -> None:
        """Send what evidence waits."""
        await self._evidence.drain()
        if self._tables is not None:
            self._tables.close()

    def _profile(self, name: str) -> ProfileContracts:
        found = self._profiles.get(name)
        if found is None:
            known = ", ".join(sorted(self._profiles))
            raise ContentError(f"no profile {name!r:.60} here; there are: {known}")
        return found

    async def _given(self, call: Call, ask: messages.Assemble) -> Given:
        if (ask.blocks is None) == (ask.sequence is None):
            raise ContentError("assemble takes either blocks or a stored sequence")
        if ask.blocks is not None:
            return self._take(ask.blocks)
        read = await self.ask_for(
            call,
            "ropes",
            "read",
            ropes.ReadSequence(sequence=_not_none(ask.sequence), start=0),
            ropes.SequenceBlocks,
        )
        return self._take(read.blocks)

    def _take(self, blocks: list[ropes.NewBlock]) -> Given:
        if len(blocks) > BLOCKS_MAX:
            raise ContentError(f"{len(blocks)} blocks: a sequence has at most {BLOCKS_MAX}")
        texts = [text_of(new.content) for new in blocks]
        for new, text in zip(blocks, texts, strict=True):
            # Tokens are remembered by the block's id, for everyone: it must be this very text's.
            content = TextId.of(new.content)
            if new.block.source.object != content:
                raise ContentError(
                    f"a block names {new.block.source.object}, its content is {content}"
                )
            check_source(new.block.source, text, self._semantics)
        return Given(blocks, [block_id(new.block) for new in blocks], texts)

    async def _commit(
        self, call: Call, namespace: str, given: Given, fields: ropes.AssemblyFields
    ) -> tuple[SequenceId, ContextId, int]:
        """What was stored, and how many of its first blocks are public."""
        base = self._lineage.find(namespace, given.ids)
        try:
            done = await self._commit_on(call, namespace, given, fields, base, anew=False)
        except (NotVisible, CorruptObject):
            # What was remembered is no longer there, or no longer whole: send everything.
            self._lineage.forget(namespace, given.ids)
            done = await self._commit_on(call, namespace, given, fields, Base(None, 0), anew=True)
        self._lineage.remember(namespace, given.ids, done.root)
        for block in given.ids[base.keep :]:
            self._stored[namespace, block] = None
        while len(self._stored) > _STORED_MAX:
            self._stored.popitem(last=False)
        if done.context is None:
            raise ContentError("the ropes room stored a sequence without its assembly")
        return done.sequence, done.context, done.public or 0

    async def _commit_on(
        self,
        call: Call,
        namespace: str,
        given: Given,
        fields: ropes.AssemblyFields,
        base: Base,
        *,
        anew: bool,
    ) -> ropes.Committed:
        tail = list(zip(given.ids, given.blocks, strict=True))[base.keep :]
        new = {
            block: stored
            for block, stored in tail
            if anew or (namespace, block) not in self._stored
        }
        return await self.ask_for(
            call,
            "ropes",
            "commit",
            ropes.Commit(
                namespace=namespace,
                base=base.root,
                keep=base.keep,
                blocks=list(new.values()),
                entries=[
                    ropes.Entry(block=block, content_bytes=len(stored.content))
                    for block, stored in tail
                ],
                assembly=fields,
            ),
            ropes.Committed,
        )

    # -- looking -----------------------------------------------------------------------------

    async def on_show(self, call: Call, ask: messages.Show) -> messages.Shown:
        assembly, read = await self._stored_context(call, ask.context)
        placed: list[Placed] | None = None
        if ask.tokens:
            placed = self._placed(assembly, read)
        return messages.Shown(
            assembly=assembly,
            sequence=assembly.sequence,
            blocks=read.blocks,
            segments=None
            if placed is None
            else [_segment(block_id(each.block), *each) for each in placed],
        )

    async def on_tree(self, call: Call, ask: messages.ShowTree) -> ropes.Tree:
        assembly = await self._assembly(call, ask.context)
        return await self.ask_for(
            call, "ropes", "tree", ropes.ReadTree(sequence=assembly.sequence), ropes.Tree
        )

    async def on_diff(self, call: Call, ask: messages.DiffContexts) -> messages.ContextDifference:
        a, read_a = await self._stored_context(call, ask.a)
        b, read_b = await self._stored_context(call, ask.b)
        contracts = [
            name
            for name in ContextAssembly.__struct_fields__
            if name != "sequence" and getattr(a, name) != getattr(b, name)
        ]
        found = first_difference(self._placed(a, read_a), self._placed(b, read_b))
        first = found.first_difference
        return messages.ContextDifference(
            equal_blocks=found.equal_blocks,
            index=None if first is None else first.index,
            reason=None if first is None else first.reason,
            token_index=None if first is None else first.token_index,
            contracts=contracts,
        )

    async def _assembly(self, call: Call, context: ContextId) -> ContextAssembly:
        found = await self.ask_for(
            call, "ropes", "get", ropes.GetObjects(ids=[str(context)]), ropes.Objects
        )
        return decode_record(ContextAssembly, context.check(found.objects[0].body))

    async def _stored_context(
        self, call: Call, context: ContextId
    ) -> tuple[ContextAssembly, ropes.SequenceBlocks]:
        assembly = await self._assembly(call, context)
        read = await self.ask_for(
            call,
            "ropes",
            "read",
            ropes.ReadSequence(sequence=assembly.sequence, start=0),
            ropes.SequenceBlocks,
        )
        return assembly, read

    def _placed(self, assembly: ContextAssembly, read: ropes.SequenceBlocks) -> list[Placed]:
        for profile in self._profiles.values():
            grammar = profile.grammar_of(assembly)
            if grammar is not None:
                given = self._take(read.blocks)
                stream = self._cache.fold(grammar, given.ids, given.load)
                blocks = [new.block for new in given.blocks]
                return [Placed(*each) for each in zip(blocks, stream, strict=True)]
        raise ContentError(
            "this context was assembled under contracts that no profile here brings: its tokens "
            "cannot be told; start the service with the profile that made it"
        )


def block_id(block: ContextBlock) -> BlockId:
    return BlockId.of(encode_record(block))


def _require_namespace(call: Call, namespace: str) -> None:
    wanted = Resource(kind=ResourceKind.NAMESPACE, name=namespace)
    if not call.handle.permits(Right.ASSEMBLE, wanted):
        raise NotVisible("no such namespace in this view")


def _check_reachable(policy: BudgetPolicy, profile: ProfileContracts, texts: list[str]) -> None:
    """Raises BudgetExceeded for texts so long that they need not be tokenized to be too long.

    Tokenizing holds up everybody's requests, a second for each million characters.
    """
    # Blanks at the ends may be trimmed away; between them every byte is in some token.
    characters = sum(len(text.strip()) for text in texts)
    if policy.policy != "refuse" or characters < _LONG_CHARS:
        return
    tokens = -(-characters // profile.piece_bytes_max)
    if tokens > policy.tokens_max:
        raise BudgetExceeded(
            f"the context is at least {tokens} tokens, the budget is {policy.tokens_max}: "
            "shorten it",
            tokens=tokens,
            tokens_max=policy.tokens_max,
        )


def _not_none(sequence: SequenceId | None) -> SequenceId:
    assert sequence is not None, "exactly one of blocks and sequence was checked to be there"
    return sequence


def _segment(block_id: BlockId, block: ContextBlock, tokens: BlockTokens) -> messages.Segment:
    return messages.Segment(
        block=block_id,
        role=block.role.value,
        type=block.type.value,
        head=pack(tokens.head),
        content=pack(tokens.content),
    )


def _assembled(
    context: ContextId,
    sequence: SequenceId,
    given: Given,
    budgeted: Budgeted,
    grammar: Grammar,
) -> messages.Assembled:
    return messages.Assembled(
        context=context,
        sequence=sequence,
        segments=[
            _segment(block_id, new.block, tokens)
            for block_id, new, tokens in zip(given.ids, given.blocks, budgeted.stream, strict=True)
        ],
        opener=pack(budgeted.opener),
        tokens=budgeted.tokens - len(budgeted.opener),
        dropped=list(budgeted.dropped),
        stop_ids=sorted(grammar.stop_ids),
        stop_texts=list(grammar.stop_texts),
    )
