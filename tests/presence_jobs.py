"""Asking the worker itself, past the gateway, which hides some of an answer once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from actors.gateway.limits import Limits
from actors.gateway.turns import Ask, Prompt, chat_prompt, jobs
from actors.worker.chain import chains
from actors.worker.schedule import advances
from protocol.ids import ChainId
from protocol.messages.assembler import Segment
from protocol.messages.ropes import NewBlock, Publication, Publish, Withdraw
from protocol.messages.worker import GREEDY, Generate
from protocol.publication import state_prefix
from protocol.record import object_id
from tests.presence_house import CHUNK, PROFILE_ID, House
from tests.rooms import PROFILE

Talk = Sequence[NewBlock]
# What is done to a job before it is asked for.
Change = Callable[[Generate], Generate]


async def prompt_of(made: House, who: str, talk: Talk) -> Prompt:
    """The prompt of `talk`, with the assembler's statement of what of it is public."""
    caller = made.people[who].principal.caller
    model = next(iter(made.gateway.models))
    return await chat_prompt(caller, model, list(talk), caller.namespace)


def job_of(made: House, prompt: Prompt, response: str) -> Generate:
    """The job of answering `prompt`, with four tokens."""
    model = next(iter(made.gateway.models))
    ask = Ask(structs.replace(GREEDY, seed=7), [], 1, 4, None, False)
    (job,) = jobs(prompt, ask, model, response, Limits())
    return job


def as_it_is(job: Generate) -> Generate:
    """No change."""
    return job


def stated(made: House, segments: Sequence[Segment]) -> bytes:
    """What the assembler says of `segments` while all of them are public."""
    return state_prefix(made.rooms.signers["assembler"], PROFILE, segments)


def chains_of(prompt: Prompt) -> list[ChainId]:
    """What the states are called that `prompt` leads through."""
    pieces = advances(prompt.segments, prompt.opener, chunk_tokens=CHUNK)
    return list(chains(PROFILE_ID, pieces))


async def publish(made: House, *blocks: NewBlock) -> None:
    """Let the operator make them public."""
    for each in blocks:
        ask = Publish(block=each.block, content=each.content)
        caller = made.people["operator"].principal.caller
        await caller.ask("ropes", "publish", ask, Publication, administer=True)


async def withdraw(made: House, block: NewBlock) -> None:
    """Let the operator make it private again."""
    ask = Withdraw(block=object_id(block.block))  # type: ignore[arg-type]
    caller = made.people["operator"].principal.caller
    await caller.ask("ropes", "withdraw", ask, Publication, administer=True)
