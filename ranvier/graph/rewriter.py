"""Rewriting graphs: what rules may ask and emit, and running them to a fixpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ranvier import dtypes
from ranvier.errors import error
from ranvier.graph.builder import GraphBuilder
from ranvier.graph.core import Graph, Node, Op, OpClass, Value, infer_types, op_key
from ranvier.graph.elementwise import Binary, Unary
from ranvier.graph.indexing import Full
from ranvier.graph.movement import Broadcast, Reshape
from ranvier.ir.rewrite import Firing, Rule, by_class, sweep
from ranvier.loc import Loc

SWEEP_LIMIT = 64
"""Rules that still fire after this many sweeps undo each other."""


class GraphScope(GraphBuilder):
    """A builder that begins with the frame of `graph`, emits an operation on the same values only once, and knows how
    each value is made. What it emits belongs to the place of the node that is being replaced.
    """

    def __init__(self, graph: Graph):
        super().__init__(graph.name)
        self.inputs = list(graph.inputs)
        self.params = list(graph.params)
        self.constants = list(graph.constants)
        self.input_dtypes = list(graph.input_dtypes)
        self.made: dict[Value, Node] = {}
        self.arrays: dict[Value, np.ndarray] = {c.value: c.array for c in graph.constants}
        self._by_bytes: dict[tuple, Value] = {}
        for constant in graph.constants:
            self._by_bytes.setdefault(_bytes_key(constant.array), constant.value)
        self._computed: dict[Value, np.ndarray] = {}
        self._constant: set[Value] = set()
        self._from_parameters = {p.value for p in graph.params}
        self._known: dict[tuple, Node] = {}
        self._loc: Loc | None = None
        self._uses: dict[Value, int] = {}
        for node in graph.nodes:
            for value in node.inputs:
                self._uses[value] = self._uses.get(value, 0) + 1
        for value in graph.outputs:
            self._uses[value] = self._uses.get(value, 0) + 1

    def begin(self, node: Node) -> None:
        self._loc = node.loc

    def keep(self, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        return self._add(node if inputs == node.inputs else replace(node, inputs=inputs)).outputs

    def emit_node(self, op: Op, values: Sequence[Value], loc: Loc | None = None, name: str = "") -> Node:
        known = self._known.get((op_key(op), *values))
        if known is not None:
            return known
        loc = loc or self._loc
        types = infer_types(op, [v.type for v in values], loc)
        return self._add(Node(op, tuple(values), tuple(Value(t, name) for t in types), loc))

    def constant(self, array: np.ndarray, name: str = "") -> Value:
        known = self._by_bytes.get(_bytes_key(array))
        if known is None:
            known = self._by_bytes[_bytes_key(array)] = super().constant(array, name)
            self.arrays[known] = self.constants[-1].array
        return known

    def _add(self, node: Node) -> Node:
        key = (op_key(node.op), *node.inputs)
        known = self._known.setdefault(key, node)
        if known is node:
            self.nodes.append(node)
            self.made.update((v, node) for v in node.outputs)
            if all(map(self.is_constant, node.inputs)):
                self._constant.update(node.outputs)
            elif all(v in self._from_parameters or self.is_constant(v) for v in node.inputs):
                self._from_parameters.update(node.outputs)
        return known

    def same_constants(self) -> dict[Value, Value]:
        """For each constant of the frame that another one equals, the first such."""
        first = {c.value: self._by_bytes[_bytes_key(c.array)] for c in self.constants}
        return {old: new for old, new in first.items() if old is not new}

    def uses(self, value: Value) -> int:
        """How often `value` is read in the graph that is rewritten; 1 for values that rules made."""
        return self._uses.get(value, 1)

    def made_by(self, value: Value, cls: type[OpClass]) -> tuple[OpClass, tuple[Value, ...]] | None:
        """Op and operands of the node that makes `value`, if its op is a `cls`."""
        node = self.made.get(value)
        return (node.op, node.inputs) if node is not None and isinstance(node.op, cls) else None

    def unary_of(self, value: Value, kind: str) -> Value | None:
        """x where `value` is `kind(x)`."""
        found = self.made_by(value, Unary)
        return found[1][0] if found and found[0].kind == kind else None

    def binary_of(self, value: Value, kind: str) -> tuple[Value, Value] | None:
        """x and y where `value` is `x kind y`."""
        found = self.made_by(value, Binary)
        return (found[1][0], found[1][1]) if found and found[0].kind == kind else None

    def number(self, value: Value) -> float | None:
        """The number that every element of `value` is, if that is known."""
        node = self.made.get(value)
        if node is not None and isinstance(node.op, Full):
            if value.dtype.itemsize >= 4:
                return node.op.value  # not rounded, so that 1e-6 stays 1e-6 when it becomes an attribute
            return dtypes.cast(np.asarray(node.op.value), value.dtype).item()
        if node is not None and isinstance(node.op, Broadcast | Reshape):
            return self.number(node.inputs[0])
        array = self.arrays.get(value)
        if array is not None and array.size and (array.ravel() == array.ravel()[0]).all():
            return array.ravel()[0].item()
        return None

    def is_constant(self, value: Value) -> bool:
        """Whether `value` depends on nothing but constants."""
        return value in self._constant or value in self.arrays

    def from_parameters(self, value: Value) -> bool:
        """Whether `value` depends on parameters and constants alone, and on some parameter."""
        return value in self._from_parameters

    def array(self, value: Value, limit_elements: int) -> np.ndarray | None:
        """The elements of `value` if it is constant and no step towards it is above the limit."""
        if value in self.arrays:
            return self.arrays[value]
        if value in self._computed:
            return self._computed[value]
        node = self.made.get(value)
        if not self.is_constant(value) or node is None:
            return None
        if any(v.type.elements > limit_elements for v in (*node.inputs, *node.outputs)):
            return None
        operands = [self.array(v, limit_elements) for v in node.inputs]
        if any(a is None for a in operands):
            return None
        results = compute_node(node, [a for a in operands if a is not None])
        self._computed.update(zip(node.outputs, results, strict=True))
        return self._computed[value]


def _bytes_key(array: np.ndarray) -> tuple:
    return array.dtype, array.shape, array.tobytes()


def compute_node(node: Node, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of one node for stored `operands`, rounded to their dtypes."""
    frame = Graph("constant", node.inputs, (), (), (node,), node.outputs)
    if len(set(node.inputs)) < len(node.inputs):
        pairs = dict(zip(node.inputs, operands, strict=True))
        frame = Graph("constant", tuple(pairs), (), (), (node,), node.outputs)
        operands = list(pairs.values())
    return frame.evaluate(operands)


