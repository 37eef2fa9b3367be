"""The checks that small worlds of their own find, beside those in `presence_checks`.

They are about what is public (`IN_HALLS`, `CLAIMS`), whose an open answer is (`IN_HALLS`, `SPARED`)
and what an erasure spares (`SPARED`). What is not listed decides nothing of that alone:

- how many of a sequence's blocks the ropes room counts as public, and the assembler signs: it says
  what the tokens of these blocks are, and which blocks are public the worker asks for itself;
- that a stream holds nothing public behind what is private (`_all_public`): nobody finds the one
  without the other, and a withdrawal sets running jobs right by itself;
- that a statement covers as many segments as there are: its digest is of just these;
- that a settlement takes nothing off a stream, whosever it is: that is felt in time alone;
- that the key of the public domain's pages is not destroyed: there is none;
- that a sweep takes only objects that no namespace has: the database takes no other;
- what is deleted by its key and nothing else, such as a domain's folder, tables and header: it
  takes nothing along; and that what was told of others is not told again: the memo keeps it once.

What an erasure spares of somebody's own (of a namespace all but one object) is no matter between
two: `actors/ropes/test_erasure.py` and `actors/events/test_erasure.py` have it. Nor is what the
gateway says of who administers: the rooms ask for themselves.
"""

from __future__ import annotations

from tests.mutations import Mutation
from tests.presence_checks import AUTHORITY, EVENTS, MUNINN, ROPES, WORKER, Check


def _mutations(module: str, *mutations: tuple[str, str, str]) -> list[Mutation]:
    return [Mutation(module, *mutation) for mutation in mutations]


def _in(hall: str, module: str, *mutations: tuple[str, str, str]) -> list[Check]:
    return [Check(hall, mutation) for mutation in _mutations(module, *mutations)]


# In place of a lookup by owner and name: any by that name.
_ANY_JOB = "next((job for key_, job in self._jobs.items() if key_.response == key.response), None)"
_ANY_NAME = "any(other.response == key.response for other in self._jobs)"
_IN_THE_LIST = "self._public.leading(segment.block for segment in segments[:stated])"
_WHOEVER_REACHES = (
    "path_covers(record.asked.namespace, path) or path_covers(path, record.asked.namespace)"
)
_NOT_SPARED = """ and not any(
            path_covers(path, namespace) for path in self.spared
        )"""
_OF_ONE = "DELETE FROM members WHERE namespace = ?"
_OF_ALL = (
    '"DELETE FROM members WHERE object = (SELECT number FROM objects WHERE kind = ? AND digest = ?)'
    ' RETURNING 1", (id.PREFIX, id.digest)'
)

_TOO_MANY_THERE = "here[: max(0, len(here) - self._removed_max)]"

