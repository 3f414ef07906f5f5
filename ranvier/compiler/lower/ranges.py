"""How large an integer value can be. Arithmetic of the vector engine is float32: exact for integers up to 2^24 only."""

from __future__ import annotations

import numpy as np

from ranvier import dtypes as dt
from ranvier.dtypes import DType
from ranvier.graph.core import Graph, Node, Value
from ranvier.graph.elementwise import Binary, Cast, Clamp, Select, Unary
from ranvier.graph.indexing import Full, Iota, Sort, Take, TakeAlong, TopK
from ranvier.graph.movement import Broadcast, Concat, Reshape, Reverse, Slice, Transpose
from ranvier.graph.reduce import ArgReduce, CumSum, Reduce

EXACT = 2**24
"""Integers up to this size are exact in float32."""


def largest_of(dtype: DType) -> int:
    """The largest magnitude of an integer dtype."""
    return 1 if dtype is dt.bool_ else max(-int(np.iinfo(dtype.np).min), int(np.iinfo(dtype.np).max))


def magnitudes(graph: Graph) -> dict[Value, int]:
    """A bound on the magnitude of each integer and boolean value, from what computes it."""
    known: dict[Value, int] = {}
    for value in (*graph.inputs, *(p.value for p in graph.params)):
        if not value.dtype.is_float:
            known[value] = largest_of(value.dtype)
    for constant in graph.constants:
        array = constant.array
        if not constant.value.dtype.is_float:
            known[constant.value] = max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0
    for node in graph.nodes:
        for value in node.outputs:
            if not value.dtype.is_float:
                most = largest_of(value.dtype)
                sources = [known.get(v, most) for v in node.inputs]  # floats are cast with saturation
                known[value] = min(most, _bound(node, value, sources, most))
    return known


def _bound(node: Node, value: Value, known: list[int], most: int) -> int:
    op, sources = node.op, node.inputs
    match op:
        case Reshape() | Transpose() | Broadcast() | Slice() | Reverse() | Cast() | Take() | TakeAlong():
            return known[0]
        case Concat():
            return max(known)
        case Select():
            return max(known[1:])
        case Full():
            return abs(int(op.value))
        case Iota():
            return op.shape[op.axis]
        case ArgReduce():
            return sources[0].shape[op.axis]
        case Sort() | TopK():
            return sources[0].shape[op.axis] if value is node.outputs[1] else known[0]
        case Clamp() if op.min is not None and op.max is not None:
            return min(most, int(max(abs(op.min), abs(op.max))) + 1)
        case Clamp() if (op.min is not None and op.min <= 0) or (op.max is not None and op.max >= 0):
            return known[0]
        case Reduce() | CumSum():
            return _reduced(op, sources[0], known[0], most)
        case Unary() | Binary():
            return _computed(op.kind, known, most)
    return most


def _reduced(op: Reduce | CumSum, source: Value, known: int, most: int) -> int:
    axes = (op.axis,) if isinstance(op, CumSum) else op.axes
    count = int(np.prod([source.shape[a] for a in axes]))
    if isinstance(op, CumSum) or op.kind == "sum":
        return known * count
    return known if op.kind in ("max", "min", "any", "all") else most


def _computed(kind: str, known: list[int], most: int) -> int:
    if kind in ("neg", "abs", "relu", "maximum", "minimum"):
        return max(known)
    if kind in ("add", "sub"):
        return sum(known)
    if kind in ("mul", "square"):
        return known[0] * known[-1]
    if kind in ("floor_div", "fmod"):
        return known[0]
    if kind == "mod":
        return known[1]
    if kind == "sign":
        return 1
    return most