def rewrite_graph(graph: Graph, rules: Iterable[Rule], log: list[Firing] | None = None) -> Graph:
    """`graph` after applying `rules` until none fires, without what is dead, equal operations made one.

    `log` collects which rule fired where. Raises E0901 when rules do not come to an end.
    """
    table = by_class(rules)
    for _ in range(SWEEP_LIMIT):
        graph, fired = _sweep_graph(graph, table, log)
        if not fired:
            return graph
    last = f"; the last was {log[-1]}" if log else ""
    raise error("E0901", f"rules still fire after {SWEEP_LIMIT} sweeps over graph {graph.name}{last}")


def _sweep_graph(graph: Graph, table, log: list[Firing] | None) -> tuple[Graph, int]:
    scope = GraphScope(graph)
    replaced, fired = sweep(graph.nodes, table, scope, scope.same_constants(), log)
    outputs = tuple(replaced.get(v, v) for v in graph.outputs)
    result = Graph(graph.name, graph.inputs, tuple(scope.params), tuple(scope.constants), tuple(scope.nodes), outputs,
                   graph.input_dtypes, graph.output_dtypes)
    return remove_dead(result), fired


def remove_dead(graph: Graph) -> Graph:
    """`graph` without nodes, parameters and constants that no output depends on. Inputs stay."""
    live = set(graph.outputs)
    nodes = []
    for node in reversed(graph.nodes):
        if any(v in live for v in node.outputs):
            live.update(node.inputs)
            nodes.append(node)
    return replace(
        graph,
        params=tuple(p for p in graph.params if p.value in live),
        constants=tuple(c for c in graph.constants if c.value in live),
        nodes=tuple(reversed(nodes)),
    )
