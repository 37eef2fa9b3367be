"""What a stranger says to the rooms themselves, past the gateway, to find out about somebody else.

It knows everything but the contents: all the ids that the other was ever told, what follows from
them, and what the other may have said. A message that is `foreign` names what is another's and does
something there: whatever it is answered, it must be no.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from protocol import cbor
from protocol.blocks import Role
from protocol.capability import attenuate
from protocol.ids import (
    BlockId,
    CapabilityId,
    ChainId,
    ContextId,
    InvocationId,
    NodeId,
    PageId,
    SequenceId,
)
from protocol.messages import Empty
from protocol.messages.assembler import Assemble, DiffContexts, Show, ShowTree
from protocol.messages.authority import HandOut, TakeBack
from protocol.messages.erasure import AskErasure, Erase, RequestErasure
from protocol.messages.events import (
    AbandonTurn,
    AddSource,
    AppendEvents,
    AskResponse,
    AskSession,
    BeginTurn,
    FinishTurn,
    Follow,
    ListSessions,
    ListSources,
    NewEvent,
    OpenSession,
    OutputBlock,
    Preview,
    ReadEvents,
    RegisterKind,
    RemoveSource,
    RenewTurn,
)
from protocol.messages.muninn import Look
from protocol.messages.ropes import Commit, Entry, GetObjects, ReadSequence, ReadTree
from protocol.messages.worker import AskPages, AskReceipt, Cancel, Settle
from protocol.record import Record
from protocol.signing import Signer
from tests.events_rooms import said
from tests.presence_house import PROFILE, TEXTS
from tests.rooms import Principal

OTHER = "alice"
Chain = tuple[bytes, ...]
# How many ids of a kind are tried.
_TRIED = 2
_ROOMS = ("ropes", "assembler", "muninn", "worker", "events", "gateway")


class Leaked:
    """Every id that was told to the other, by kind, in the order of telling; and the `handles` that
    the other gave out."""

    def __init__(self, ids: Sequence[str], handles: Sequence[list[bytes]] = ()) -> None:
        self.handles = handles
        self._kind_to_ids: dict[str, list[str]] = {}
        for each in dict.fromkeys(ids):
            self._kind_to_ids.setdefault(re.split("[-:_]", each)[0], []).append(each)

    def __call__(self, *kinds: str, most: int = _TRIED) -> list[str]:
        return [each for kind in kinds for each in self._kind_to_ids.get(kind, [])[:most]]

    def one(self, kind: str) -> str:
        """The newest of a kind: older ones may be no more."""
        return self._kind_to_ids[kind][-1]

    def kinds(self) -> list[str]:
        return list(self._kind_to_ids)

    def some(self) -> list[str]:
        """One of each kind."""
        return [found[0] for found in self._kind_to_ids.values()]


class Message(NamedTuple):
    """One message to a room. `foreign`: it names what is another's, and must be refused.
    `administer`: under the handle that administers."""

    room: str
    op: str
    record: Record
    foreign: bool = True
    administer: bool = False


def given_out(by: Principal) -> Chain:
    """A handle below that of `by`, the same in every world, for a key that is nobody's."""
    return attenuate(
        by.row.chain, by.signer, audience=Signer(b"\x31" * 32).public, nonce=b"\x01" * 16
    )


def taking_back(who: Principal) -> Message:
    """What the stranger gave out itself it takes back, and is told nothing of what others did."""
    ask = TakeBack(chain=list(given_out(who)))
    return Message("authority", "take_back", ask, foreign=False)


def messages(who: str, leaked: Leaked) -> Iterator[Message]:
    """What the key of `who`, a stranger, can say."""
    yield from _ropes(who, leaked)
    yield from _assembler(who, leaked)
    for inv in leaked("inv", most=6):
        yield Message("muninn", "look", Look(invocations=[InvocationId.parse(inv)]), foreign=False)
    yield from _worker(leaked)
    for room in ("worker", "muninn"):
        yield Message(room, "charge", Empty(), foreign=False)
    for op, record, foreign in _sources(who):
        yield Message("events", op, record, foreign)
    for op, record, foreign in _sessions(who, leaked):
        yield Message("events", op, record, foreign)
    yield from _authority(leaked)
    gone = Erase(domains=[OTHER], namespaces=[OTHER], spared=[], principals=[], names=[])
    for room in _ROOMS:
        yield Message(room, "erase", gone)


