"""Group operations that one pass over a tile can compute: an anchor and the element-wise operations that follow it."""

from __future__ import annotations

from dataclasses import dataclass

from ranvier.graph.composite import Gelu, Linear, Silu
from ranvier.graph.contract import Conv, MatMul
from ranvier.graph.core import Graph, Node, Value

ANCHORS_WITH_EPILOGUE = (Linear, MatMul, Conv)
"""Anchors whose result passes through PSUM and is computed on further before it is stored."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are lowered together, in order. Only the results of the last one are used outside the group."""

    nodes: tuple[Node, ...]

    @property
    def anchor(self) -> Node | None:
        """The node that is not element-wise, if there is one; it comes first."""
        return None if is_pointwise(self.nodes[0]) else self.nodes[0]

    @property
    def pointwise(self) -> tuple[Node, ...]:
        """The element-wise nodes."""
        return self.nodes if self.anchor is None else self.nodes[1:]

    @property
    def last(self) -> Node:
        return self.nodes[-1]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values from outside the group, in order of first use."""
        inside = {v for node in self.nodes for v in node.outputs}
        return tuple(dict.fromkeys(v for node in self.nodes for v in node.inputs if v not in inside))


def is_pointwise(node: Node) -> bool:
    """Whether each element of the result depends on one element of each operand."""
    return type(node.op).is_elementwise or isinstance(node.op, (Gelu, Silu))


def fuse(graph: Graph) -> tuple[Group, ...]:
    """The graph's nodes as groups, in an order in which each group's inputs are there.

    An element-wise node joins the group that computes one of its operands if nobody else uses that operand and no
    broadcast lies between; it may join several groups of element-wise nodes, but only one that has an anchor.
    """
    users = graph.users()
    results = set(graph.outputs)
    open_groups: dict[Value, list[Node]] = {}
    last_position: list[list[Node] | None] = []
    for node in graph.nodes:
        members: list[Node] = []
        if is_pointwise(node):
            for source in _mergeable(node, open_groups, users, results):
                group = open_groups.pop(source)
                last_position[next(i for i, g in enumerate(last_position) if g is group)] = None
                members = group + members if _anchored(group) else members + group
        members = [*members, node]
        last_position.append(members)
        if is_pointwise(node) or isinstance(node.op, ANCHORS_WITH_EPILOGUE):
            open_groups[node.output] = members
    return tuple(Group(tuple(members)) for members in last_position if members)


def _anchored(group: list[Node]) -> bool:
    return not is_pointwise(group[0])


def _mergeable(node: Node, open_groups: dict, users: dict, results: set[Value]) -> list[Value]:
    """Operands of `node` whose groups it can join: at most one with an anchor (the latest), any number without."""
    fitting = [
        v
        for v in dict.fromkeys(node.inputs)
        if v in open_groups
        and v not in results
        and all(user is node for user in users[v])
        and v.shape == node.output.shape
    ]
    anchored = [v for v in fitting if _anchored(open_groups[v])]
    return anchored[-1:] + [v for v in fitting if v not in anchored]
