"""Make 64-bit integers 32 bits wide: the core has no wider ones."""

from __future__ import annotations

import numpy as np

from ranvier.dtypes import int32, int64
from ranvier.errors import error
from ranvier.graph.core import Constant, Graph, Node, Op, Param, Value, with_dtypes
from ranvier.graph.indexing import Full
from ranvier.loc import Loc


def narrow_integers(graph: Graph) -> Graph:
    """`graph` with int32 in place of int64, in values, parameters, constants and attributes.

    The caller still gives and gets int64: `Graph.input_dtypes` and `output_dtypes` keep what they were, and whoever
    binds arrays checks that each element fits (E0603). Index arithmetic that exceeds 32 bits inside the graph wraps
    around. Raises E0604 for a constant that 32 bits do not hold.
    """
    if not any(v.dtype is int64 for v in graph.values()):
        return graph
    new = {v: Value(v.type.with_dtype(int32), v.name) if v.dtype is int64 else v for v in graph.values()}
    nodes = []
    for node in graph.nodes:
        inputs, outputs = (tuple(new[v] for v in values) for values in (node.inputs, node.outputs))
        nodes.append(Node(_narrow(node.op, node.loc), inputs, outputs, node.loc))
    return Graph(
        graph.name,
        tuple(new[v] for v in graph.inputs),
        tuple(Param(new[p.value], p.key) for p in graph.params),
        tuple(Constant(new[c.value], _narrow_array(c.array)) for c in graph.constants),
        tuple(nodes),
        tuple(new[v] for v in graph.outputs),
        graph.input_dtypes,
        graph.output_dtypes,
    )


def _narrow(op: Op, loc: Loc | None) -> Op:
    if isinstance(op, Full) and op.dtype is int64:
        _check(int(op.value), int(op.value), loc)
    return with_dtypes(op, lambda dtype: int32 if dtype is int64 else dtype)


def _narrow_array(array: np.ndarray) -> np.ndarray:
    if array.dtype != np.int64:
        return array
    if array.size:
        _check(int(array.min()), int(array.max()), None)
    narrowed = array.astype(np.int32)
    narrowed.flags.writeable = False
    return narrowed


def _check(low: int, high: int, loc: Loc | None) -> None:
    info = np.iinfo(np.int32)
    if low < info.min or high > info.max:
        raise error("E0604", f"a 64-bit integer constant from {low} to {high} does not fit in the 32 bits of the core",
                    where=loc, fix="use constants of at most 32 bits")
