"""`GET /huginn/v1/receipts/{response id}`: what a turn cost and what it reused.

Right `telemetry`; without it, and for ids that are unknown or of other principals, the one 404.
"""

from __future__ import annotations

from aiohttp import web

from actors.gateway.http.answer import json_response
from actors.gateway.http.errors import one_answer
from actors.gateway.http.receipt_json import receipt_json
from actors.gateway.http.state import CALLER, GATEWAY
from protocol.errors import NotVisible, RequestError, Unavailable, WorkerFault
from protocol.messages.worker import AskReceipt, Receipt


async def show_receipt(request: web.Request) -> web.Response:
    """The receipt of a response, from the worker that answered it.

    Raises Unavailable where a worker that might have it cannot be asked.
    """
    response = request.match_info["id"]
    absent: WorkerFault | Unavailable | None = None
    with one_answer():
        for model in request.app[GATEWAY].models:
            try:
                receipt = await request[CALLER].ask(
                    model.room, "receipt", AskReceipt(response=response), Receipt
                )
            except RequestError:
                # Also an id that no response can have: it is one more that is unknown.
                continue
            except (WorkerFault, Unavailable) as error:
                absent = error
                continue
            return json_response(receipt_json(receipt))
        if absent is None:
            raise NotVisible("no worker has such a receipt for this caller")
    raise absent
