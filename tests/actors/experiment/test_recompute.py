"""A cold run in another process equals a plain one, and says when it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.cli.asked import Failure
from actors.experiment.recompute import block_of, computed, recompute
from protocol.errors import HuginnError
from protocol.grammars.gemma_instruct import GemmaInstruct
from protocol.messages.assembler import Segment
from protocol.record import object_id
from protocol.tokens import pack
from tests.bare_worker import bare_answer
from tests.installations import tiny_home
from tests.model_fixtures import open_tiny


def block(role: str, type: str, content: str, **more: Any) -> dict[str, Any]:
    shown = {"role": role, "type": type, "content": content, "rendering": {}, "trust": True}
    return {**shown, "name": None, **more}


TALK = [
    block("system", "instruction", "Be short."),
    block("user", "user turn", "Which river?"),
    block("model", "model turn", "The Seine."),
    block("user", "user turn", "And the sea?"),
]


@pytest.mark.req("KV-2")
def test_another_process_equals_a_plain_loop(tmp_path: Path) -> None:
    found = recompute("tiny-gemma", tiny_home(tmp_path / "home"), TALK)
    backend = open_tiny()
    grammar = GemmaInstruct(backend.tokenizer)
    state, segments = grammar.initial(), []
    for shown in TALK:
        made = block_of(shown)
        tokens, state = grammar.step(state, made, shown["content"])
        head, content = pack(tokens.head), pack(tokens.content)
        segments.append(
            Segment(
                block=object_id(made),  # type: ignore[arg-type]
                role=shown["role"],
                type=shown["type"],
                head=head,
                content=content,
            )
        )
    opener = grammar.opener(state)
    bare = bare_answer(
        backend,
        segments,
        opener,
        tokens_max=1,
        stop_ids=grammar.stop_ids,
        chunk_tokens=backend.chunk_tokens,
    )
    backend.close()
    assert found["state_digest"] == str(bare.digest)
    assert found["stops"] is not bool(bare.ids)
    if bare.ids:
        assert found["first_token"] == bare.ids[0]
    assert found["opener_tokens"] == len(opener)
    assert found["block_ids"] == [str(segment.block) for segment in segments]


def test_a_block_longer_than_the_window_has_no_digest() -> None:
    backend = open_tiny()
    shown = block("user", "user turn", "x" * (backend.export_tokens_max + 10))
    spelled = GemmaInstruct(backend.tokenizer)
    found = computed(backend, spelled, [block_of(shown)], [shown["content"]])
    backend.close()
    assert found["state_digest"] is None
    assert len(found["tokens"]) > backend.export_tokens_max


def test_what_fails_there_is_a_failure_here(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot be read"):
        recompute("tiny-gemma", tmp_path, TALK)


def test_a_block_that_is_no_block_is_refused() -> None:
    with pytest.raises((HuginnError, ValueError)):
        block_of(block("nobody", "user turn", "x"))
