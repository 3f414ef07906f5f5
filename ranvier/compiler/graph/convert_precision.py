"""Choose the dtype a graph computes in."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np

from ranvier import dtypes
from ranvier.dtypes import DType, float32, float64
from ranvier.errors import error
from ranvier.graph.attention import Attention
from ranvier.graph.builder import GraphBuilder
from ranvier.graph.composite import BatchNorm, GroupNorm, LayerNorm, Linear, LogSoftmax, RmsNorm, Softmax
from ranvier.graph.contract import Conv, MatMul, Pool
from ranvier.graph.core import Graph, Node, Op, Value, with_dtypes
from ranvier.graph.elementwise import Cast, Clamp, Unary
from ranvier.graph.indexing import Full
from ranvier.graph.movement import Pad
from ranvier.loc import Loc

# Angles are followed back to where a network, not the counting of positions or of time, makes the numbers.
_MADE_BY_NETWORK = (MatMul, Linear, Conv, Pool, Attention, Softmax, LogSoftmax, LayerNorm, RmsNorm, GroupNorm,
                    BatchNorm)  # fmt: skip


def convert_precision(graph: Graph, dtype: DType | str) -> Graph:
    """`graph` computing in `dtype` (float32 or bfloat16) where it computed in its main dtype.

    The main dtype is that of most float parameters (or inputs, if there are none). Values of it become `dtype`; other
    floats are the author's own choice and stay, except float64, which the core lacks and which becomes float32. Inputs
    keep their types, with one cast; outputs are cast back to theirs. Composites compute in float32 inside, whatever
    their dtype.

    Two kinds of values stay in float32: what depends on parameters alone (it is computed once, before the run), and
    the angles of sines and cosines (a position of 500 has an error of 1 in bfloat16). Finite constants beyond the range
    of `dtype`, which stand for minus infinity in masks, become its largest finite numbers. Raises E0802.
    """
    name = dtype.name if isinstance(dtype, DType) else dtype
    if name not in dtypes.COMPUTE_DTYPES:
        raise error("E0802", f"dtype is {' or '.join(dtypes.COMPUTE_DTYPES)}, not {name!r}")
    target, main = dtypes.DTYPES[name], main_dtype(graph)
    if (target is main or main is None) and not any(v.dtype is float64 for v in graph.values()):
        return graph
    return _Converter(graph, main, target).convert()


def main_dtype(graph: Graph) -> DType | None:
    """The float dtype of most elements of parameters; of inputs, then of constants and results, if there are none."""
    sources = ([p.value for p in graph.params], graph.inputs, tuple(graph.values()))
    for values in sources:
        counts: dict[DType, int] = {}
        for value in values:
            if value.dtype.is_float and value.dtype.itemsize > 1:
                counts[value.dtype] = counts.get(value.dtype, 0) + value.type.elements
        if counts:
            return max(counts, key=lambda d: (counts[d], d.itemsize))
    return None


class _Converter:
    """One conversion. `done` holds, for each old value and dtype, the new value."""

    def __init__(self, graph: Graph, main: DType | None, target: DType):
        self.graph, self.main, self.target = graph, main, target
        self.out = GraphBuilder(graph.name, locate=False)
        self.full = {n.output: n.op for n in graph.nodes if isinstance(n.op, Full)}
        self.constants = {c.value: c.array for c in graph.constants}
        self.exact = _exact_nodes(graph)
        self.done: dict[tuple[Value, DType], Value] = {}
        self.base: dict[Value, Value] = {}

    def convert(self) -> Graph:
        graph = self.graph
        for value, given in zip(graph.inputs, graph.input_dtypes, strict=True):
            self._define(value, self.out.input(value.type, value.name, given))
        exact_users = {v for n in graph.nodes if n in self.exact for v in n.inputs}
        for param in graph.params:
            kind = param.value.type
            kept = self._exact(kind.dtype) if param.value in exact_users else self._mapped(kind.dtype)
            self._define(param.value, self.out.param(param.key, kind.with_dtype(kept)))
        for node in graph.nodes:
            if not isinstance(node.op, Full) or not node.output.dtype.is_float:
                self._convert_node(node)
        outputs = [self._as(v, v.dtype, None) for v in graph.outputs]
        return self.out.build(outputs, graph.output_dtypes)

    def _define(self, old: Value, new: Value) -> None:
        self.base[old] = new
        self.done[(old, new.dtype)] = new

    def _mapped(self, dtype: DType) -> DType:
        if dtype is self.main:
            return self.target
        return float32 if dtype is float64 else dtype

    @staticmethod
    def _exact(dtype: DType) -> DType:
        return float32 if dtype.is_float and dtype.itemsize > 1 else dtype

    def _convert_node(self, node: Node) -> None:
        change = self._exact if node in self.exact else self._mapped
        inputs = [self._as(v, change(v.dtype), node.loc) for v in node.inputs]
        op = with_dtypes(node.op, change)
        names = [v.name for v in node.outputs]
        made = self.out.emit_node(self._limited(op, inputs), inputs, node.loc, names[0] if len(names) == 1 else "")
        for old, new in zip(node.outputs, made.outputs, strict=True):
            self._define(old, new)

    def _as(self, value: Value, dtype: DType, loc: Loc | None) -> Value:
        """The new value for `value` in `dtype`: constants are made in it, others cast once."""
        key = (value, dtype)
        if key not in self.done:
            if value in self.full and value.dtype.is_float:
                op = self.full[value]
                self.done[key] = self.out.emit(Full(op.shape, _limit(op.value, dtype), dtype), loc=loc, name=value.name)
            elif value in self.constants:
                self.done[key] = self.out.constant(_convert_array(self.constants[value], dtype), value.name)
            else:
                self.done[key] = self.out.emit(Cast(dtype), self.base[value], loc=loc)
        return self.done[key]

    def _limited(self, op: Op, inputs: list[Value]) -> Op:
        if isinstance(op, Pad) and inputs[0].dtype.is_float:
            return dataclasses.replace(op, value=_limit(op.value, inputs[0].dtype))
        if isinstance(op, Clamp) and inputs[0].dtype.is_float:
            low, high = (None if x is None else _limit(x, inputs[0].dtype) for x in (op.min, op.max))
            return Clamp(low, high)
        return op


def _limit(value: float, dtype: DType) -> float:
    """A finite `value` within the finite numbers of `dtype`."""
    largest = float(ml_dtypes.finfo(dtype.np).max)
    return max(-largest, min(largest, value)) if np.isfinite(value) else value


def _convert_array(array: np.ndarray, to: DType) -> np.ndarray:
    if not to.is_float:
        return array
    wide = array.astype(np.float64)
    largest = float(ml_dtypes.finfo(to.np).max)
    return dtypes.cast(np.where(np.isfinite(wide), np.clip(wide, -largest, largest), wide), to)


def _exact_nodes(graph: Graph) -> set[Node]:
    """Nodes that compute in float32: those that no input reaches, and those that make angles."""
    exact: set[Node] = set()
    reached = set(graph.inputs)
    for node in graph.nodes:
        if any(v in reached for v in node.inputs):
            reached.update(node.outputs)
        else:
            exact.add(node)
    angles: set[Value] = set()
    for node in reversed(graph.nodes):
        is_angle = any(v in angles for v in node.outputs) and not isinstance(node.op, _MADE_BY_NETWORK)
        if is_angle or (isinstance(node.op, Unary) and node.op.kind in ("sin", "cos")):
            exact.add(node)
            angles.update(node.inputs)
    return exact
