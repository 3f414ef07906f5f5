"""Simplify graphs: constants, identities, compositions of movements, neutral elements, equal and dead operations."""

from __future__ import annotations

import math

import numpy as np

from ranvier import dtypes
from ranvier.compiler.graph.simplify_movement import MOVEMENT_RULES
from ranvier.graph.core import Graph, Node, Value
from ranvier.graph.elementwise import Binary, Cast, Clamp, Compare, Select, Unary
from ranvier.graph.indexing import Full, Iota
from ranvier.graph.movement import Broadcast
from ranvier.graph.ops import ALL_OPS
from ranvier.graph.reduce import Reduce
from ranvier.graph.rewriter import GraphScope, compute_node, rewrite_graph
from ranvier.ir.rewrite import Firing, rule

FOLD_LIMIT_BYTES = 32 * 1024
"""Constants are computed here only if operands and results are at most this large; others stay computations."""


def simplify(graph: Graph, log: list[Firing] | None = None) -> Graph:
    """An equal graph with less in it. Zeros may lose their sign; all else is exact. `log` collects the firings."""
    return rewrite_graph(graph, RULES, log)


@rule(*(cls for cls in ALL_OPS if cls not in (Full, Iota)))
def fold_constant(b: GraphScope, node: Node):
    """An operation on constants only is computed now: if small, or if every operand is one number."""
    if not all(map(b.is_constant, node.inputs)):
        return None
    numbers = [b.number(v) for v in node.inputs]
    if all(n is not None for n in numbers) and (node.op.is_elementwise or isinstance(node.op, Broadcast)):
        value = numbers[0] if isinstance(node.op, Broadcast) else _fold_number(node, numbers)
        return None if value is None or math.isnan(value) else b.full(node.output.shape, value, node.output.dtype)
    small = all(v.type.size_bytes <= FOLD_LIMIT_BYTES for v in (*node.inputs, *node.outputs))
    if not small or isinstance(node.op, Broadcast):  # a broadcast constant is better broadcast where it is used
        return None
    operands = [b.array(v, FOLD_LIMIT_BYTES) for v in node.inputs]
    if any(a is None for a in operands):
        return None
    return [_constant(b, a) for a in compute_node(node, [a for a in operands if a is not None])]


def _fold_number(node: Node, numbers: list[float | None]) -> float | None:
    operands = [Value(v.type.with_shape(())) for v in node.inputs]
    result = Value(node.output.type.with_shape(()))
    arrays = [np.asarray(n, v.dtype.np) for n, v in zip(numbers, operands, strict=True)]
    return compute_node(Node(node.op, tuple(operands), (result,)), arrays)[0].item()


def _constant(b: GraphScope, array: np.ndarray) -> Value:
    flat = array.ravel()
    if flat.size and flat.tobytes() == flat[:1].tobytes() * flat.size and flat[0] == flat[0]:
        return b.full(array.shape, flat[0].item(), dtypes.dtype(array.dtype))
    return b.constant(array)


@rule(Cast)
def drop_cast(b: GraphScope, node: Node[Cast]):
    """A cast to the same dtype does nothing; of two casts the first is left out if it kept every value."""
    x = node.inputs[0]
    if x.dtype is node.output.dtype:
        return x
    inner = b.made_by(x, Cast)
    if inner and _holds(x.dtype, inner[1][0].dtype):
        return b.cast(inner[1][0], node.output.dtype)
    return None


def _holds(wide: dtypes.DType, narrow: dtypes.DType) -> bool:
    """Whether every value of `narrow` is one of `wide`, so that a later cast sees the same number."""
    if narrow is dtypes.bool_:
        return True
    if wide.is_float and narrow.is_float:
        return np.can_cast(narrow.np, wide.np) and wide.itemsize >= 4
    if narrow.is_integer and wide.is_integer:
        return np.can_cast(narrow.np, wide.np)
    return False


@rule(Clamp)
def drop_clamp(b: GraphScope, node: Node[Clamp]):
    """A clamp without bounds does nothing."""
    op = node.op
    return node.inputs[0] if op.min is None and op.max is None else None


@rule(Unary)
def undo_unary(b: GraphScope, node: Node[Unary]):
    """neg of neg, not of not, and abs or square of neg or abs."""
    kind = node.op.kind
    if kind in ("neg", "logical_not", "bitwise_not"):
        return b.unary_of(node.inputs[0], kind)
    if kind in ("abs", "square"):
        for inner in ("neg", "abs"):
            x = b.unary_of(node.inputs[0], inner)
            if x is not None:
                return b.unary(kind, x)
    return None


_RIGHT_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "div": 1, "pow": 1, "logical_or": 0, "logical_and": 1, "logical_xor": 0,
                  "bitwise_or": 0, "bitwise_xor": 0, "left_shift": 0, "right_shift": 0}  # fmt: skip
_COMMUTES = frozenset({"add", "mul", "logical_or", "logical_and", "logical_xor", "bitwise_or", "bitwise_xor",
                       "bitwise_and", "maximum", "minimum"})  # fmt: skip