def inside(leaked: Leaked) -> Iterator[Message]:
    """What one can say who may write and answer where the other works, and neither read nor observe
    there: to put into a sequence what it may not see, or to be told of it by a session."""
    for block in leaked("block", most=8):
        for length in sorted({len(text) for text in TEXTS}):
            entries = [Entry(block=BlockId.parse(block), content_bytes=length)]
            yield Message(
                "ropes", "commit", Commit(namespace=OTHER, keep=0, blocks=[], entries=entries)
            )
    for root in leaked("rope"):
        yield Message("ropes", "commit", _longer(OTHER, root))
    # What was said is remembered still, and the turn would begin with it.
    for number, response in enumerate(leaked("resp")):
        begun = BeginTurn(
            namespace=OTHER,
            response=f"resp-inside-{number}",
            wait_ns_max=0,
            parent_response=response,
            input=[said(Role.USER, TEXTS[3])],
        )
        yield Message("events", "begin_turn", begun)
    for place in (None, "well", "ford"):
        opened = OpenSession(namespace=OTHER, persona="wendy", since="now", place=place)
        yield Message("events", "open_session", opened, foreign=False)
    for session in leaked("session", most=4):
        for turn in leaked("turn", most=4):
            for op, record in _ending(session, turn):
                yield Message("events", op, record)
        begun = BeginTurn(
            namespace=OTHER,
            response="resp-inside",
            wait_ns_max=0,
            session=session,
            input=[said(Role.USER, TEXTS[3])],
        )
        yield Message("events", "begin_turn", begun)
    for response in leaked("resp", "chatcmpl"):
        forget = AskResponse(namespace=OTHER, response=response)
        yield Message("events", "forget_response", forget)


def _longer(namespace: str, root: str) -> Commit:
    """A sequence in `namespace` that begins as another's does."""
    return Commit(namespace=namespace, base=NodeId.parse(root), keep=1, blocks=[], entries=[])


def _ropes(who: str, leaked: Leaked) -> Iterator[Message]:
    for each in leaked("ctx", "seq", "block", "rope", "text"):
        yield Message("ropes", "get", GetObjects(ids=[each]))
    yield Message("ropes", "commit", Commit(namespace=OTHER, keep=0, blocks=[], entries=[]))
    # Sequences of the stranger's own, over what is another's.
    block = BlockId.parse(leaked.one("block"))
    entries = [Entry(block=block, content_bytes=len(TEXTS[0]))]
    yield Message("ropes", "commit", Commit(namespace=who, keep=0, blocks=[], entries=entries))
    for root in leaked("rope"):
        yield Message("ropes", "commit", _longer(who, root))
    for sequence in map(SequenceId.parse, leaked("seq")):
        yield Message("ropes", "read", ReadSequence(sequence=sequence, start=0))
        yield Message("ropes", "tree", ReadTree(sequence=sequence))


def _assembler(who: str, leaked: Leaked) -> Iterator[Message]:
    for context in map(ContextId.parse, leaked("ctx")):
        yield Message("assembler", "show", Show(context=context, tokens=True))
        yield Message("assembler", "tree", ShowTree(context=context))
        yield Message("assembler", "diff", DiffContexts(a=context, b=context))
    ours = [said(Role.USER, TEXTS[3])]
    theirs = SequenceId.parse(leaked.one("seq"))
    for namespace, blocks, sequence, store in (
        (OTHER, ours, None, True),
        (OTHER, ours, None, False),
        (who, None, theirs, False),
    ):
        ask = Assemble(
            namespace=namespace,
            profile=PROFILE,
            policy="refuse",
            tokens_max=1000,
            keep_turns=0,
            store=store,
            blocks=blocks,
            sequence=sequence,
        )
        yield Message("assembler", "assemble", ask)


