"""Which stream holds which prefix, and which one a prompt gets. Knows no tensor, no clock.

A stream is one sequence of the back end. Its boundaries are the advances that were fed to it, by
chain. What decode wrote behind the last boundary is never listed: it is not canonical, and goes
when the job that wrote it ends. A stream belongs to one domain; to any other it is as good as
full of nothing: never matched, and cleared before it is used (I-NO-PRESENCE). But for its public
part: its first boundaries, as far as they were derived in the public domain, match what is public
of a prompt, whoever asks. Such a stream serves a stranger only if nothing of it is lost by that, or
if it is the one to go first.

The choice, in order:

1. the idle stream with the longest match, by what is the domain's own or public; among equals the
   one that would lose least, so that a conversation that goes on stays where it is. It is cut back
   to the match, unless the tail that this would destroy is more than eight times the match, or any
   of another domain's: then it is passed over for the next best;
2. an empty stream;
3. the least recently used idle stream, of whatever domain, cut back to what it shares (nothing
   if it is another's).

A stream that was restored has a `floor`: cut back below it, it would lack rows that it looks at. A
match that would need that is none, and the stream as good as full of nothing for that prompt.

A leased stream is never chosen; if all are leased, there is no choice and the prompt waits. That
a prompt is admitted depends on how many streams are leased, never on what they hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from protocol.ids import ChainId, PageId
from protocol.publication import PUBLIC
from store.pages.tier import PageInfo

# How many times its match a prompt may destroy of another's tail. A short shared beginning (a
# system prompt) costs less to feed again than a long conversation that somebody may continue.
TAIL_PER_MATCH_MAX: Final = 8


@dataclass(slots=True)
class Boundary:
    """The end of one advance. `tokens` is the stream's length there; `public`: it was derived in
    the public domain, and so were all before it."""

    chain: ChainId
    tokens: int
    page: PageId | None = None
    public: bool = False


@dataclass(slots=True)
class Stream:
    """One stream of the back end. `used` is the turn of its last use; `retired` streams are
    broken and never chosen again. `floor` is the shortest length to which it can be cut, in tokens;
    emptying it is always possible."""

    index: int
    domain: str | None = None
    boundaries: list[Boundary] = field(default_factory=list)
    leased: bool = False
    retired: bool = False
    used: int = 0
    floor: int = 0

    @property
    def tokens(self) -> int:
        """The length of its canonical part."""
        return self.boundaries[-1].tokens if self.boundaries else 0


class Choice(NamedTuple):
    """Use `stream`, of whose boundaries the first `keep` (`tokens` tokens) are the prompt's."""

    stream: int
    keep: int
    tokens: int


