"""Derivations executed again, in a process of its own: `python -m actors.experiment.recheck`.

Reads one JSON object from standard input, `{profile, home, contexts, entries}`: `contexts` maps
context ids to blocks as the API shows them, an entry is `{invocation, context_id, parameters}` with
the invocation's record in base64. Writes a line for each entry as soon as it is done: `{entry,
outputs, tokens, why}`. `outputs` is what it gave, [[label, id], …], or null: `why` is then
`expired` (what the context holds are not the inputs), `skipped` (it is of another profile than
the one here, or its parameters do not say everything) or `incomparable` (it is bound to a snapshot,
and the pages here are others: what follows from them says nothing about it).

Nothing of the service is used but the weights: contexts are folded by the reference transform,
states fed by the schedule from an empty one, answers decoded one token after the other.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from actors.cli.asked import Failure
from actors.experiment.recompute import block_of, spelled_prompt
from actors.runtime.wiring import profile_contracts
from actors.worker.answer import Answer
from actors.worker.backend import Backend, Logits
from actors.worker.backends.llama import LlamaBackend
from actors.worker.backends.llama_library import build_digest
from actors.worker.chain import chains
from actors.worker.pages import page_digest, state_digest
from actors.worker.schedule import Advance, advances
from profiles import loader, weights
from profiles.profile import RuntimeProfile
from protocol.assembly import ContextAssembly, sequence_of
from protocol.derivation import (
    Derivation,
    DerivationInvocation,
    Output,
    Parameters,
    invocation_id,
)
from protocol.errors import ContentError
from protocol.families import (
    ASSEMBLE_FAMILY,
    GENERATE_FAMILY,
    advanced,
    assembled,
    assembling,
    generated,
)
from protocol.generation import named_texts, sampler_of
from protocol.ids import (
    BlockId,
    ChainId,
    ContractId,
    InvocationId,
    PageId,
    ProfileId,
    SequenceId,
    TokensId,
    TransformId,
)
from protocol.messages.worker import Generate
from protocol.record import decode_record, encode_record, object_id
from protocol.rope.build import build
from protocol.rope.node import Entry
from protocol.tokens import TokenIds, pack
from protocol.transform import fold

Json = dict[str, Any]
Why = Literal["expired", "skipped", "incomparable"]


@dataclass(frozen=True)
class Asked:
    """One entry: its place in what was asked, and what it is."""

    place: int
    invocation: DerivationInvocation
    parameters: Parameters | None

    @cached_property
    def id(self) -> InvocationId:
        return invocation_id(self.invocation)

    @property
    def family(self) -> ContractId:
        return self.invocation.transform_contract


@dataclass(frozen=True)
class Done:
    """What came of an entry: the derivation and the tokens that it took, or why there is none."""

    place: int
    derivation: Derivation | None = None
    tokens: int = 0
    why: Why | None = None


class Rechecker:
    """Executes derivations of contexts again, on stream 0 of `backend` under `profile`."""

    def __init__(self, backend: Backend, profile: RuntimeProfile) -> None:
        self._backend = backend
        self._profile = ProfileId.of(encode_record(profile))
        self._contracts = profile_contracts(profile, backend.tokenizer)

    def done(self, blocks: Sequence[Json], asked: Sequence[Asked]) -> Iterator[Done]:
        """What comes of each of `asked`, in any order, as it is done. All are of the context that
        consists of `blocks`."""
        try:
            context = _Context(blocks)
        except ContentError:
            yield from (Done(each.place, why="skipped") for each in asked)
            return
        states: list[Asked] = []
        for each in asked:
            if each.family == _id(ASSEMBLE_FAMILY.takes):
                yield self._assembled(context, each)
            elif each.invocation.runtime_profile != self._profile:
                yield Done(each.place, why="skipped")
            else:
                states.append(each)
        if states:
            yield from self._states(context, states)

    def _assembled(self, context: _Context, asked: Asked) -> Done:
        named = {given.label: given.id for given in asked.invocation.inputs}
        fields = {name: ContractId.parse(named[name]) for name in named if name != "sequence"}
        assembly = ContextAssembly(
            format_version=1,
            sequence=context.sequence,
            reference_transform=TransformId(asked.invocation.transform.digest),
            **fields,
        )
        if invocation_id(assembling(assembly)) != asked.id:
            return Done(asked.place, why="expired")
        grammar = self._contracts.grammar_of(assembly)
        if grammar is None:
            return Done(asked.place, why="skipped")
        folded = fold(grammar, zip(context.blocks, context.texts, strict=True))
        ids = [token for tokens in folded for token in (*tokens.head, *tokens.content)]
        return Done(asked.place, assembled(assembly, TokensId.of(pack(ids))), len(ids))

    def _states(self, context: _Context, asked: Sequence[Asked]) -> Iterator[Done]:
        """Of a prompt, which ends with what opens the answer, and of a settled conversation."""
        grammar = self._contracts.grammar
        segments, opener = spelled_prompt(grammar, context.blocks, context.texts)
        left = {each.place: each for each in asked}
        for end in (pack(opener), b""):
            fed = advances(segments, end, chunk_tokens=self._backend.chunk_tokens)
            for done in self._along(fed, list(left.values())):
                del left[done.place]
                yield done
        yield from (Done(place, why="expired") for place in left)

    def _along(self, fed: Sequence[Advance], asked: Sequence[Asked]) -> Iterator[Done]:
        """What of `asked` lies on the way of feeding `fed`."""
        names = chains(self._profile, fed)
        at: defaultdict[str, list[Asked]] = defaultdict(list)
        for each in asked:
            named = {given.label: given.id for given in each.invocation.inputs}
            if each.family == _id(GENERATE_FAMILY.takes):
                if named["state"] == str(names[-1]):
                    yield self._generated(fed, each)
            else:
                at[named.get("previous", "") + named["tokens"]].append(each)
        wanted: dict[int, list[Asked]] = {}
        for index, piece in enumerate(fed):
            previous = str(names[index - 1]) if index else ""
            found = at.get(previous + str(TokensId.of(pack(piece.ids))))
            if found:
                wanted[index] = found
        self._backend.truncate(0, 0)
        # A snapshot is of all pages; else only those that are asked for are made.
        bound = any(each.invocation.snapshot for found in wanted.values() for each in found)
        pages: list[PageId] = []
        for index, piece in enumerate(fed[: max(wanted, default=-1) + 1]):
            self._backend.advance(0, piece.ids, logits=False)
            if bound or index in wanted:
                pages.append(page_digest(self._backend.export(0, piece.start, piece.stop)))
            for each in wanted.get(index, ()):
                made = self._advanced(each, piece, names[: index + 1], pages)
                why: Why | None = None if made else "incomparable"
                yield Done(each.place, made, piece.stop if made else 0, why)

    def _advanced(
        self, asked: Asked, piece: Advance, names: Sequence[ChainId], pages: Sequence[PageId]
    ) -> Derivation | None:
        """That feeding `piece`, the last of those with these chains and pages, gave the last of
        the pages; None if it was asked from a snapshot of others."""
        snapshot = None if asked.invocation.snapshot is None else state_digest(pages[:-1])
        if snapshot is not None and str(snapshot) != asked.invocation.snapshot:
            return None
        tokens, previous = TokensId.of(pack(piece.ids)), names[-2] if len(names) > 1 else None
        page, profile = pages[-1], self._profile
        return advanced(profile, previous, tokens, names[-1], [page], snapshot=snapshot)

    def _generated(self, fed: Sequence[Advance], asked: Asked) -> Done:
        parameters, seed = asked.parameters, asked.invocation.seed
        stop_texts = self._contracts.grammar.stop_texts
        if parameters is None or seed is None or parameters.values.get("stops"):
            return Done(asked.place, why="skipped")
        values = parameters.values
        if values.get("stop_texts") != named_texts(stop_texts):
            return Done(asked.place, why="skipped")
        ask = Generate(
            response="recheck",
            segments=[],
            opener=b"",
            sampler=sampler_of(parameters),
            tokens_max=int(values["tokens_max"]),
            time_ns_max=1,
            stop_ids=[int(each) for each in str(values["stop_ids"]).split(",") if each],
            stop_texts=list(stop_texts),
            stops=[],
            deliver_trim=bool(values["deliver_trim"]),
        )
        ids = self._decoded(fed, ask, seed)
        state = chains(self._profile, fed)[-1]
        made = generated(self._profile, state, parameters, seed, TokensId.of(pack(ids)))
        return Done(asked.place, made, fed[-1].stop + len(ids))

    def _decoded(self, fed: Sequence[Advance], ask: Generate, seed: int) -> TokenIds:
        backend = self._backend
        backend.truncate(0, 0)
        logits: Logits | None = None
        for piece in fed:
            logits = backend.advance(0, piece.ids, logits=piece is fed[-1])
        assert logits is not None
        answer = Answer(
            ask,
            backend.tokenizer,
            prompt=tuple(token for piece in fed for token in piece.ids),
            context_tokens=backend.context_tokens,
            seed=seed,
        )
        while answer.take(logits)[1] is None:
            logits = backend.decode([(0, answer.pending)])[0]
        return answer.ids


class _Context:
    """A context's blocks. Raises ContentError for one that is not what its text makes: exact
    tokens, say, which the API does not show."""

    def __init__(self, shown: Sequence[Json]) -> None:
        self.blocks = [block_of(each) for each in shown]
        self.texts = [str(each["content"]) for each in shown]
        for each, block in zip(shown, self.blocks, strict=True):
            if each["block_id"] != str(object_id(block)):
                raise ContentError(f"{each['block_id']} is not the block that its text makes")

    @property
    def sequence(self) -> SequenceId:
        entries = [
            Entry(BlockId.of(encode_record(block)), len(text.encode("utf-8")))
            for block, text in zip(self.blocks, self.texts, strict=True)
        ]
        return SequenceId.of(encode_record(sequence_of(build(entries).root)))


def recheck(
    profile: str, home: Path, contexts: Mapping[str, Sequence[Json]], entries: Sequence[Json]
) -> Iterator[Json]:
    """The lines that `main` writes for these, from a new process. Raises Failure if it fails."""
    asked = {"profile": profile, "home": str(home), "contexts": contexts, "entries": entries}
    command = [sys.executable, "-m", "actors.experiment.recheck"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(asked))
            process.stdin.close()
            for line in process.stdout:
                yield json.loads(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise Failure(
            f"the rechecking process ended with status {process.returncode}: see above",
            code="recheck",
        )


def derivation_of(entry: Json, outputs: Sequence[Sequence[str]]) -> Derivation:
    """That the entry's invocation gave `outputs`."""
    invocation = decode_record(DerivationInvocation, base64.b64decode(entry["invocation"]))
    return Derivation(invocation, tuple(Output(label, id) for label, id in outputs))


