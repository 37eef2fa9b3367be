"""Trees of delegation in an installation that is asked: who takes what back, and what is left.

One tree lies below a principal's handle, as the authority room granted it; another below any root
of the same anchor. Messages go through the authority's and the ropes room's own doors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from protocol.capability import attenuate
from protocol.envelope import seal
from protocol.errors import AuthorityError, CapabilityError, HuginnError, NotVisible
from protocol.messages import Empty
from protocol.messages.authority import HandedRow, HandOut, Revoke, TakeBack, TakenBack
from protocol.messages.ropes import GetObjects, Objects
from protocol.record import Record, encode_record
from tests.chains import NOW, SECOND, namespace
from tests.delegation_trees import RIGHTS, Grant, Node, Oracle, edges, trees
from tests.rooms import PROFILE, YEAR_NS, Installation, Principal, opened

# What an oracle can be wrong of when something is revoked: that it is; that it takes along what
# lies below; that it leaves what does not.
REVOKING: Final = ("revocation", "subtree", "the rest")


class Step(NamedTuple):
    """At `time_ns`, the holder of `by` takes back `at`, given whole or named; or, for None, who
    operates revokes the principal."""

    time_ns: int
    by: int
    at: int | None
    whole: bool


@dataclass(frozen=True)
class Plan:
    tree: list[Node]
    steps: list[Step]


async def _installed() -> tuple[Installation, Principal, Principal]:
    house = await Installation().start()
    operator = await house.enroll("operator", administers=True)
    rights = [right.value for right in RIGHTS]
    return house, operator, await house.enroll("alice", namespace="team", rights=rights)


@cache
def _beginning() -> tuple[Node, Installation]:
    """The principal's node. Every installation is made alike, so it is that of each."""
    house, _, alice = asyncio.run(_installed())
    grant = Grant(
        resource=namespace("team"),
        rights=frozenset(RIGHTS),
        nbf_ns=NOW,
        exp_ns=NOW + YEAR_NS,
        depth_left=7,
        profiles=frozenset((PROFILE,)),
        domain="alice",
    )
    return Node(tuple(alice.row.chain), alice.signer, (grant,), None), house