@rule(Binary)
def drop_neutral(b: GraphScope, node: Node[Binary]):
    """x + 0, x * 1, x ** 1 and their like; or and and with a boolean that decides; x with itself."""
    kind, (x, y) = node.op.kind, node.inputs
    sides = [(x, y), (y, x)] if kind in _COMMUTES else [(x, y)]
    for kept, other in sides:
        number = b.number(other)
        if number is not None and number == _RIGHT_NEUTRAL.get(kind):
            return b.broadcast(kept, node.output.shape)
        if number is not None and (kind, bool(number)) in (("logical_or", True), ("logical_and", False)):
            return b.full(node.output.shape, number, node.output.dtype)
    if x is y and kind in ("maximum", "minimum", "logical_or", "logical_and", "bitwise_or", "bitwise_and"):
        return x
    return None


@rule(Binary)
def simplify_power(b: GraphScope, node: Node[Binary]):
    """Powers 2, 0.5, -0.5 and -1 have operations of their own; the result must have the shape of the base."""
    kind, (x, y) = node.op.kind, node.inputs
    if kind != "pow" or node.output.shape != x.shape:
        return None
    exponent = b.number(y)
    if exponent == 2:
        return b.square(x)
    names = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
    return b.unary(names[exponent], x) if x.dtype.is_float and exponent in names else None


@rule(Binary)
def divide_by_multiplying(b: GraphScope, node: Node[Binary]):
    """Division by a power of two multiplies by its reciprocal, which is exact."""
    kind, (x, y) = node.op.kind, node.inputs
    number = b.number(y) if kind == "div" else None
    if not number or not math.isfinite(number):
        return None
    fraction, exponent = math.frexp(number)
    if abs(fraction) != 0.5 or abs(exponent) > 14:  # float16 holds these reciprocals too
        return None
    return b.mul(x, b.full(y.shape, 1 / number, y.dtype))


@rule(Binary, Compare, Select)
def broadcast_in_place(b: GraphScope, node: Node[Binary | Compare | Select]):
    """Elementwise operations broadcast their operands themselves: a broadcast or a full tensor before is left out."""
    inputs = list(node.inputs)
    for i, value in enumerate(node.inputs):
        trial = inputs.copy()
        found = b.made_by(value, Broadcast)
        number = b.number(value) if value.type.rank else None
        if found:
            trial[i] = found[1][0]
        elif number is not None and not math.isnan(number):
            trial[i] = b.scalar(number, value.dtype)
        else:
            continue
        if _broadcast(trial) == node.output.shape:
            inputs = trial
    return b.emit(node.op, *inputs) if inputs != list(node.inputs) else None


def _broadcast(values: list[Value]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(v.shape for v in values))


@rule(Unary, Cast, Clamp)
def broadcast_after(b: GraphScope, node: Node[Unary | Cast | Clamp]):
    """An operation of one operand is done before the broadcast of its operand, on fewer elements."""
    found = b.made_by(node.inputs[0], Broadcast)
    if found and found[1][0].type.elements < node.output.type.elements:
        return b.broadcast(b.emit(node.op, found[1][0]), node.output.shape)
    return None


@rule(Select)
def decide_select(b: GraphScope, node: Node[Select]):
    """A select whose condition is known, or whose choices are the same, is none; conditions lose their not."""
    condition, x, y = node.inputs
    known = b.number(condition)
    if known is not None:
        return b.broadcast(x if known else y, node.output.shape)
    if x is y:
        return b.broadcast(x, node.output.shape)
    inverse = b.unary_of(condition, "logical_not")
    return b.select(inverse, y, x) if inverse is not None else None


_OPPOSITE = {"eq": "ne", "ne": "eq"}  # the others are not opposites where NaN is compared
_OPPOSITE_EXACT = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", **_OPPOSITE}


@rule(Unary)
def negate_compare(b: GraphScope, node: Node[Unary]):
    """not (x < y) is x >= y, for integers; not (x == y) is x != y."""
    if node.op.kind != "logical_not":
        return None
    found = b.made_by(node.inputs[0], Compare)
    if not found:
        return None
    table = _OPPOSITE if found[1][0].dtype.is_float else _OPPOSITE_EXACT
    return b.compare(table[found[0].kind], *found[1]) if found[0].kind in table else None


@rule(Reduce)
def drop_reduce(b: GraphScope, node: Node[Reduce]):
    """A reduction over axes of extent 1 moves nothing but the shape."""
    op, x = node.op, node.inputs[0]
    return b.reshape(x, node.output.shape) if all(x.shape[a] == 1 for a in op.axes) else None


RULES = (
    fold_constant,
    drop_cast,
    drop_clamp,
    undo_unary,
    negate_compare,
    drop_neutral,
    simplify_power,
    divide_by_multiplying,
    broadcast_in_place,
    broadcast_after,
    decide_select,
    drop_reduce,
    *MOVEMENT_RULES,
)