def _id(record: Any) -> ContractId:
    return ContractId(object_id(record).digest)


def _asked(place: int, entry: Json) -> Asked:
    values = entry.get("parameters")
    return Asked(
        place,
        decode_record(DerivationInvocation, base64.b64decode(entry["invocation"])),
        None if values is None else Parameters(v=1, values=values),
    )


def main() -> None:
    asked = json.load(sys.stdin)
    spec = loader.load(asked["profile"])
    path = weights.weights_path(spec, Path(asked["home"]))
    profile = loader.bind(spec, path, build_digest())
    by_context: defaultdict[str, list[Asked]] = defaultdict(list)
    for place, entry in enumerate(asked["entries"]):
        by_context[entry["context_id"]].append(_asked(place, entry))
    backend = LlamaBackend(path, profile)
    try:
        rechecker = Rechecker(backend, profile)
        for context, entries in by_context.items():
            for done in rechecker.done(asked["contexts"][context], entries):
                outputs = None if done.derivation is None else done.derivation.outputs
                line = {"entry": done.place, "outputs": outputs, "tokens": done.tokens}
                sys.stdout.write(json.dumps({**line, "why": done.why}) + "\n")
                sys.stdout.flush()
    finally:
        backend.close()


if __name__ == "__main__":
    main()
