"""The peer is asked for the very tokens that Huginn feeds, its state file holds what was saved, and
the bench prints each condition and leaves nothing running."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from actors.runtime.wiring import profile_contracts
from bench import peer_state, peers
from bench.peer_sides import Messages, transcript
from protocol.blocks import BlockType, ContextBlock, Role, text_block
from protocol.transform import fold_to_state
from tests.installations import processes_below
from tests.model_fixtures import Model, open_real, open_tiny, real, tiny

KINDS = {
    "system": (Role.SYSTEM, BlockType.INSTRUCTION),
    "user": (Role.USER, BlockType.USER_TURN),
    "assistant": (Role.MODEL, BlockType.MODEL_TURN),
}
TALK: Messages = [
    peers.said("system", "Answer as the old king would."),
    peers.said("user", "What did the raven see?"),
    peers.said("assistant", "Fires by the water."),
    peers.said("user", "And then?"),
]


def huginn_tokens(model: Model, *, instruct: bool) -> list[int]:
    """The prompt that the profile's grammar makes of TALK."""
    backend = open_tiny() if instruct else open_real()
    try:
        grammar = profile_contracts(model[1], backend.tokenizer).grammar
        blocks: list[tuple[ContextBlock, str]] = []
        for each in TALK:
            role, kind = KINDS[each["role"]]
            blocks.append((text_block(role, kind, each["content"]), each["content"]))
        stream, state = fold_to_state(grammar, blocks)
        return [token for part in stream for token in part.ids] + list(grammar.opener(state))
    finally:
        backend.close()


def test_the_peer_reads_the_tokens_of_the_instruct_grammar() -> None:
    model = tiny()
    binding = peer_state.Binding(str(model[0]), 256)
    text = transcript(TALK, instruct=True)
    assert binding.tokens(text, bos=True) == huginn_tokens(model, instruct=True)


@pytest.mark.model
def test_the_peer_reads_the_tokens_of_the_transcript() -> None:
    model = real()
    binding = peer_state.Binding(str(model[0]), 256)
    text = transcript(TALK, instruct=False)
    assert binding.tokens(text, bos=True) == huginn_tokens(model, instruct=False)


def test_a_saved_state_is_restored_for_its_own_prompt_alone(tmp_path: Path) -> None:
    file = str(tmp_path / "state")
    model = str(tiny()[0])
    writer = peer_state.Binding(model, 256)
    history, more = writer.tokens("the raven flew", bos=True), writer.tokens(" home", bos=False)
    saved = writer.save(history, more, file)
    assert saved["tokens"] == len(history)
    assert saved["bytes"] == Path(file).stat().st_size
    restored = peer_state.Binding(model, 256).restore(history, more, file)
    assert restored["tokens"] == len(history)
    assert restored["new_tokens"] == len(more)
    assert 0 < restored["restore_ms"] < restored["first_token_ms"]
    with pytest.raises(AssertionError, match="another prompt's"):
        peer_state.Binding(model, 256).restore([*history[:-1], history[0]], more, file)


def test_talks_of_two_seeds_differ_from_their_first_words() -> None:
    plan = peers.Plan("tiny-gemma", 600, 1, (), 2048, True, 5.0, 0.0)
    first, second = (plan.talk(seed, 600) for seed in ("a", "b"))
    assert [each["role"] for each in first] == ["user", "assistant"] * 2 + ["user"]
    assert first[0]["content"].split()[:4] != second[0]["content"].split()[:4]
    assert plan.talk("a", 600) == first


@pytest.mark.slow
def test_prints_each_condition_and_leaves_nothing_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(processes_below(os.getpid()))
    written = tmp_path / "peers.json"
    peers.main(["--tiny", "--tokens", "400", "--repeats", "1", "--json", str(written)])
    assert set(processes_below(os.getpid())) <= before
    rows = json.loads(written.read_text("utf-8"))["rows"]
    found = {(row["condition"], row["peer"]) for row in rows if "condition" in row}
    both = {"cold", "append, at once", "append, idle gap", "two that alternate"}
    assert {(name, peer) for name in both for peer in ("server", "server+cache")} <= found
    assert ("after restart", "state file") in found
    assert all(row["huginn ms"] > 0 and row["peer ms"] > 0 for row in rows if "condition" in row)
    assert [row["decode, streams"] for row in rows if "decode, streams" in row] == [1, 3]
    printed = capsys.readouterr().out
    assert "differ from Huginn's by at most 0" in printed
    assert "exponent" in printed
