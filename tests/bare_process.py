"""`python -m tests.bare_process tiny|real`: bare answers in a process of their own.

Reads one JSON list from standard input, of [[[role, head, content], …], opener] with token ids,
and writes one of [answer ids, state digest].
"""

from __future__ import annotations

import json
import sys

from protocol.ids import BlockId
from protocol.messages.assembler import Segment
from protocol.tokens import pack
from tests.bare_worker import bare_answer
from tests.exact_models import MODELS


def main() -> None:
    model = MODELS[sys.argv[1]]
    backend = model.open()
    found = []
    for blocks, opener in json.load(sys.stdin):
        segments = [
            Segment(
                block=BlockId.of(b""), role=role, type="", head=pack(head), content=pack(content)
            )
            for role, head, content in blocks
        ]
        bare = bare_answer(
            backend,
            segments,
            tuple(opener),
            tokens_max=model.answer_tokens,
            stop_ids=model.grammar(backend).stop_ids,
            chunk_tokens=model.chunk_tokens,
        )
        found.append([bare.ids, str(bare.digest)])
    backend.close()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