# By the hall in which a stranger is told something without them.
IN_HALLS = [
    *_in(
        "before it was",
        f"{WORKER}.streams",
        ("Streams.match", "boundary.public and keep < public", "keep < public"),
        ("Streams.fill", "info.page.domain == PUBLIC", "True"),
        ("Streams.withdraw", "boundary.public = False", "pass"),
    ),
    *_in(
        "before it was", f"{WORKER}.seats", ("Seats.withdraw", "self._tiers.drop(PUBLIC)", "pass")
    ),
    *_in("before it was", f"{WORKER}.room", ("WorkerRoom._key", "call.domain,", '"alice",')),
    *_in(
        "when it is no more",
        f"{WORKER}.engine",
        ("Engine._withdraw", "job.public = 0", "pass"),
        ("Engine._withdraw", "settlement.public = 0", "pass"),
    ),
    *_in(
        "when it is no more",
        f"{WORKER}.publications",
        ("PublicBlocks.refresh", "self._blocks &= blocks", "pass"),
        ("PublicBlocks.refresh", "kept is None or not kept <= blocks", "False"),
        ("PublicBlocks.leading", "block not in self._blocks", "False"),
    ),
    *_in(
        "when it is no more",
        f"{WORKER}.room",
        ("WorkerRoom._public_segments", _IN_THE_LIST, "stated"),
    ),
    *_in(
        "behind it",
        f"{WORKER}.room",
        ("WorkerRoom._public_segments", "segments[:stated]", "segments"),
    ),
    *_in("behind it", f"{WORKER}.tiers", ("Tiers.longest", "chains[:public]", "chains")),
    *_in(
        "behind it",
        f"{WORKER}.prompt",
        ("PromptReader.read", "piece.stop <= public_tokens", "piece.start < public_tokens"),
    ),
    *_in(
        "behind it",
        f"{WORKER}.engine",
        ("Engine._prefill_chunk", "job.next_advance < job.public", "True"),
        ("Engine._settle_chunk", "choice.keep < public", "True"),
    ),
    *_in(
        "without leave",
        f"{WORKER}.streams",
        ("Streams.match", "boundary.public and keep < public", "boundary.public"),
    ),
    *_in(
        "without leave",
        f"{WORKER}.room",
        ("_sees", "call.handle.sees(PUBLIC)", "True"),
        ("WorkerRoom.on_generate", "job.prompt.public > 0", "False"),
        ("WorkerRoom.on_receipt", "receipt.public_tokens is not None", "False"),
        ("WorkerRoom.on_pages", "call.handle.sees(PUBLIC)", "True"),
    ),
    *_in(
        "while she is answered",
        f"{WORKER}.admission",
        ("Admission.check_job", "key in self._jobs", _ANY_NAME),
        ("Admission.check_job", "other.owner == key.owner", "True"),
        ("Admission._bury", "per_owner[key.owner]", "per_owner.total()"),
    ),
    *_in(
        "while she is answered",
        "actors.gateway.quotas",
        ("Quotas._account", "account = ", 'principal = "all"; account = '),
    ),
]

# Without these, somebody's claim to what is public, or another's, is not refused.
CLAIMS = [
    *_mutations(
        "protocol.publication",
        ("check_prefix", "not verify(assembler, _CONTEXT + payload, signature)", "False"),
        ("check_prefix", "prefix.profile != profile", "False"),
        ("check_prefix", "prefix.digest != _digest(", "(lambda _: False)("),
    ),
    *_mutations(
        ROPES,
        ("RopesRoom.on_publish", "call.handle.require(Right.OPERATE, _PUBLIC_DOMAIN)", "pass"),
        ("RopesRoom.on_withdraw", "call.handle.require(Right.OPERATE, _PUBLIC_DOMAIN)", "pass"),
        ("RopesRoom._own", " or path_covers(PUBLIC, namespace)", ""),
    ),
    *_mutations("actors.ropes.erasure", ("named", " and not path_covers(PUBLIC, each)", "")),
    *_mutations(
        f"{WORKER}.room",
        (
            "WorkerRoom.on_publications",
            'call.handle.audience != self.world.room_to_key.get("ropes")',
            "False",
        ),
        ("WorkerRoom._key", "call.domain == PUBLIC", "False"),
    ),
    *_mutations(
        f"{AUTHORITY}.principals",
        ("Principals._grant", "path_covers(PUBLIC, ask.namespace) or ", ""),
        ("Principals._grant", " or ask.domain == PUBLIC", ""),
    ),
    *_mutations(
        f"{AUTHORITY}.targets",
        ("_of_namespace", "path_covers(PUBLIC, path)", "False"),
        ("resolved", "ask.name == PUBLIC", "False"),
        ("_is_own", "handle.principal == handle.audience == record.asked.public_key", "True"),
    ),
]

