"""A rope's nodes laid out for people who look: depth first, root first."""

from __future__ import annotations

from protocol.ids import NodeId
from protocol.messages.ropes import TreeNode
from protocol.rope.node import Node
from protocol.rope.read import NodeSource, Reader


def tree_nodes(root: NodeId, source: NodeSource) -> list[TreeNode]:
    """Every node under `root`, each checked as it is read; raises what `Reader` raises."""
    reader = Reader(source)
    found: list[TreeNode] = []

    def visit(node_id: NodeId, node: Node, last: bool) -> None:
        found.append(
            TreeNode(
                node=node_id,
                level=node.level,
                blocks=node.blocks,
                content_bytes=node.logical_bytes,
                children=[slot.digest for slot in node.slots],
            )
        )
        if node.level == 0:
            return
        for index, slot in enumerate(node.slots):
            child_last = last and index + 1 == len(node.slots)
            child = reader.load(slot, node.level - 1, last=child_last)
            visit(NodeId(slot.digest), child, child_last)

    visit(root, reader.root(root), True)
    return found
