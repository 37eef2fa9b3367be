"""What a request may cost here, and how long things may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protocol.limits import BODY_BYTES_MAX

_SECOND_NS: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a request may cost, and how long things may take. Times are nanoseconds.

    `body_values_max` bounds what a body becomes once it is read: a list of three bytes takes some
    eighty in memory, so a body of brackets would be gigabytes, and seconds for everyone.
    `answer_tokens_default` bounds an answer when the request does not. `ping_ns`: silence on a
    stream after which a comment is sent. `grace_ns`: how long a worker may refuse a stream with a
    status of its own; after that the headers go out, before any prefill is done. `write_ns_max`:
    how long a client may leave its socket full. `drain_ns_max`: how long a stop waits for what goes
    on off callers' paths. `worker_wait_ns`: how long a request waits for a worker that is being
    started. `turn_wait_ns`: how long one waits for another that is being answered in its session.
    `requests_open_max` and `requests_minute_max` are for each principal, 0 for no limit.
    """

    answer_tokens_default: int = 512
    answer_ns_max: int = 600 * _SECOND_NS
    body_bytes_max: int = BODY_BYTES_MAX
    body_values_max: int = 1_000_000
    ping_ns: int = 10 * _SECOND_NS
    grace_ns: int = _SECOND_NS // 10
    write_ns_max: int = 60 * _SECOND_NS
    drain_ns_max: int = 2 * _SECOND_NS
    worker_wait_ns: int = 30 * _SECOND_NS
    turn_wait_ns: int = 10 * _SECOND_NS
    settle_answers: bool = True
    requests_open_max: int = 48
    requests_minute_max: int = 60_000
