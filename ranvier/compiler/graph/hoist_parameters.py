"""Move what depends on parameters and literals only out of the program, to be computed once when weights are loaded."""

from __future__ import annotations

from dataclasses import replace

from ranvier.graph.core import Graph, Node, Param, Value
from ranvier.graph.indexing import Full, Iota

GROWTH = 4
"""A derived parameter may have this many times the bytes of what it is made from: beyond that (a broadcast) the device
computes it."""
SMALL_BYTES = 1 << 20
"""Derived parameters up to this size are always worth it."""


def derived_key(index: int) -> str:
    """The parameter key of the prologue's output number `index`."""
    return f"derived.{index}"


def hoist_parameters(graph: Graph) -> tuple[Graph, Graph | None]:
    """The graph without operations on parameters and literals alone, and the prologue that does them (None if none).

    The prologue takes the model's parameters and gives derived ones: output i becomes parameter `derived_key(i)`.
    Reshapes of plain parameters stay where they are, since they cost nothing on the device either.
    """
    fixed = {p.value for p in graph.params} | {c.value for c in graph.constants}
    sources: dict[Value, set[Value]] = {v: {v} for v in fixed}
    hoisted: list[Node] = []
    for node in graph.nodes:
        if all(v in fixed for v in node.inputs) and (node.inputs or isinstance(node.op, (Full, Iota))):
            origin = set().union(*(sources[v] for v in node.inputs)) if node.inputs else set()
            if _worth_it(node, origin):
                hoisted.append(node)
                for value in node.outputs:
                    fixed.add(value)
                    sources[value] = origin
    if not hoisted:
        return graph, None
    moved = {v for node in hoisted for v in node.outputs}
    inside = set(map(id, hoisted))
    rest = tuple(n for n in graph.nodes if id(n) not in inside)
    needed = [v for n in rest for v in n.inputs if v in moved] + [v for v in graph.outputs if v in moved]
    outputs = tuple(dict.fromkeys(needed))
    if not outputs:
        return replace(graph, nodes=rest), None
    prologue = _with_live_inputs(replace(
        graph, name=f"{graph.name}.prologue", inputs=(), nodes=tuple(hoisted), outputs=outputs, input_dtypes=(),
        output_dtypes=()
    ))  # fmt: skip
    derived = tuple(Param(v, derived_key(i)) for i, v in enumerate(outputs))
    body = replace(graph, params=graph.params + derived, nodes=rest)
    return _with_live_inputs(body), prologue


def _worth_it(node: Node, origin: set[Value]) -> bool:
    size = sum(v.type.size_bytes for v in node.outputs)
    return size <= SMALL_BYTES or size <= GROWTH * sum(v.type.size_bytes for v in origin)


def _with_live_inputs(graph: Graph) -> Graph:
    """Without parameters and literals that no node reads."""
    used = {v for n in graph.nodes for v in n.inputs} | set(graph.outputs)
    return replace(
        graph,
        params=tuple(p for p in graph.params if p.value in used),
        constants=tuple(c for c in graph.constants if c.value in used),
    )