class Streams:
    """The table. Its owner feeds the back end first and writes down here what came of it."""

    def __init__(self, count: int) -> None:
        self._streams = [Stream(index) for index in range(count)]
        self._turn = 0

    def __getitem__(self, index: int) -> Stream:
        return self._streams[index]

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def leased(self) -> int:
        """How many streams are leased."""
        return sum(stream.leased for stream in self._streams)

    @property
    def resident_tokens(self) -> int:
        """The tokens of all canonical prefixes."""
        return sum(stream.tokens for stream in self._streams)

    def usable(self) -> bool:
        """Whether any stream is not retired."""
        return not all(stream.retired for stream in self._streams)

    def match(self, index: int, domain: str, chains: Sequence[ChainId], public: int = 0) -> Choice:
        """What stream `index` holds of the state that `chains` lead to, for `domain`; the first
        `public` of them may be found in the public domain."""
        stream = self._streams[index]
        mine = stream.domain == domain
        keep = 0
        for boundary, chain in zip(stream.boundaries, chains, strict=False):
            if boundary.chain != chain or not (mine or (boundary.public and keep < public)):
                break
            keep += 1
        return Choice(index, keep, stream.boundaries[keep - 1].tokens if keep else 0)

    def choose(self, domain: str, chains: Sequence[ChainId], public: int = 0) -> Choice | None:
        """The stream for a prompt, by the rule above; None if every stream is leased."""
        idle = [stream for stream in self._streams if not stream.leased and not stream.retired]
        if not idle:
            return None
        matches = [self._cuttable(self.match(s.index, domain, chains, public)) for s in idle]
        kept = [match for match in matches if match.keep and not self._destroys(match, domain)]
        if kept:
            return max(kept, key=lambda match: (match.tokens, -self.lost(match), -match.stream))
        return self._cuttable(self.match(_cheapest(idle).index, domain, chains, public))

    def cheapest(self) -> int | None:
        """The idle stream that may go first: an empty one, else the least recently used."""
        idle = [stream for stream in self._streams if not stream.leased and not stream.retired]
        return _cheapest(idle).index if idle else None

    def lost(self, choice: Choice) -> int:
        """How many tokens of a stream's canonical part the choice would cut off."""
        return self._streams[choice.stream].tokens - choice.tokens

    def choose_spare(
        self, domain: str, chains: Sequence[ChainId], public: int = 0
    ) -> Choice | None:
        """The stream on which `chains` can be settled at nobody's expense: one that is wholly a
        prefix of them or holds them all, else an empty one, else None."""
        idle = [stream for stream in self._streams if not stream.leased and not stream.retired]
        matches = [self.match(stream.index, domain, chains, public) for stream in idle]
        free = [
            match
            for match in matches
            if match.keep == len(chains)
            or match.keep == len(self._streams[match.stream].boundaries)
        ]
        return max(free, key=lambda match: (match.tokens, -match.stream), default=None)

    def lease(self, choice: Choice, domain: str) -> None:
        """Cut the stream back to the choice, give it to `domain`, and lease it."""
        self.occupy(choice, domain)
        self._streams[choice.stream].leased = True

    def occupy(self, choice: Choice, domain: str) -> None:
        """As `lease`, without the lease."""
        stream = self._streams[choice.stream]
        assert not stream.leased, f"stream {choice.stream} is leased"
        kept = stream.boundaries[: choice.keep]
        mine = stream.domain == domain or all(boundary.public for boundary in kept)
        assert mine, "another domain's prefix"
        del stream.boundaries[choice.keep :]
        if not choice.keep:
            stream.floor = 0
        stream.domain = domain
        self._touch(stream)

    def extend(self, index: int, chain: ChainId, tokens: int, *, public: bool = False) -> None:
        """One advance was fed: the stream now has `tokens` tokens, and `chain` names them. It is
        public only behind what is public."""
        stream = self._streams[index]
        assert tokens > stream.tokens, "an advance is not empty"
        stream.boundaries.append(Boundary(chain, tokens, public=public and _all_public(stream)))
        self._touch(stream)

    def withdraw(self) -> None:
        """Nothing is public any more: what a stream holds is its domain's alone."""
        for stream in self._streams:
            for boundary in stream.boundaries:
                boundary.public = False

    def fill(self, index: int, infos: Sequence[PageInfo], floor: int) -> None:
        """An empty stream was restored: these pages, and how far back it can be cut."""
        stream = self._streams[index]
        assert not stream.boundaries, f"stream {index} is not empty"
        for info in infos:
            stop = info.page.start + info.page.tokens
            public = info.page.domain == PUBLIC and _all_public(stream)
            stream.boundaries.append(Boundary(info.page.chain, stop, info.digest, public))
        stream.floor = floor

    def release(self, index: int) -> None:
        """The job is done with the stream; what it fed stays, for the next one."""
        stream = self._streams[index]
        assert stream.leased, f"stream {index} is not leased"
        stream.leased = False
        self._touch(stream)

    def clear(self, index: int) -> None:
        """Forget what the stream holds, whose it is and its lease."""
        stream = self._streams[index]
        stream.boundaries.clear()
        stream.floor = 0
        stream.domain = None
        stream.leased = False

    def retire(self, index: int) -> None:
        """The back end cannot even empty this stream: nobody gets it any more."""
        self.clear(index)
        self._streams[index].retired = True

    def _touch(self, stream: Stream) -> None:
        self._turn += 1
        stream.used = self._turn

    def _cuttable(self, match: Choice) -> Choice:
        stream = self._streams[match.stream]
        if match.keep < len(stream.boundaries) and match.tokens < stream.floor:
            return Choice(match.stream, 0, 0)
        return match

    def _destroys(self, match: Choice, domain: str) -> bool:
        if self._streams[match.stream].domain != domain:
            return self.lost(match) > 0
        return match.tokens * TAIL_PER_MATCH_MAX < self.lost(match)


def _all_public(stream: Stream) -> bool:
    return not stream.boundaries or stream.boundaries[-1].public


def _cheapest(idle: Sequence[Stream]) -> Stream:
    empty = [stream for stream in idle if not stream.boundaries]
    return empty[0] if empty else min(idle, key=lambda stream: (stream.used, stream.index))