def _worker(leaked: Leaked) -> Iterator[Message]:
    for response in leaked("chatcmpl", "cmpl", "resp"):
        yield Message("worker", "receipt", AskReceipt(response=response))
    for chain in leaked("chain", most=4):
        for page in leaked("page", most=4):
            ask = AskPages(chain=ChainId.parse(chain), pages=[PageId.parse(page)])
            yield Message("worker", "pages", ask, foreign=False)
    cancel = Cancel(response=leaked.one("chatcmpl"))
    yield Message("worker", "cancel", cancel, foreign=False)
    yield Message("worker", "settle", Settle(response="none", segments=[]))
    yield Message("worker", "info", Empty(), foreign=False)


def _sources(who: str) -> Iterator[tuple[str, Record, bool]]:
    event = NewEvent(kind="note", subject="0", body=cbor.encode({"text": "x"}))
    ours = {"namespace": OTHER}
    yield "add_source", AddSource(**ours, name="sled"), True
    yield "append", AppendEvents(**ours, source="sled", events=[event]), True
    yield "read", ReadEvents(**ours, source="sled", after=0, limit=10), True
    yield "follow", Follow(**ours), True
    yield "follow", Follow(**ours, sources=["sled"]), True
    yield "follow", Follow(namespace=who), False
    yield "sources", ListSources(**ours), False
    yield "kinds", ListSources(**ours), False
    yield "register_kind", RegisterKind(**ours, kind=f"{OTHER}.Other", schema=b"{}"), True
    yield "remove_source", RemoveSource(**ours, name="sled"), True


def _sessions(who: str, leaked: Leaked) -> Iterator[tuple[str, Record, bool]]:
    session, response = leaked.one("session"), leaked.one("resp")
    turn = leaked.one("turn")
    ours = {"namespace": OTHER}
    yield "sessions", ListSessions(**ours), False
    # Where the other had sessions: the one that is there, and the one that was.
    for namespace, place in ((OTHER, "well"), (who, "well"), (who, "ford")):
        opened = OpenSession(namespace=namespace, persona="sally", since="now", place=place)
        yield "open_session", opened, namespace == OTHER
    for namespace in (OTHER, who):
        yield "turns", AskSession(namespace=namespace, id=session), True
        yield "preview", Preview(namespace=namespace, session=session), True
        yield "response", AskResponse(namespace=namespace, response=response), True
    begun = BeginTurn(
        namespace=OTHER,
        response="resp-of-a-stranger",
        wait_ns_max=10**6,
        session=session,
        input=[said(Role.USER, TEXTS[3])],
    )
    yield "begin_turn", begun, True
    for op, record in _ending(session, turn):
        yield op, record, True
    yield "forget_response", AskResponse(**ours, response=response), True
    yield "remove_session", AskSession(**ours, id=session), True


def _ending(session: str, turn: str) -> Iterator[tuple[str, Record]]:
    """All that a turn of the other's can come to."""
    theirs = {"namespace": OTHER, "session": session, "turn": turn}
    yield "renew_turn", RenewTurn(**theirs)
    yield "finish_turn", FinishTurn(**theirs, answer=OutputBlock(text="x", role=Role.MODEL))
    yield "abandon_turn", AbandonTurn(**theirs)


def _authority(leaked: Leaked) -> Iterator[Message]:
    for erasure in leaked("erasure"):
        yield Message("authority", "erasure", AskErasure(id=erasure))
    yield Message("authority", "erasures", Empty(), foreign=False)
    yield Message("authority", "handed_out", Empty(), foreign=False)
    for chain in leaked.handles:
        yield Message("authority", "hand_out", HandOut(chain=chain))
    for id in leaked("cap"):
        yield Message("authority", "take_back", TakeBack(id=CapabilityId.parse(id)))
    for chain in leaked.handles:
        yield Message("authority", "take_back", TakeBack(chain=chain))
    wanted = (
        RequestErasure(target="object", name=leaked.one("block"), namespace=OTHER),
        RequestErasure(target="namespace", name=OTHER),
        RequestErasure(target="domain", name="nobodys"),
        RequestErasure(target="domain", name=OTHER),
        RequestErasure(target="principal", name=OTHER),
    )
    for ask in wanted:
        yield Message("authority", "request_erasure", ask)
