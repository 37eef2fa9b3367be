"""`/huginn/v1/derivations`: what is known of one, and spot checks of many.

What is known shows what was computed, so it takes the right `telemetry`; without it, for an id that
is unknown, of another domain, in quarantine, or whose outputs nobody holds any more: the one 404.
Samples and checks are for those who operate. The caller's own domain is what is sampled, because
only its inputs can be read with this key.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec
from aiohttp import web

from actors.gateway.http.answer import json_response
from actors.gateway.http.errors import ApiError, one_answer
from actors.gateway.http.parse import read_body
from actors.gateway.http.state import CALLER, GATEWAY
from protocol.derivation import DerivationInvocation, invocation_id
from protocol.errors import ContentError, NotVisible
from protocol.families import FAMILIES
from protocol.ids import InvocationId
from protocol.messages.muninn import (
    Answer,
    Check,
    DrawSample,
    Look,
    Looked,
    Origin,
    Results,
    Sampled,
    Samples,
    Verified,
)
from protocol.record import decode_record, encode_record

Json = dict[str, Any]

_MUNINN: Final = "muninn"
# The rooms that hold outputs.
_HOLDERS: Final = ("ropes", "worker")


class SampleRequest(msgspec.Struct, kw_only=True):
    """Up to `count` of what is known in the caller's domain; equal seeds draw alike."""

    count: int
    seed: str


class CheckedEntry(msgspec.Struct, kw_only=True):
    """What executing one again gave: `invocation` and `origin` as they were sampled, `evidence` as
    it was signed, both in base64; no evidence: its inputs are gone."""

    invocation: str
    evidence: str | None = None
    origin: str | None = None


class ChecksRequest(msgspec.Struct, kw_only=True):
    domain: str
    checks: list[CheckedEntry]


async def show_derivation(request: web.Request) -> web.Response:
    """Who derived this first and when, what it gave, and how often it was verified. `executor` is
    a room's name, or a key in hexadecimal digits."""
    with one_answer():
        ask = Look(invocations=[_invocation_id(request.match_info["id"])])
        looked = await request[CALLER].ask(_MUNINN, "look", ask, Looked, delegate=_HOLDERS)
        answer = looked.answers[0]
        if answer.invocation is None:
            raise NotVisible("nothing is known of this derivation")
    rooms = {key: name for name, key in request.app[GATEWAY].ports.room_to_key.items()}
    known = _known(answer, answer.invocation)
    known["executor"] = rooms.get(answer.executor or b"", known["executor"])
    return json_response(known | {"charged": looked.charged})


async def draw_sample(request: web.Request) -> web.Response:
    """Derivations to execute again, and the domain that they are of."""
    body = await read_body(request, SampleRequest)
    caller = request[CALLER]
    if caller.domain is None:
        raise ContentError("this key names no computation-sharing domain: there is nothing in it")
    ask = DrawSample(count=body.count, seed=body.seed.encode("utf-8"), domain=caller.domain)
    drawn = await caller.ask(_MUNINN, "sample", ask, Samples, administer=True)
    return json_response(
        {
            "domain": caller.domain,
            "authority_epoch": drawn.epoch,
            "entries": [_sampled(each) for each in drawn.entries],
        }
    )


async def take_checks(request: web.Request) -> web.Response:
    """What the memo makes of executions that were repeated, in their order."""
    body = await read_body(request, ChecksRequest)
    ask = Verified(
        checks=[
            Check(
                domain=body.domain,
                invocation=decode_record(DerivationInvocation, _bytes(each.invocation)),
                evidence=None if each.evidence is None else _bytes(each.evidence),
                origin=None if each.origin is None else decode_record(Origin, _bytes(each.origin)),
            )
            for each in body.checks
        ]
    )
    said = await request[CALLER].ask(_MUNINN, "verified", ask, Results, administer=True)
    return json_response(
        {"results": [{"result": each.result, "reason": each.reason} for each in said.results]}
    )


def family_name(invocation: DerivationInvocation) -> str | None:
    """What such a derivation is called, if its family is known here."""
    family = FAMILIES.get(invocation.transform_contract)
    return None if family is None else family.takes.name


def _known(answer: Answer, invocation: DerivationInvocation) -> Json:
    profile = invocation.runtime_profile
    return {
        "invocation_id": str(invocation_id(invocation)),
        "family": family_name(invocation),
        "profile_id": None if profile is None else str(profile),
        "execution_class": invocation.execution_class.value,
        "snapshot": invocation.snapshot,
        "inputs": [{"label": each.label, "id": each.id} for each in invocation.inputs],
        "outputs": [{"label": each.label, "id": each.id} for each in answer.outputs or []],
        "evidence_id": str(answer.evidence),
        "executor": None if answer.executor is None else answer.executor.hex(),
        "engine_build": answer.engine_build,
        "first_ns": answer.first_ns,
        "testimonies": answer.testimonies,
        "verified": answer.checks,
    }


def _sampled(each: Sampled) -> Json:
    origin = each.origin or Origin()
    return {
        "invocation_id": str(invocation_id(each.invocation)),
        "family": family_name(each.invocation),
        "invocation": _text(encode_record(each.invocation)),
        "evidence_id": str(each.evidence),
        "context_id": None if origin.context is None else str(origin.context),
        "parameters": None if origin.parameters is None else origin.parameters.values,
        "origin": _text(encode_record(origin)),
    }


def _invocation_id(text: str) -> InvocationId:
    try:
        return InvocationId.parse(text)
    except ContentError as error:
        raise NotVisible("not an invocation id") from error


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ApiError(400, "This is not base64.", code="invalid_value", param="checks") from error
