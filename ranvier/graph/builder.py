"""Building graphs: `GraphBuilder`, with methods in numpy's manner."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ranvier import dtypes
from ranvier.dtypes import DType
from ranvier.errors import error
from ranvier.graph import attention, composite, contract, elementwise, indexing, movement
from ranvier.graph import reduce as reductions
from ranvier.graph.core import CONSTANT_LIMIT_BYTES, Constant, Graph, Node, Op, Param, TensorType, Value, infer_types
from ranvier.loc import Loc, capture

Number = float | int | bool
Operand = Value | float | int | bool
Axes = int | Sequence[int] | None


class GraphBuilder:
    """Collects operations in order and makes a `Graph` of them.

    Operands of elementwise methods may be Python numbers, which take the dtype of the other operand. Axes may be
    negative. A node's location is the `loc` given, or the calling line outside of this package; with `locate` false
    (passes, which have locations of their own) it is the `loc` given.
    """

    def __init__(self, name: str = "main", *, locate: bool = True):
        self.name, self.locate = name, locate
        self.inputs: list[Value] = []
        self.params: list[Param] = []
        self.constants: list[Constant] = []
        self.nodes: list[Node] = []
        self.input_dtypes: list[DType] = []

    # The frame of a graph -------------------------------------------------------------------------------------------

    def input(self, type: TensorType, name: str = "", given: DType | None = None) -> Value:
        """A new input. `given` is the dtype of the caller's array where it differs (see `Graph.input_dtypes`)."""
        value = Value(type, name or f"input{len(self.inputs)}")
        self.inputs.append(value)
        self.input_dtypes.append(given or type.dtype)
        return value

    def param(self, key: str, type: TensorType) -> Value:
        """A new parameter; `key` is its name in the mapping of parameters."""
        value = Value(type, key)
        self.params.append(Param(value, key))
        return value

    def constant(self, array: np.ndarray, name: str = "") -> Value:
        """A small array as part of the graph (copied). Raises E0601 above `CONSTANT_LIMIT_BYTES`."""
        array = np.array(array, order="C")
        kind = TensorType(array.shape, dtypes.dtype(array.dtype))
        if array.nbytes > CONSTANT_LIMIT_BYTES:
            raise error("E0601", f"a constant of type {kind} has {array.nbytes} bytes; the limit is "
                        f"{CONSTANT_LIMIT_BYTES}", fix="pass larger arrays as parameters", where=capture())
        array.flags.writeable = False
        value = Value(kind, name)
        self.constants.append(Constant(value, array))
        return value

    def emit(self, op: Op, *values: Value, loc: Loc | None = None, name: str = "") -> Any:
        """Applies `op`; returns its result, or the tuple of its results if there are several. Raises E0601."""
        node = self.emit_node(op, values, loc, name)
        return node.outputs[0] if len(node.outputs) == 1 else node.outputs

    def emit_node(self, op: Op, values: Sequence[Value], loc: Loc | None = None, name: str = "") -> Node:
        """As `emit`, but returns the node."""
        loc = loc or (capture() if self.locate else None)
        types = infer_types(op, [v.type for v in values], loc)
        node = Node(op, tuple(values), tuple(Value(t, name) for t in types), loc)
        self.nodes.append(node)
        return node

    def build(self, outputs: Iterable[Value], output_dtypes: Iterable[DType] = ()) -> Graph:
        """The graph with these outputs, verified. Raises E0901 when a value is not of this builder."""
        from ranvier.graph.verify import verify

        graph = Graph(self.name, tuple(self.inputs), tuple(self.params), tuple(self.constants), tuple(self.nodes),
                      tuple(outputs), tuple(self.input_dtypes), tuple(output_dtypes))
        return verify(graph)

    # Operands and axes ----------------------------------------------------------------------------------------------

    def scalar(self, value: Number, dtype: DType) -> Value:
        """A tensor without axes."""
        return self.emit(indexing.Full((), value, dtype))

    def operands(self, *operands: Operand) -> list[Value]:
        """Numbers among `operands` as scalars of the dtype of the first tensor among them."""
        first = next((x for x in operands if isinstance(x, Value)), None)
        if first is None:
            raise error("E0601", f"at least one of {operands} must be a tensor", where=capture())
        return [x if isinstance(x, Value) else self.scalar(x, first.dtype) for x in operands]

    @staticmethod
    def axes(x: Value, axes: Axes) -> tuple[int, ...]:
        """`axes` ascending and counted from 0; None means all."""
        if axes is None:
            return tuple(range(x.type.rank))
        return tuple(sorted(_axis(x, a) for a in ([axes] if isinstance(axes, int) else axes)))

    # Elementwise ----------------------------------------------------------------------------------------------------

    def unary(self, kind: str, x: Value) -> Value:
        """A kind of `Unary`."""
        return self.emit(elementwise.Unary(kind), x)

    def binary(self, kind: str, x: Operand, y: Operand) -> Value:
        """A kind of `Binary`."""
        return self.emit(elementwise.Binary(kind), *self.operands(x, y))

    def compare(self, kind: str, x: Operand, y: Operand) -> Value:
        """A kind of `Compare`."""
        return self.emit(elementwise.Compare(kind), *self.operands(x, y))

    def neg(self, x: Value) -> Value:
        return self.unary("neg", x)

    def exp(self, x: Value) -> Value:
        return self.unary("exp", x)

    def log(self, x: Value) -> Value:
        return self.unary("log", x)

    def sqrt(self, x: Value) -> Value:
        return self.unary("sqrt", x)

    def rsqrt(self, x: Value) -> Value:
        return self.unary("rsqrt", x)

    def square(self, x: Value) -> Value:
        return self.unary("square", x)

    def tanh(self, x: Value) -> Value:
        return self.unary("tanh", x)

    def sigmoid(self, x: Value) -> Value:
        return self.unary("sigmoid", x)

    def erf(self, x: Value) -> Value:
        return self.unary("erf", x)

    def relu(self, x: Value) -> Value:
        return self.unary("relu", x)

    def add(self, x: Operand, y: Operand) -> Value:
        return self.binary("add", x, y)

    def sub(self, x: Operand, y: Operand) -> Value:
        return self.binary("sub", x, y)

    def mul(self, x: Operand, y: Operand) -> Value:
        return self.binary("mul", x, y)

    def div(self, x: Operand, y: Operand) -> Value:
        return self.binary("div", x, y)

    def pow(self, x: Operand, y: Operand) -> Value:
        return self.binary("pow", x, y)

    def maximum(self, x: Operand, y: Operand) -> Value:
        return self.binary("maximum", x, y)

    def minimum(self, x: Operand, y: Operand) -> Value:
        return self.binary("minimum", x, y)

    def select(self, condition: Value, x: Operand, y: Operand) -> Value:
        """`x` where the condition holds, else `y`."""
        return self.emit(elementwise.Select(), condition, *self.operands(x, y))

    def cast(self, x: Value, dtype: DType) -> Value:
        """`x` in `dtype`; `x` itself if it has it. Floats round to integers."""
        return x if x.dtype is dtype else self.emit(elementwise.Cast(dtype), x)

    def clamp(self, x: Value, min: float | None = None, max: float | None = None) -> Value:
        return self.emit(elementwise.Clamp(min, max), x)

    # Reductions -----------------------------------------------------------------------------------------------------

    def reduce(self, kind: str, x: Value, axes: Axes = None, keepdims: bool = False) -> Value:
        """A kind of `Reduce`; `axes` None means all."""
        return self.emit(reductions.Reduce(kind, self.axes(x, axes), keepdims), x)

    def sum(self, x: Value, axes: Axes = None, keepdims: bool = False) -> Value:
        return self.reduce("sum", x, axes, keepdims)

    def mean(self, x: Value, axes: Axes = None, keepdims: bool = False) -> Value:
        return self.reduce("mean", x, axes, keepdims)

    def max(self, x: Value, axes: Axes = None, keepdims: bool = False) -> Value:
        return self.reduce("max", x, axes, keepdims)

    def argmax(self, x: Value, axis: int, keepdims: bool = False) -> Value:
        return self.emit(reductions.ArgReduce("argmax", _axis(x, axis), keepdims), x)

    def cumsum(self, x: Value, axis: int) -> Value:
        return self.emit(reductions.CumSum(_axis(x, axis)), x)

    # Products -------------------------------------------------------------------------------------------------------

    def matmul(self, x: Value, y: Value) -> Value:
        """The matrix product by numpy's rules, operands of one axis included."""
        left, right = x.type.rank == 1, y.type.rank == 1
        x = self.reshape(x, (1, *x.shape)) if left else x
        y = self.reshape(y, (*y.shape, 1)) if right else y
        product = self.emit(contract.MatMul(), x, y)
        if left or right:
            shape = product.shape[: len(product.shape) - 2] + product.shape[-2:][left : 2 - right]
            product = self.reshape(product, shape)
        return product

    def linear(self, x: Value, weight: Value, bias: Value | None = None) -> Value:
        return self.emit(composite.Linear(), x, weight, *([] if bias is None else [bias]))

    # Movement -------------------------------------------------------------------------------------------------------

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """`x` in `shape`, in which one extent may be -1; `x` itself if it has that shape."""
        shape = tuple(int(n) for n in shape)
        if -1 in shape:
            rest = math.prod(n for n in shape if n != -1)
            shape = tuple((x.type.elements // rest if rest else 0) if n == -1 else n for n in shape)
        return x if shape == x.shape else self.emit(movement.Reshape(shape), x)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """`x` itself if `perm` changes nothing."""
        order = tuple(_axis(x, a) for a in perm)
        return x if order == tuple(range(x.type.rank)) else self.emit(movement.Transpose(order), x)

    def broadcast(self, x: Value, shape: Sequence[int]) -> Value:
        """`x` itself if it has that shape."""
        return x if tuple(shape) == x.shape else self.emit(movement.Broadcast(tuple(shape)), x)

    def slice(
        self, x: Value, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None = None
    ) -> Value:
        steps = tuple(strides) if strides is not None else (1,) * x.type.rank
        return self.emit(movement.Slice(tuple(starts), tuple(limits), steps), x)

    def slice_axis(self, x: Value, axis: int, start: int, limit: int, stride: int = 1) -> Value:
        """``x[start:limit:stride]`` along one axis."""
        starts, limits, strides = [0] * x.type.rank, list(x.shape), [1] * x.type.rank
        axis = _axis(x, axis)
        starts[axis], limits[axis], strides[axis] = start, limit, stride
        return self.slice(x, starts, limits, strides)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        return self.emit(movement.Concat(_axis(values[0], axis)), *values)

    def pad(self, x: Value, low: Sequence[int], high: Sequence[int], value: Number = 0.0) -> Value:
        return self.emit(movement.Pad(tuple(low), tuple(high), value), x)

    # Indexing -------------------------------------------------------------------------------------------------------

    def take(self, table: Value, indices: Value, axis: int = 0) -> Value:
        return self.emit(indexing.Take(_axis(table, axis)), table, indices)

    def iota(self, shape: Sequence[int], axis: int, dtype: DType) -> Value:
        return self.emit(indexing.Iota(tuple(shape), axis, dtype))

    def full(self, shape: Sequence[int], value: Number, dtype: DType) -> Value:
        return self.emit(indexing.Full(tuple(shape), value, dtype))

    # Composites -----------------------------------------------------------------------------------------------------

    def softmax(self, x: Value, axis: int = -1) -> Value:
        return self.emit(composite.Softmax(_axis(x, axis)), x)

    def layer_norm(self, x: Value, weight: Value | None, bias: Value | None, eps: float, axes: Axes = -1) -> Value:
        op = composite.LayerNorm(self.axes(x, axes), eps, weight is not None, bias is not None)
        return self.emit(op, *(v for v in (x, weight, bias) if v is not None))

    def rms_norm(self, x: Value, weight: Value | None, eps: float) -> Value:
        return self.emit(composite.RmsNorm(eps), *(v for v in (x, weight) if v is not None))

    def gelu(self, x: Value, approximate: str = "none") -> Value:
        return self.emit(composite.Gelu(approximate), x)

    def silu(self, x: Value) -> Value:
        return self.emit(composite.Silu(), x)

    def attention(
        self, q: Value, k: Value, v: Value, mask: Value | None = None, *, scale: float | None = None,
        causal: bool = False,
    ) -> Value:
        """`scale` None means 1 / sqrt(D)."""
        scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        op = attention.Attention(scale, causal, mask is not None)
        return self.emit(op, q, k, v, *([] if mask is None else [mask]))

    def decompose(self, node: Node, *values: Value) -> Value:
        """Emits the decomposition of a composite node on `values` (its own inputs if none are given)."""
        return node.op.decompose(self, *(values or node.inputs))


def _axis(x: Value, axis: int) -> int:
    if not -x.type.rank <= axis < x.type.rank:
        raise error("E0601", f"axis {axis} is not an axis of {x.type}", where=capture())
    return axis % x.type.rank
