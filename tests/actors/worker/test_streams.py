"""The table of streams against a naive model that stores the ids themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.worker.streams import TAIL_PER_MATCH_MAX, Choice, Streams
from protocol.ids import ChainId, PageId
from store.pages.tier import Page, PageInfo
from tests.worker_rooms import PROFILE

COUNT = 3
# A prompt is a word; its advances are its letters, of 1, 2 or 3 … tokens each.
words = st.text("ab", min_size=1, max_size=10)
domains = st.sampled_from(["alice", "bob"])
SIZES = {"a": 1, "b": 7}


def chain(word: str) -> ChainId:
    return ChainId.of(word.encode())


def chains(word: str) -> list[ChainId]:
    return [chain(word[: k + 1]) for k in range(len(word))]


def size(word: str) -> int:
    return sum(SIZES[letter] for letter in word)


def infos(word: str) -> list[PageInfo]:
    found = []
    for k, letter in enumerate(word):
        parent = chain(word[:k]) if k else None
        page = Page("alice", chain(word[: k + 1]), parent, PROFILE, size(word[:k]), SIZES[letter])
        found.append(PageInfo(page, PageId.of(letter.encode()), 1, 1))
    return found


def shared(one: str, other: str) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


class StreamsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = Streams(COUNT)
        self.words = [""] * COUNT
        self.owners: list[str | None] = [None] * COUNT
        self.floors = [0] * COUNT
        self.leased: dict[int, str] = {}
        self.order: list[int] = []

    def touch(self, index: int) -> None:
        self.order = [other for other in self.order if other != index] + [index]

    def oracle(self, domain: str, word: str) -> Choice | None:
        idle = [i for i in range(COUNT) if i not in self.leased]
        if not idle:
            return None
        best: tuple[int, int, int] | None = None
        for i in idle:
            keep = self.cut(i, domain, word)
            match, lost = size(word[:keep]), size(self.words[i]) - size(word[:keep])
            if keep and match * TAIL_PER_MATCH_MAX >= lost:
                best = max(best or (0, 0, 0), (match, -lost, -i))
        if best:
            index = -best[2]
        else:
            empty = [i for i in idle if not self.words[i]]
            never = [i for i in idle if i not in self.order]
            index = (empty or never or [i for i in self.order if i in idle])[0]
        keep = self.cut(index, domain, word)
        return Choice(index, keep, size(word[:keep]))

    def cut(self, index: int, domain: str, word: str) -> int:
        """How many letters of the stream can be kept: those shared, if it may be cut there."""
        held = self.words[index]
        keep = shared(held, word) if self.owners[index] == domain else 0
        return keep if keep == len(held) or size(held[:keep]) >= self.floors[index] else 0

    @rule(domain=domains, word=words)
    def start(self, domain: str, word: str) -> None:
        found = self.table.choose(domain, chains(word))
        assert found == self.oracle(domain, word)
        if found is None:
            return
        self.table.lease(found, domain)
        self.words[found.stream] = word[: found.keep]
        self.floors[found.stream] *= found.keep > 0
        self.owners[found.stream] = domain
        self.leased[found.stream] = word
        self.touch(found.stream)

    @precondition(lambda self: self.leased)
    @rule(data=st.data())
    def feed(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.leased)))
        word = self.leased[index]
        done = len(self.words[index])
        if done < len(word):
            self.words[index] = word[: done + 1]
            self.table.extend(index, chain(word[: done + 1]), size(word[: done + 1]))
            self.touch(index)

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), clear=st.booleans())
    def end(self, data: st.DataObject, clear: bool) -> None:
        index = data.draw(st.sampled_from(sorted(self.leased)))
        del self.leased[index]
        if clear:
            self.table.clear(index)
            self.words[index], self.owners[index], self.floors[index] = "", None, 0
        else:
            self.table.release(index)
            self.touch(index)

    @precondition(lambda self: any(not self.words[index] for index in self.leased))
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from([i for i in sorted(self.leased) if not self.words[i]]))
        word = self.leased[index]
        floor = data.draw(st.integers(0, size(word)))
        self.table.fill(index, infos(word), floor)
        self.words[index], self.floors[index] = word, floor

    @rule(domain=domains, word=words)
    def settle(self, domain: str, word: str) -> None:
        found = self.table.choose_spare(domain, chains(word))
        free = [
            i
            for i in range(COUNT)
            if i not in self.leased
            and (
                not self.words[i]
                or (
                    self.owners[i] == domain
                    and (word.startswith(self.words[i]) or self.words[i].startswith(word))
                )
            )
        ]
        if not free:
            assert found is None
            return
        assert found is not None
        assert found.stream in free
        best = max(size(word[: shared(self.words[i], word)]) for i in free)
        assert found.tokens == best

    @invariant()
    def table_is_the_model(self) -> None:
        for index in range(COUNT):
            stream = self.table[index]
            assert [b.chain for b in stream.boundaries] == chains(self.words[index])
            assert stream.tokens == size(self.words[index])
            assert stream.leased == (index in self.leased)
        assert self.table.leased == len(self.leased)
        assert self.table.resident_tokens == sum(map(size, self.words))


StreamsMachine.TestCase.settings = settings(stateful_step_count=40)
TestStreams = pytest.mark.req("KV-5", "KV-12")(StreamsMachine.TestCase)


def filled(*words: str, domain: str = "alice") -> Streams:
    table = Streams(len(words))
    for index, word in enumerate(words):
        if word:
            table.lease(Choice(index, 0, 0), domain)
            for k in range(len(word)):
                table.extend(index, chain(word[: k + 1]), 10 * (k + 1))
            table.release(index)
    return table


def test_another_domain_never_matches_and_is_overwritten_last_used_first() -> None:
    table = filled("aaaa", "bbbb")
    assert table.choose("bob", chains("aaaa")) == Choice(0, 0, 0)
    assert table.choose("alice", chains("bbbb")) == Choice(1, 4, 40)


def test_a_short_match_does_not_destroy_a_long_tail() -> None:
    table = filled("a" + "b" * 9, "")
    assert table.choose("alice", chains("aa")) == Choice(1, 0, 0)
    # With nowhere else to go it is cut back, and keeps what it shares.
    alone = filled("a" + "b" * 9)
    assert alone.choose("alice", chains("aa")) == Choice(0, 1, 10)


def test_leased_and_retired_streams_are_never_chosen() -> None:
    table = filled("aaaa", "")
    table.lease(Choice(0, 4, 40), "alice")
    assert table.choose("alice", chains("aaaa")) == Choice(1, 0, 0)
    table.retire(1)
    assert table.choose("alice", chains("aaaa")) is None
    assert table.usable()
    table.retire(0)
    assert not table.usable()


def held_by(*holdings: tuple[str, str, int]) -> Streams:
    """Idle streams: whose it is, its word, and how many of its first advances are public."""
    table = Streams(len(holdings) + 1)
    for index, (domain, word, public) in enumerate(holdings):
        table.lease(Choice(index, 0, 0), domain)
        for k in range(len(word)):
            table.extend(index, chain(word[: k + 1]), size(word[: k + 1]), public=k < public)
        table.release(index)
    return table


@pytest.mark.req("AUT-5")
def test_a_strangers_stream_matches_as_far_as_both_are_public() -> None:
    table = held_by(("alice", "aabb", 2))
    for public, keep in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 2)]:
        assert table.match(0, "bob", chains("aabb"), public).keep == keep
        assert table.match(0, "alice", chains("aabb"), public).keep == 4
    assert table.match(0, "bob", chains("ba"), 2).keep == 0


@pytest.mark.req("AUT-5", "KV-5")
def test_a_stranger_gets_a_stream_that_loses_nothing_or_goes_first() -> None:
    whole, tail = ("alice", "aa", 2), ("alice", "aab", 2)
    # Nothing but what is public lies on it.
    assert held_by(whole).choose("bob", chains("aabb"), 2) == Choice(0, 2, 2)
    # A private tail stays while another stream is free, however short it is.
    assert held_by(tail).choose("bob", chains("aabb"), 2) == Choice(1, 0, 0)
    # All are full: the one that goes first keeps what is public.
    table = held_by(tail, ("carol", "ba", 0))
    table.lease(Choice(2, 0, 0), "dora")
    table.extend(2, chain("b"), 7)
    assert table.choose("bob", chains("aabb"), 2) == Choice(0, 2, 2)
    # To its owner the usual rule holds.
    assert held_by(tail).choose("alice", chains("aabb"), 2) == Choice(0, 3, 9)


@pytest.mark.req("AUT-5")
def test_who_takes_a_public_stream_makes_what_follows_its_own() -> None:
    table = held_by(("alice", "aa", 2))
    table.lease(Choice(0, 2, 2), "bob")
    table.extend(0, chain("aab"), 9, public=False)
    table.extend(0, chain("aaba"), 10, public=True)
    table.release(0)
    assert [boundary.public for boundary in table[0].boundaries] == [True, True, False, False]
    assert table.match(0, "alice", chains("aaba"), 4).keep == 2
    assert table.match(0, "bob", chains("aaba"), 0).keep == 4
    table.withdraw()
    assert table.match(0, "alice", chains("aaba"), 4).keep == 0
    assert table.match(0, "bob", chains("aaba"), 0).keep == 4


@pytest.mark.req("AUT-5")
def test_a_settlement_goes_on_where_only_public_states_lie() -> None:
    table = held_by(("alice", "aa", 2))
    assert table.choose_spare("bob", chains("aab"), 2) == Choice(0, 2, 2)
    assert table.choose_spare("bob", chains("aab"), 1) == Choice(1, 0, 0)
    assert held_by(("alice", "aab", 2)).choose_spare("bob", chains("aaa"), 2) == Choice(1, 0, 0)


@pytest.mark.req("AUT-5")
def test_what_is_restored_is_public_as_far_as_its_pages_are() -> None:
    pages = infos("aab")
    public = [in_domain(info, domain="public") if k != 1 else info for k, info in enumerate(pages)]
    table = Streams(1)
    table.occupy(Choice(0, 0, 0), "alice")
    table.fill(0, public, 0)
    assert [boundary.public for boundary in table[0].boundaries] == [True, False, False]


def in_domain(info: PageInfo, *, domain: str) -> PageInfo:
    return replace(info, page=replace(info.page, domain=domain))
