"""A context computed cold, in a process of its own: `python -m actors.experiment.recompute`.

Reads one JSON object from standard input, `{profile, home, blocks}` (blocks as the API shows
them), and writes one: the token ids that the profile's grammar makes of the blocks, the state
digest of the prompt fed by the schedule, and the first greedy token; and whether the profile
promises that the digest is always that one (`equality`). Nothing of the engine, its
streams, pages or memory is used: that is what the answer is compared with.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from actors.cli.asked import Failure
from actors.worker.backend import Backend
from actors.worker.backends.llama import LlamaBackend
from actors.worker.backends.llama_library import build_digest
from actors.worker.pages import page_digest, state_digest
from actors.worker.schedule import Advance, advances
from profiles import loader, weights
from protocol.blocks import BlockType, ContextBlock, Role, text_block
from protocol.grammar import Grammar
from protocol.grammars import grammar
from protocol.ids import BlockId
from protocol.messages.assembler import Segment
from protocol.record import object_id
from protocol.tokens import TokenIds, pack

Json = dict[str, Any]

_SECONDS_MAX: Final = 1800.0


def recompute(profile: str, home: Path, blocks: Sequence[Json]) -> Json:
    """The same as `main`, asked of a new process and awaited. Raises Failure."""
    asked = json.dumps({"profile": profile, "home": str(home), "blocks": blocks})
    command = [sys.executable, "-m", "actors.experiment.recompute"]
    done = subprocess.run(
        command, input=asked, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failure(f"the recomputing process failed: {last}", code="recompute")
    found: Json = json.loads(done.stdout)
    return found


def computed(
    backend: Backend, spelled: Grammar, blocks: Sequence[ContextBlock], texts: Sequence[str]
) -> Json:
    """Ids, state digest and first greedy token of the prompt that `blocks` are, on stream 0."""
    segments, opener = spelled_prompt(spelled, blocks, texts)
    fed = advances(segments, pack(opener), chunk_tokens=backend.chunk_tokens)
    backend.truncate(0, 0)
    pages, logits = [], None
    exported = True
    for piece in fed:
        logits = backend.advance(0, piece.ids, logits=piece is fed[-1])
        exported = exported and len(piece.ids) <= backend.export_tokens_max
        if exported:
            pages.append(page_digest(backend.export(0, piece.start, piece.stop)))
    assert logits is not None
    logits[sorted(backend.tokenizer.deny - spelled.stop_ids)] = -np.inf
    first = int(np.argmax(logits))
    return {
        "tokens": _ids(fed),
        "opener_tokens": len(opener),
        "state_digest": str(state_digest(pages)) if exported else None,
        "first_token": first,
        "first_bytes": list(backend.tokenizer.decode((first,))),
        "stops": first in spelled.stop_ids,
    }


def block_of(shown: Json) -> ContextBlock:
    """The block that the API shows. Raises ContentError for one that is not exact text."""
    return text_block(
        Role(shown["role"]),
        BlockType(shown["type"]),
        shown["content"],
        rendering=shown["rendering"],
        trust=shown["trust"],
        name=shown["name"],
    )


def spelled_prompt(
    spelled: Grammar, blocks: Sequence[ContextBlock], texts: Sequence[str]
) -> tuple[list[Segment], TokenIds]:
    """The segments that `spelled` makes of blocks and their texts, and what opens an answer."""
    state = spelled.initial()
    segments = []
    for block, text in zip(blocks, texts, strict=True):
        tokens, state = spelled.step(state, block, text)
        id = object_id(block)
        assert isinstance(id, BlockId)
        head, content = pack(tokens.head), pack(tokens.content)
        role, kind = block.role.value, block.type.value
        segments.append(Segment(block=id, role=role, type=kind, head=head, content=content))
    return segments, spelled.opener(state)


def _ids(fed: Sequence[Advance]) -> list[int]:
    return [token for piece in fed for token in piece.ids]


def main() -> None:
    asked = json.load(sys.stdin)
    spec = loader.load(asked["profile"])
    path = weights.weights_path(spec, Path(asked["home"]))
    profile = loader.bind(spec, path, build_digest())
    backend = LlamaBackend(path, profile)
    try:
        blocks = [block_of(shown) for shown in asked["blocks"]]
        texts = [shown["content"] for shown in asked["blocks"]]
        found = computed(backend, grammar(profile.grammar, backend.tokenizer), blocks, texts)
    finally:
        backend.close()
    found["equality"] = profile.equality
    found["profile_id"] = str(object_id(profile))
    found["block_ids"] = [str(object_id(block)) for block in blocks]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
