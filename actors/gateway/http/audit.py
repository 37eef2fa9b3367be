"""`/huginn/v1/audit`: what was granted, refused, revoked, registered and erased here.

For those who operate the whole installation. Each entry comes with its bytes and digests as they
lie in the log, so that a reader can follow the chain without trusting this service's word for it.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from actors.gateway.http.answer import json_response
from actors.gateway.http.parse import query_integer
from actors.gateway.http.state import CALLER
from protocol import cbor
from protocol.messages.authority import AskAudit, AuditPage, AuditRow

_LIMIT_DEFAULT: Final = 100
_LIMIT_MAX: Final = 1000
_SEQ_MAX: Final = 2**63 - 1


async def read_audit(request: web.Request) -> web.Response:
    """Entries above number `after`, at most `limit`; without `after` the last ones."""
    given = request.query.get("after")
    ask = AskAudit(
        limit=query_integer(request, "limit", _LIMIT_DEFAULT, 1, _LIMIT_MAX),
        after=query_integer(request, "after", 0, 0, _SEQ_MAX) if given else None,
    )
    page = await request[CALLER].ask("authority", "audit", ask, AuditPage, administer=True)
    head = {"seq": page.head_seq, "digest": page.head_digest.hex()}
    return json_response(
        {"object": "list", "data": [_json(row) for row in page.rows], "head": head}
    )


def _json(row: AuditRow) -> dict[str, Any]:
    return {
        "seq": row.seq,
        "previous": row.previous.hex(),
        "digest": row.digest.hex(),
        "body": row.body.hex(),
        "entry": _plain(cbor.decode(row.body)),
    }


def _plain(value: cbor.Value) -> Any:
    """`value` as JSON has it: bytes in hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return value