def above(tree: Sequence[Node], at: int) -> list[int]:
    """The node and all that it lies below, up to its root."""
    parent = tree[at].parent
    return [at] if parent is None else [at, *above(tree, parent)]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Two trees, and what is taken back of them, mostly by one who gave it."""
    first, house = _beginning()
    tree = draw(trees(first=first, anchor=house.root))
    # Nothing that the rooms themselves hold ends within the hour.
    moments = [time for time in edges(tree) if NOW <= time < NOW + 3600 * SECOND]
    given = [at for at, node in enumerate(tree) if node.parent is not None]
    passed_on = [at for at in given if any(node.parent == at for node in tree)]
    # Half of it while most handles hold.
    times = st.sampled_from([NOW] * len(moments) + moments)
    steps = []
    for time_ns in sorted(draw(st.lists(times, min_size=4, max_size=6))):
        at = draw(st.sampled_from([*range(len(tree)), *given, *passed_on * 4]))
        givers, anybody = above(tree, at)[1:] or [at], draw(st.integers(0, len(tree) - 1))
        by = draw(st.sampled_from([*givers * 2, givers[-1], anybody]))
        principal = draw(st.integers(0, 9)) == 9
        steps.append(Step(time_ns, by, None if principal else at, draw(st.booleans())))
    return Plan(tree, steps)


class Forest:
    """`gone`: what was revoked, as the authority said; `told`: what is on record."""

    def __init__(self, house: Installation, tree: Sequence[Node], operator: Principal) -> None:
        self.house, self.tree, self.operator = house, tree, operator
        self.gone: set[int] = set()
        self.told: set[int] = set()

    def refusal(self, at: int, oracle: Oracle) -> str | None:
        """The step at which every room has to refuse the handle now; None: it holds."""
        grants = self.tree[at].grants
        if not oracle.sound(grants):
            return "attenuation.depth"
        if not oracle.current(grants, self.house.clock.wall_ns()):
            return "time"
        lost = set(above(self.tree, at))
        match oracle.ignoring:
            case "revocation":
                lost = set()
            case "subtree":
                lost = {at}
            case "the rest":
                lost = set(range(len(self.tree)))
        return "revocation" if self.gone & lost else None

    async def found(self, at: int) -> str | None:
        """The step at which the ropes room refuses the handle: what it refuses of the question is
        no matter."""
        node = self.tree[at]
        try:
            await self.ask(node.chain, node, "ropes", "get", GetObjects(ids=[]), reply=Objects)
        except CapabilityError as error:
            return error.step
        except HuginnError:
            pass
        return None

    async def ask(
        self,
        chain: tuple[bytes, ...],
        node: Node,
        room: str,
        op: str,
        record: Record,
        *,
        reply: type[Any],
    ) -> Any:
        message = seal(
            chain,
            node.holder,
            room=room,
            op=op,
            body=encode_record(record),
            ts_ns=self.house.clock.wall_ns(),
            nonce=self.house.entropy.draw(16),
            request_id="request",
        )
        return opened(await self.house.post.call(room, message), reply)

    def turn(self, at: int) -> tuple[bytes, ...]:
        """What the holder makes for one message, below its own. CapabilityError where no link
        fits below."""
        node = self.tree[at]
        nonce = self.house.entropy.draw(16)
        return attenuate(node.chain, node.holder, audience=node.holder.public, nonce=nonce)

    async def put_on_record(self) -> None:
        """The principal tells of all below it that holds now."""
        for at, node in enumerate(self.tree):
            if 0 in above(self.tree, at)[1:] and self.refusal(at, Oracle()) is None:
                ask = HandOut(chain=list(node.chain))
                await self.ask(
                    self.turn(0), self.tree[0], "authority", "hand_out", ask, reply=HandedRow
                )
                self.told.add(at)

    async def take_back(self, by: int, at: int, *, whole: bool) -> None:
        """It is done for one who gave it, whose handle holds and reaches the room, of a handle that
        holds or is on record; and for nobody else."""
        giver, node = self.tree[by], self.tree[at]
        try:
            chain = self.turn(by)
        except CapabilityError:
            assert giver.grants[-1].depth_left == 0 or not Oracle().sound(giver.grants)
            return
        # It needs no right: any that the giver has.
        right = min(giver.grants[-1].rights)
        wanted = (
            self.refusal(by, Oracle()) is None
            and Oracle().admits(giver.grants, right, "authority", "take_back")
            and by in above(self.tree, at)[1:]
            and (self.refusal(at, Oracle()) is None if whole else at in self.told)
        )
        ask = TakeBack(chain=list(node.chain)) if whole else TakeBack(id=node.id)
        try:
            done = await self.ask(chain, giver, "authority", "take_back", ask, reply=TakenBack)
        except (AuthorityError, NotVisible):
            assert not wanted
            return
        assert wanted
        assert done == TakenBack(id=node.id)
        self.gone.add(at)

    async def revoke_principal(self) -> None:
        ask = Revoke(name="alice")
        await self.operator.caller.ask("authority", "revoke", ask, Empty, administer=True)
        self.gone.add(0)


async def follow(plan: Plan) -> set[str]:
    """After each step the ropes room takes exactly the handles that hold. Returns those of
    `REVOKING` that would have been found."""
    house, operator, alice = await _installed()
    assert plan.tree[0].chain == tuple(alice.row.chain)
    forest = Forest(house, plan.tree, operator)
    await forest.put_on_record()
    wrong = set()
    for step in plan.steps:
        house.clock.now_ns = step.time_ns
        if step.at is None:
            await forest.revoke_principal()
        else:
            await forest.take_back(step.by, step.at, whole=step.whole)
        for at in range(len(plan.tree)):
            found = await forest.found(at)
            assert found == forest.refusal(at, Oracle())
            wrong |= {each for each in REVOKING if found != forest.refusal(at, Oracle(each))}
    return wrong
