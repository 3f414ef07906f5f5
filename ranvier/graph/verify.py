"""The rules of the graph level, as code."""

from __future__ import annotations

from collections.abc import Iterable

from ranvier.errors import InternalError, RanvierError, error
from ranvier.graph.core import CONSTANT_LIMIT_BYTES, Graph, Value, infer_types
from ranvier.loc import Loc


def verify(graph: Graph, after: str = "") -> Graph:
    """Returns `graph` if it follows the rules; `after` names the pass that made it. Raises E0901 with the rule's id.

    G-1 a value is defined once. G-2 a value is defined before it is used. G-3 recorded types are the inferred ones.
    G-4 names of inputs and keys of parameters are unique. G-5 outputs are defined. G-6 a constant's array has its
    type and is small. G-7 dtypes at the boundary differ from the values' own only between integers.
    """
    defined: set[Value] = set()

    def broken(rule: str, what: str, where: Loc | None = None) -> RanvierError:
        origin = f"after {after}: " if after else ""
        return error("E0901", f"{origin}graph {graph.name}: {what}", rule=rule, where=where)

    def define(values: Iterable[Value], where: Loc | None = None) -> None:
        for value in values:
            if value in defined:
                raise broken("G-1", f"{value!r} is defined twice", where)
            defined.add(value)

    define(graph.inputs)
    define(p.value for p in graph.params)
    define(c.value for c in graph.constants)
    for names, what in (([v.name for v in graph.inputs], "input"), ([p.key for p in graph.params], "parameter")):
        if len(set(names)) < len(names):
            twice = sorted({n for n in names if names.count(n) > 1})
            raise broken("G-4", f"{what} names occur twice: {', '.join(twice)}")
    for constant in graph.constants:
        kind, array = constant.value.type, constant.array
        if array.shape != kind.shape or array.dtype != kind.dtype.np or array.nbytes > CONSTANT_LIMIT_BYTES:
            raise broken("G-6", f"constant {constant.value!r} holds {array.dtype}{array.shape}, {array.nbytes} bytes")
    for node in graph.nodes:
        for value in node.inputs:
            if value not in defined:
                raise broken("G-2", f"{node.op.mnemonic} uses {value!r}, which is not defined before", node.loc)
        try:
            inferred = infer_types(node.op, [v.type for v in node.inputs])
        except RanvierError as problem:
            if isinstance(problem, InternalError):
                raise
            raise broken("G-3", problem.message, node.loc) from problem
        recorded = tuple(v.type for v in node.outputs)
        if inferred != recorded:
            raise broken("G-3", f"{node.op.mnemonic} gives {', '.join(map(str, inferred))}, recorded is "
                         f"{', '.join(map(str, recorded))}", node.loc)
        define(node.outputs, node.loc)
    for value in graph.outputs:
        if value not in defined:
            raise broken("G-5", f"output {value!r} is not defined")
    _check_boundary(graph, broken)
    return graph


def _check_boundary(graph: Graph, broken) -> None:
    for values, outer in ((graph.inputs, graph.input_dtypes), (graph.outputs, graph.output_dtypes)):
        for value, given in zip(values, outer, strict=True):
            if given is not value.dtype and not (given.is_integer and value.dtype.is_integer):
                raise broken("G-7", f"{value!r} meets the caller as {given}")