# Without these, alice loses something to what strangers have erased, or cancel.
SPARED = [
    *_mutations(
        "protocol.messages.erasure",
        ("Erase.takes", "any(path_covers(path, namespace) for path in self.namespaces) and ", ""),
        ("Erase.takes", _NOT_SPARED, ""),
    ),
    *_mutations(
        f"{AUTHORITY}.targets",
        ("_of_principals", "sorted({other.namespace for other in others})", "[]"),
        ("_of_principals", " - held", ""),
        ("_of_namespace", _WHOEVER_REACHES, "True"),
    ),
    *_mutations("protocol.resource", ("path_covers", 'path + "/"', "path")),
    *_mutations(
        "actors.live_streams",
        (
            "LiveStreams.revoke",
            "any(link.digest in revoked for link in live.handle.lineage)",
            "True",
        ),
    ),
    *_mutations(f"{AUTHORITY}.retention", ("abandoned", " - held", "")),
    *_mutations(
        f"{AUTHORITY}.delegations",
        ("drop_below", "decode_link(kept.chain[0]).capability.aud in principals", "True"),
    ),
    *_mutations(
        "actors.gateway.keys",
        ("ApiKeys.remove", " if _row(kept).principal == principal", ""),
    ),
    *_mutations(
        "actors.gateway.transports.matrix_inbox",
        ("Inbox.erase", " if letter.goes_with(ask)", ""),
        ("Inbox.take", "letter.principal not in self._erased", "not self._erased"),
        ("Letter.goes_with", "self.principal in ask.principals", "True"),
        ("Letter.goes_with", "not ask.takes(self.namespace)", "False"),
    ),
    *_mutations(
        f"{EVENTS}.erasure",
        ("erase_sessions", "ask.takes(session.namespace)", "True"),
        ("erase_sessions", " if ask.takes(_namespace(key))", ""),
    ),
    *_mutations(f"{EVENTS}.sources", ("EventSources.erase", " if takes(row.namespace)", "")),
    *_mutations(
        f"{EVENTS}.registry",
        ("SourceRegistry.drop_removed", " if takes(row.namespace)", ""),
        ("SourceRegistry._surplus", _TOO_MANY_THERE, "[*kept][: len(kept) - 1]"),
    ),
    *_mutations(f"{EVENTS}.kinds", ("KindRegistry.erase", " if takes(_namespace(key))", "")),
    *_mutations(
        "actors.reporting", ("EvidenceQueue.forget", "each.domain not in domains", "False")
    ),
    *_mutations(
        f"{WORKER}.engine",
        ("Engine._forget_domains", "job.domain in gone", "True"),
        ("Engine._forget_domains", " if s.domain in gone", ""),
    ),
    *_mutations(f"{WORKER}.seats", ("Seats.forget", "stream.domain in domains", "True")),
    *_mutations(f"{WORKER}.streams", ("Streams._destroys", "self.lost(match) > 0", "False")),
    *_mutations(f"{WORKER}.writer", ("PageWriter.forget", "item[0].domain != domain", "False")),
    *_mutations(
        f"{WORKER}.receipts",
        ("Receipts.forget", " if key.startswith(start)", ""),
        ("Receipts._delete", "self._table.items(start)", "self._table.items()"),
        # As if one number were for all, and she had as many.
        ("Receipts._put", "self._table.trim(self._kept, start)", 'self._table.trim(6, b"")'),
    ),
    *_mutations(
        f"{WORKER}.charges",
        ("LogicalLedger.forget", "for key in principals if", "for key in [*self._sums] if"),
    ),
    *_mutations(
        f"{WORKER}.admission",
        ("Admission.cancel", "self._jobs.get(key)", _ANY_JOB),
        ("Admission._bury", "if other.owner == key.owner", ""),
    ),
    *_mutations(f"{WORKER}.room", ("WorkerRoom._key", "call.handle.principal", 'b""')),
    *_mutations(f"{MUNINN}.room", ("MuninnRoom._memo", "domain in self._erasing", "self._erasing")),
    *_mutations(f"{MUNINN}.ledger", ("Ledger.forget", "in principals", "in [*self._totals]")),
    *_mutations(f"{MUNINN}.erasure", ("erase_domains", " if name.startswith(stems)", "")),
    *_mutations("actors.ropes.erasure", ("named", "ask.takes(each) and ", "")),
    *_mutations(
        "store.sqlite_objects",
        ("SqliteObjectStore.drop_namespace", f'"{_OF_ONE}", (number,)', '"DELETE FROM members"'),
        (
            "SqliteObjectStore.remove_membership",
            "_LEAVE, (namespace, id.PREFIX, id.digest)",
            _OF_ALL,
        ),
    ),
    *_mutations(
        "store.pages.header",
        (
            "domain_digest",
            'framed_digest("huginn.domain/1", name)',
            'framed_digest("huginn.domain/1", b"")',
        ),
    ),
]
