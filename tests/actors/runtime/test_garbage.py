"""What a process was built with is out of the collector's sight; what is made later is not."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, weakref
from actors.runtime.garbage import spare_the_old

class Node:
    pass

before = gc.get_threshold()[0]
built = [Node() for _ in range(1000)]
spare_the_old()
seen = {id(each) for each in gc.get_objects()}
assert not any(id(each) in seen for each in built)
assert gc.get_freeze_count() >= 1000 and gc.get_threshold()[0] > before

node = Node()
node.itself = node
gone = weakref.ref(node)
del node
# Cycles are collected all the same, when enough was made.
kept = [[] for _ in range(2 * gc.get_threshold()[0])]
assert gone() is None
"""


def test_what_stays_is_not_looked_through_and_cycles_still_go() -> None:
    # In a process of its own: this cannot be taken back.
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
