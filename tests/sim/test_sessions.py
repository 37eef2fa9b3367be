"""Sessions under everything at once, against the model that knows what each turn must be told.

Events, turns, branches, resent histories with edits, leases that run out, retention and rooms that
die, in any order that Hypothesis finds; two personas with overlapping scopes.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.events_rooms import House
from tests.session_play import Play, Talk, Told, edited

NUMBER = st.integers(0, 1000)
# An example is a play of thirty steps: fewer of them than a property has.
EXAMPLES = max(15, (settings.default or settings()).max_examples // 100)
SOURCES = ("huskies", "ketflix", "sled")
# Few texts, so that messages repeat.
TEXT = st.sampled_from(("ok", "go on", "what's going on?"))


class Sessions(RuleBasedStateMachine):
    """The play, directed by Hypothesis."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.texts = 0

    @initialize()
    def begin_the_play(self) -> None:
        self.runner.run(self._set_up())

    async def _set_up(self) -> None:
        self.play = Play(await House().start())
        for name in SOURCES:
            await self.play.add_source(name)
        # The gateway's persona, that of one source, and one that shares a source with each.
        for scope in (None, ["huskies"], ["huskies", "ketflix"]):
            await self.play.open(scope)

    def _talk(self, number: int) -> Talk:
        return self.play.talks[number % len(self.play.talks)]

    def _turn(self, number: int) -> tuple[Talk, Told] | None:
        turns = [(talk, told) for talk in self.play.talks for told in talk.turns]
        return turns[number % len(turns)] if turns else None

    @rule(which=NUMBER, count=st.integers(1, 4))
    def emit(self, which: int, count: int) -> None:
        self.runner.run(self.play.emit(SOURCES[which % len(SOURCES)], count))

    @rule(which=NUMBER, text=TEXT)
    def begin(self, which: int, text: str) -> None:
        self.runner.run(self.play.begin(self._talk(which), text))

    @precondition(lambda self: any(talk.turns for talk in self.play.talks))
    @rule(which=NUMBER, text=TEXT)
    def branch(self, which: int, text: str) -> None:
        talk, told = self._turn(which) or (self._talk(which), None)
        assert told is not None
        self.runner.run(self.play.begin(talk, text, talk.turns.index(told)))

    @rule(which=NUMBER, way=NUMBER, at=NUMBER, text=TEXT)
    def resend(self, which: int, way: int, at: int, text: str) -> None:
        talk = self._talk(which)
        self.runner.run(self.play.resend(talk, edited(talk.client, way, at, text)))

    @precondition(lambda self: any(talk.turns for talk in self.play.talks))
    @rule(which=NUMBER, way=st.sampled_from(("finish", "finish", "abandon", "renew")))
    def end(self, which: int, way: str) -> None:
        found = self._turn(which)
        assert found is not None
        talk, told = found
        if way == "finish" and told.state != "finished":
            self.runner.run(self.play.finish(talk, told, f"Answer to {told.id[-4:]}."))
        elif way == "abandon":
            self.runner.run(self.play.abandon(talk, told))
        elif way == "renew":
            self.runner.run(self.play.renew(talk, told))

    @rule(which=NUMBER, keep=st.integers(0, 5))
    def trim(self, which: int, keep: int) -> None:
        self.runner.run(self.play.trim(SOURCES[which % len(SOURCES)], keep))

    @rule()
    def expire(self) -> None:
        self.play.expire()

    @rule()
    def crash(self) -> None:
        self.runner.run(self.play.crash())

    @invariant()
    def previews_move_nothing(self) -> None:
        if hasattr(self, "play"):
            talk = self.play.talks[0]
            first = self.runner.run(self.play.house.preview(talk.id))
            assert self.runner.run(self.play.house.preview(talk.id)) == first

    def teardown(self) -> None:
        if hasattr(self, "play"):
            self.runner.run(self.play.adopt())
            self.runner.run(self.play.house.room.drain())
        self.runner.close()


TestSessions = pytest.mark.req("EVT-3", "EVT-5", "EVT-9", "EVT-12")(Sessions.TestCase)
TestSessions.settings = settings(max_examples=EXAMPLES, stateful_step_count=30)
