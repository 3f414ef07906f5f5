"""Emits the operations that replace others in a rewrite of a graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ranvier.graph.builder import GraphBuilder
from ranvier.graph.core import Constant, Graph, Node, Op, Value, infer_types
from ranvier.graph.indexing import Full
from ranvier.graph.movement import Reshape, Slice, Transpose
from ranvier.loc import Loc


class Emitter:
    """Nodes that replace one node, all at its place in the source."""

    def __init__(self, graph: Graph, nodes: list[Node], constants: list[Constant]):
        self.nodes, self.constants = nodes, constants
        self.producers: dict[Value, Node] = {}
        self.params = {p.value for p in graph.params}
        self.literals = {c.value: c.array for c in graph.constants}
        self.loc: Loc | None = None

    def emit(self, op: Op, *values: Value) -> Value:
        (result,) = self.emit_all(op, *values)
        return result

    def emit_all(self, op: Op, *values: Value) -> tuple[Value, ...]:
        """All results of an operation."""
        results = tuple(Value(made) for made in infer_types(op, [v.type for v in values], self.loc))
        self.add(Node(op, values, results, self.loc))
        return results

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        for value in node.outputs:
            self.producers[value] = node

    def decompose(self, node: Node) -> Value:
        """A composite as the smaller operations that it stands for."""
        builder = GraphBuilder(locate=False)
        result = node.op.decompose(builder, *node.inputs)
        self.constants += builder.constants
        for made in builder.nodes:
            self.add(replace(made, loc=self.loc))
        return result

    def number(self, value: float, like: Value) -> Value:
        array = np.asarray(value, dtype=like.dtype.np)
        made = Value(like.type.with_shape(()), "")
        self.constants.append(Constant(made, array))
        return made

    def literal(self, value: Value) -> np.ndarray | None:
        """The array of a literal, or of a tensor full of one number."""
        made = self.producers.get(value)
        if made is not None and isinstance(made.op, Full):
            return np.broadcast_to(np.asarray(made.op.value, dtype=made.op.dtype.np), made.op.shape)
        return self.literals.get(value)

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        return x if x.shape == shape else self.emit(Reshape(shape), x)

    def transpose(self, x: Value, perm: tuple[int, ...]) -> Value:
        return x if perm == tuple(range(len(perm))) else self.emit(Transpose(perm), x)

    def slice_axis(self, x: Value, axis: int, start: int, limit: int, stride: int = 1) -> Value:
        """x[start:limit:stride] along one axis."""
        if (start, limit, stride) == (0, x.shape[axis], 1):
            return x
        starts, limits, strides = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
        starts[axis], limits[axis], strides[axis] = start, limit, stride
        return self.emit(Slice(tuple(starts), tuple(limits), tuple(strides)), x)
