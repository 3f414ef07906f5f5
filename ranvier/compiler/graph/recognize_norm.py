"""Patterns of softmax and of norms, with the casts to float32 that models put around them."""

from __future__ import annotations

from ranvier.graph.attention import Attention
from ranvier.graph.composite import Gelu, LayerNorm, LogSoftmax, RmsNorm, Rope, Silu, Softmax
from ranvier.graph.core import Node, Value
from ranvier.graph.elementwise import Binary, Cast, Unary
from ranvier.graph.reduce import Reduce
from ranvier.graph.rewriter import GraphScope
from ranvier.ir.rewrite import rule


def _reduced(b: GraphScope, value: Value, kind: str) -> tuple[Value, tuple[int, ...]] | None:
    """x and axes where `value` is the reduction `kind` of x that keeps its axes."""
    found = b.made_by(value, Reduce)
    if not found or found[0].kind != kind:
        return None
    kept = found[0].keepdims
    return (found[1][0], found[0].axes) if kept else None


def _mean(b: GraphScope, value: Value) -> tuple[Value, tuple[int, ...]] | None:
    """x and axes where `value` is the mean of x, kept axes, perhaps written as a sum and a division."""
    direct = _reduced(b, value, "mean")
    if direct:
        return direct
    for kind in ("div", "mul"):
        pair = b.binary_of(value, kind)
        number = b.number(pair[1]) if pair else None
        total = _reduced(b, pair[0], "sum") if pair and number else None
        if total and number:
            count = 1
            for axis in total[1]:
                count *= total[0].shape[axis]
            if abs((number if kind == "div" else 1 / number) - count) < 1e-6 * count:
                return total
    return None


def _squared(b: GraphScope, value: Value) -> Value | None:
    """x where `value` is x * x."""
    pair = b.binary_of(value, "mul")
    return pair[0] if pair and pair[0] is pair[1] else b.unary_of(value, "square")


def _over_root(b: GraphScope, node: Node) -> tuple[Value, Value] | None:
    """x and y where `node` is x / sqrt(y) or x * rsqrt(y)."""
    kind, (x, y) = node.op.kind, node.inputs
    if kind == "div":
        root = b.unary_of(y, "sqrt")
        return (x, root) if root is not None else None
    if kind == "mul":
        for left, right in ((x, y), (y, x)):
            root = b.unary_of(right, "rsqrt")
            if root is None:
                inverse = b.unary_of(right, "reciprocal")
                root = b.unary_of(inverse, "sqrt") if inverse is not None else None
            if root is not None:
                return left, root
    return None


@rule(Binary)
def recognize_norm(b: GraphScope, node: Node[Binary]):
    """x / sqrt(mean(x^2) + eps) is an RMS norm; of x less its mean, a layer norm."""
    found = _over_root(b, node)
    sum_ = b.binary_of(found[1], "add") if found else None
    if not found or not sum_ or found[0].type != node.output.type:
        return None
    for variance, eps in (sum_, sum_[::-1]):
        number, mean = b.number(eps), _mean(b, variance)
        square = _squared(b, mean[0]) if mean else None
        if number is None or mean is None or square is None:
            continue
        x, axes = found[0], mean[1]
        if square is not x or axes != tuple(range(x.type.rank - len(axes), x.type.rank)):
            continue
        centered = b.binary_of(x, "sub")
        center = _mean(b, centered[1]) if centered else None
        if centered and center and center == (centered[0], axes):
            return b.emit(LayerNorm(axes, number, False, False), centered[0])
        if axes == (x.type.rank - 1,):
            return b.emit(RmsNorm(number), x)
    return None


@rule(Binary)
def recognize_affine(b: GraphScope, node: Node[Binary]):
    """Weight and bias of a norm that is used for nothing else."""
    kind = node.op.kind
    for x, other in (node.inputs, node.inputs[::-1]):
        if kind not in ("mul", "add") or x.type != node.output.type or b.uses(x) > 1 or b.number(other) is not None:
            continue
        rms = b.made_by(x, RmsNorm)
        if rms and kind == "mul" and len(rms[1]) == 1 and other.shape == x.shape[-1:]:
            return b.emit(rms[0], *rms[1], other)
        layer = b.made_by(x, LayerNorm)
        if not layer or layer[0].has_bias or other.shape != x.shape[layer[0].axes[0] :]:
            continue
        op, operands = layer
        if kind == "mul" and not op.has_weight:
            return b.emit(LayerNorm(op.axes, op.eps, True, False), *operands, other)
        if kind == "add":
            return b.emit(LayerNorm(op.axes, op.eps, op.has_weight, True), *operands, other)
    return None


@rule(Binary)
def recognize_softmax(b: GraphScope, node: Node[Binary]):
    """exp(x - max(x)) / sum of it."""
    if node.op.kind != "div":
        return None
    e, total = node.inputs
    added, shifted = _reduced(b, total, "sum"), b.unary_of(e, "exp")
    pair = b.binary_of(shifted, "sub") if shifted is not None else None
    peak = _reduced(b, pair[1], "max") if pair else None
    if not added or not pair or not peak or added[0] is not e or len(added[1]) != 1:
        return None
    return b.emit(Softmax(added[1][0]), pair[0]) if peak == (pair[0], added[1]) else None


@rule(Binary)
def recognize_log_softmax(b: GraphScope, node: Node[Binary]):
    """x - max(x), less the logarithm of the sum of its exponentials; or the logarithm of a softmax."""
    if node.op.kind != "sub":
        return None
    shifted, log = node.inputs
    total = b.unary_of(log, "log")
    added = _reduced(b, total, "sum") if total is not None else None
    pair = b.binary_of(shifted, "sub")
    peak = _reduced(b, pair[1], "max") if pair else None
    if not added or not pair or not peak or len(added[1]) != 1 or b.unary_of(added[0], "exp") is not shifted:
        return None
    return b.emit(LogSoftmax(added[1][0]), pair[0]) if peak == (pair[0], added[1]) else None


@rule(Unary)
def recognize_log_of_softmax(b: GraphScope, node: Node[Unary]):
    """The logarithm of a softmax."""
    found = b.made_by(node.inputs[0], Softmax)
    return b.emit(LogSoftmax(found[0].axis), *found[1]) if found and node.op.kind == "log" else None


_COMPUTE_IN_FLOAT32 = (Softmax, LogSoftmax, RmsNorm, LayerNorm, Gelu, Silu, Rope, Attention)


@rule(Cast)
def compute_inside(b: GraphScope, node: Node[Cast]):
    """A composite between casts to float32 and back: composites compute in float32 themselves."""
    made = b.made.get(node.inputs[0])
    if made is None or not isinstance(made.op, _COMPUTE_IN_FLOAT32):
        return None
    narrow = node.output.dtype
    if not narrow.is_float or narrow.itemsize >= made.output.dtype.itemsize or made.output.dtype.name != "float32":
        return None
    operands = []
    for value in made.inputs:
        found = b.made_by(value, Cast)
        if value.dtype.is_float and (not found or found[1][0].dtype is not narrow):
            return None
        operands.append(found[1][0] if found and value.dtype.is_float else value)
    return b.emit(made.op, *operands)


NORM_RULES = (
    recognize_norm,
    recognize_affine,
    recognize_softmax,
    recognize_log_softmax,
    recognize_log_of_softmax,
    compute_inside,
)
