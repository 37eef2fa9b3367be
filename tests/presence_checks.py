"""Every check that stands between domains or views, and how it is taken out.

A check is listed where it is made: where a domain, a namespace or a right decides what somebody is
told. What is not listed decides nothing of that alone. The memory of the assembler and the lengths
that the ropes room remembers are keyed by namespace for the sake of time: the ropes room looks into
the view all the same. The assertion in `Streams.occupy` and the domain that `DomainMemo` finds in
evidence say that what comes before them did its work. What is public, whose an open answer is and
what an erasure spares are in `presence_walls`. Capabilities themselves (the door, what a handle
permits) are attacked in `acceptance/test_attacks.py` and `test_delegation.py`. Of the limits that
are a namespace's, a domain's or a principal's own two are not listed: that of archived sessions
takes a month to be felt (`actors/events/test_sessions.py`), and that of pages is felt in time alone
(`contract/test_page_budget.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from tests.mutations import Mutation


class Check(NamedTuple):
    """One check: `who` of the strangers is told something where it is taken out; or in which hall
    one is (`presence_halls`)."""

    who: str
    mutation: Mutation

    def __str__(self) -> str:
        return f"{self.mutation.module} {self.mutation.function}: {self.mutation.old}"


def _checks(who: str, module: str, *mutations: tuple[str, str, str]) -> list[Check]:
    return [Check(who, Mutation(module, *mutation)) for mutation in mutations]


WORKER, EVENTS, MUNINN, AUTHORITY = (
    f"actors.{room}" for room in ("worker", "events", "muninn", "authority")
)
ROPES = "actors.ropes.room"
# In place of what was taken back, something that was.
_A_REVOKED = "id=type(taken)(self._principals.revocations().revoked[-1])"
# In place of a question whether a handle permits something.
_YES = "(lambda *_: True)"
_ANY_PAGE = "next((e for e in self._catalog.entries() if e.header.chain == chain), None)"
_ANY_CHARGE = "next(iter(self._ledgers.charges.all().rows), None) or "
_ALL_CHARGES = "sum(self._ledger.totals().values())"
_ANY_SESSION = "next((id for (_, at), id in self._places.items() if at == place), None)"
_VIEW = ("json.dumps(sorted(check_view(view)))", 'json.dumps(["alice", *check_view(view)])')
_SOURCES_THERE = "sum(1 for namespace, _ in self._by_place if namespace == row.namespace)"
_EVERY_KIND = "KINDS_MAX - 1 + self._counts.total()"
_MAY_HAVE = "may_have(call, live.session.namespace, turn.begun_by)"
_BELOW = "_lies_below(caller, links)"

_ROOMS = [
    *_checks(
        "boris",
        "actors.room",
        ("Call.domain", "return self.handle.domain", 'return "all"'),
    ),
    *_checks(
        "bob",
        "actors.room",
        ("Room.on_erase", 'call.handle.audience != self.world.room_to_key["authority"]', "False"),
    ),
    *_checks(
        "boris",
        "actors.reporting",
        ("_Executed.key", "self.domain,", '"",'),
        ("EvidenceQueue._execution", "domain=executed.domain", 'domain="boris"'),
    ),
]
_PREFIX_STATES = [
    *_checks("boris", f"{WORKER}.streams", ("Streams.match", "stream.domain == domain", "True")),
    *_checks(
        "boris",
        "store.pages.shelf",
        ("Shelf.find", "self._catalog.get((own, chain.digest))", _ANY_PAGE),
    ),
    *_checks(
        "boris",
        f"{WORKER}.tiers",
        ("Tiers.holds", "tier.find(domain", 'tier.find("alice"'),
        ("Tiers.longest", "self._find(domain", 'self._find("alice"'),
    ),
    *_checks(
        "boris",
        f"{WORKER}.exports",
        ("Exports._keep", "PUBLIC if held.boundaries[done].public else held.domain", "PUBLIC"),
    ),
    *_checks("boris", f"{WORKER}.receipts", ("_key", "[domain, response]", "[response]")),
    *_checks(
        "boris",
        f"{WORKER}.room",
        ("WorkerRoom.on_pages", "call.domain", '"alice"'),
        ("WorkerRoom.on_receipt", "key.owner.domain", '"alice"'),
    ),
    *_checks(
        "bob",
        f"{WORKER}.ledgers",
        ("LedgerOperations.on_charge", "return ", f"return {_ANY_CHARGE}"),
    ),
]
_MEMO = [
    *_checks(
        "boris",
        f"{MUNINN}.room",
        ("MuninnRoom.on_look", "call.domain", '"alice"'),
        ("MuninnRoom.on_report", " if each.evidence.domain == domain", ""),
    ),
    *_checks("boris", f"{MUNINN}.evidence", ("domain_stem", 'domain.encode("utf-8")', 'b""')),
    *_checks(
        "bob",
        f"{MUNINN}.room",
        ("MuninnRoom.on_charge", "self._ledger.totals().get(principal, 0)", _ALL_CHARGES),
    ),
]
_OBJECTS = [
    *_checks(
        "wendy",
        ROPES,
        ("RopesRoom._view", "call.handle.permits", _YES),
        ("RopesRoom._entries", "not all(self._store.has_many(view, old))", "False"),
    ),
    *_checks("bob", ROPES, ("RopesRoom._own", "call.handle.permits", _YES)),
    *_checks(
        "bob",
        "store.sqlite_objects",
        ("SqliteObjectStore.get_many", *_VIEW),
        ("SqliteObjectStore.has_many", *_VIEW),
    ),
    *_checks("bob", "actors.assembler.room", ("_require_namespace", "call.handle.permits", _YES)),
]
_HAPPENINGS = [
    *_checks("bob", f"{EVENTS}.scope", ("require", "call.handle.permits", _YES)),
    *_checks(
        "bob",
        f"{EVENTS}.registry",
        ("SourceRegistry.find", "may(call", f"{_YES}(call"),
        ("SourceRegistry.visible", "may(call", f"{_YES}(call"),
        ("SourceRegistry.keep", _SOURCES_THERE, "SOURCES_MAX - 1 + len(self._by_place)"),
    ),
    *_checks(
        "wendy", f"{EVENTS}.registry", ("SourceRegistry._removed", "may(call", f"{_YES}(call")
    ),
    *_checks(
        "bob",
        f"{EVENTS}.kinds",
        ("KindRegistry.register", "may(call", f"{_YES}(call"),
        # As if one number were for all: alice has one kind.
        ("KindRegistry.register", "self._counts[ask.namespace] >=", f"{_EVERY_KIND} >="),
        ("KindRegistry.list", "may(call", f"{_YES}(call"),
        ("KindRegistry._schema", "may(call", f"{_YES}(call"),
    ),
    *_checks(
        "bob",
        f"{EVENTS}.sources",
        ("EventSources.add", "may(call", f"{_YES}(call"),
        ("EventSources._reader", "may(call", f"{_YES}(call"),
        ("EventSources._reader", "path_covers(ask.namespace, row.namespace)", "True"),
    ),
    *_checks("bob", f"{EVENTS}.sessions", ("Sessions.list", "call.handle.permits", _YES)),
    *_checks(
        "wendy",
        f"{EVENTS}.beginnings",
        ("_check_reads", "not may_read(call, namespace)", "False"),
        ("Beginnings._try", "live.session.alone != holder(call)", "False"),
    ),
    *_checks("wendy", f"{EVENTS}.endings", ("_named", f"not {_MAY_HAVE}", "False")),
    *_checks(
        "wendy",
        f"{EVENTS}.sessions",
        ("Sessions._open", "None if may_read(call, namespace) else holder(call)", "None"),
        ("Sessions.forget_response", "not may_have(call, namespace, turn.begun_by)", "False"),
    ),
    *_checks("wendy", f"{EVENTS}.book", ("spot", "alone is None", "True")),
    *_checks(
        "bob",
        f"{EVENTS}.book",
        ("Book.live", " or session.namespace != namespace", ""),
        ("Book.at_place", "self._places.get((namespace, place))", _ANY_SESSION),
        ("archive_key", 'namespace.encode() + b"\\0" + ', ""),
    ),
]
_GRANTS = [
    *_checks(
        "bob",
        f"{AUTHORITY}.delegations",
        ("Delegations.rows", _BELOW, "True"),
        ("Delegations.take_back", _BELOW, "True"),
        ("Delegations._verified", _BELOW, "True"),
    ),
    *_checks("bob", f"{AUTHORITY}.room", ("AuthorityRoom._take_back", "id=taken", _A_REVOKED)),
    *_checks(
        "bob",
        f"{AUTHORITY}.erasures",
        ("Erasures.row", "may_see", _YES),
        ("Erasures.rows", "may_see", _YES),
    ),
    *_checks(
        "bob",
        f"{AUTHORITY}.targets",
        ("may_see", "_permits(call, Right.ERASE, ResourceKind.NAMESPACE, path)", "True"),
        ("may_see", "_permits(call, Right.ERASE, ResourceKind.DOMAIN, name)", "True"),
        ("resolved", "all(_may_erase(call, record) for record in mine)", "True"),
        ("resolved", "_permits(", f"{_YES}("),
        ("_of_namespace", "_permits(", f"{_YES}("),
        ("shown", "call.handle.permits", _YES),
        ("shown", " if kind in told", ""),
    ),
]
_NOT_A_PART = ("self._require_operator(call)", "pass")
# Asked by one who administers a part of the installation (`presence_deputy`).
_PARTS = [
    *_checks(
        "carol",
        f"{AUTHORITY}.room",
        ("AuthorityRoom.on_current", *_NOT_A_PART),
        ("AuthorityRoom.on_register", *_NOT_A_PART),
        ("AuthorityRoom.on_audit", "call.handle.permits", _YES),
        ("AuthorityRoom.on_set_retention", "call.handle.require(Right.OPERATE, ALL)", "pass"),
        ("AuthorityRoom.on_retentions", "call.handle.require(Right.OPERATE, ALL)", "pass"),
        ("AuthorityRoom.on_enroll", "call.handle.sees", _YES),
        ("AuthorityRoom.on_enroll", " or row.domain == ask.domain", ""),
        ("_reaches", "call.handle.permits", _YES),
    ),
    *_checks(
        "carol",
        f"{WORKER}.ledgers",
        ("LedgerOperations.on_charges", *_NOT_A_PART),
        ("LedgerOperations.on_use", *_NOT_A_PART),
    ),
    *_checks("carol", f"{WORKER}.room", ("WorkerRoom.on_stats", *_NOT_A_PART)),
    *_checks("carol", f"{MUNINN}.room", ("_operates", "call.handle.require", "(lambda *_: None)")),
    *_checks(
        "carol", f"{EVENTS}.room", ("EventsRoom.on_status", "call.handle.require", "(lambda *_: 0)")
    ),
]

CHECKS = [*_ROOMS, *_PREFIX_STATES, *_MEMO, *_OBJECTS, *_HAPPENINGS, *_GRANTS, *_PARTS]

# Without these, what a stranger does is felt by the other.
UNTOUCHED = [
    Mutation(f"{MUNINN}.index", "Index.__init__", 'f"row-{stem}"', 'f"row-{generation}"'),
    Mutation(f"{EVENTS}.book", "response_key", 'namespace.encode() + b"\\0" + ', ""),
    Mutation(
        f"{EVENTS}.sessions",
        "Sessions.floor",
        "not path_covers(session.namespace, namespace)",
        "False",
    ),
    Mutation(
        f"{WORKER}.admission",
        "Admission.take_tombstone",
        "self._tombstones.pop(key, None) is not None",
        "any(other.response == key.response for other in self._tombstones)",
    ),
]

# What tells the answers for a warm prompt from those for a cold one.
WARMTH = [
    Mutation(f"{WORKER}.room", "_sees", "call.has(Right.TELEMETRY)", "True"),
    Mutation(
        f"{WORKER}.room",
        "WorkerRoom.on_generate",
        'telemetry or event.kind == "delta"',
        'event.kind == "prefill" or telemetry or event.kind == "delta"',
    ),
]

# The one check that decides nothing: the gateway's, which is there for a better message.
GATEWAY = Mutation(
    "actors.gateway.http.extension", "extension", "not path_covers(own, namespace)", "False"
)
