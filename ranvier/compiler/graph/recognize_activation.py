"""Patterns of activations (silu, gelu) and of linear layers."""

from __future__ import annotations

import math

from ranvier.graph.composite import Gelu, Linear, Silu
from ranvier.graph.contract import MatMul
from ranvier.graph.core import Node, Value
from ranvier.graph.elementwise import Binary
from ranvier.graph.movement import Transpose
from ranvier.graph.rewriter import GraphScope
from ranvier.ir.rewrite import rule

_TOLERANCE = 1e-4  # models write sqrt(2 / pi) with as few as five digits


def _near(value: float, expected: float) -> bool:
    return abs(value - expected) <= _TOLERANCE * expected


def factors(b: GraphScope, value: Value, depth: int = 4) -> tuple[float, list[Value]]:
    """`value` as a number times values: products, divisions by numbers, squares and whole powers are taken apart."""
    if depth:
        for kind in ("mul", "div"):
            found = b.binary_of(value, kind)
            if found is None:
                continue
            numbers = [b.number(v) for v in found]
            if kind == "div" and not numbers[1]:
                return 1.0, [value]
            scale, parts = 1.0, []
            for operand, number in zip(found, numbers, strict=True):
                inner = (number, []) if number is not None else factors(b, operand, depth - 1)
                invert = kind == "div" and operand is found[1]
                scale *= 1 / inner[0] if invert else inner[0]
                parts += inner[1]
            return scale, parts
        square = b.unary_of(value, "square")
        if square is not None:
            scale, parts = factors(b, square, depth - 1)
            return scale * scale, parts * 2
        power = b.binary_of(value, "pow")
        if power is not None and b.number(power[1]) == 3:
            scale, parts = factors(b, power[0], depth - 1)
            return scale**3, parts * 3
    return 1.0, [value]


def _plus_one(b: GraphScope, value: Value) -> Value | None:
    """x where `value` is x + 1."""
    found = b.binary_of(value, "add")
    for x, y in ((found, found[::-1]) if found else ()):
        if b.number(y) == 1:
            return x
    return None


@rule(Binary)
def recognize_silu(b: GraphScope, node: Node[Binary]):
    """x * sigmoid(x)."""
    if node.op.kind != "mul":
        return None
    for x, y in (node.inputs, node.inputs[::-1]):
        if b.unary_of(y, "sigmoid") is x and x.dtype.is_float:
            return b.emit(Silu(), x)
    return None


@rule(Binary)
def recognize_gelu(b: GraphScope, node: Node[Binary]):
    """0.5 * x * (1 + erf(x / sqrt(2))), or with tanh its approximation, in any order of the product."""
    if node.op.kind not in ("mul", "div"):
        return None
    scale, parts = _top_factors(b, node)
    if len(parts) != 2 or not _near(scale, 0.5):
        return None
    for x, other in (parts, parts[::-1]):
        inner = _plus_one(b, other)
        if inner is None or x.type != node.output.type:
            continue
        argument = b.unary_of(inner, "erf")
        if argument is not None:
            factor, base = factors(b, argument)
            if base == [x] and _near(factor, math.sqrt(0.5)):
                return b.emit(Gelu("none"), x)
        argument = b.unary_of(inner, "tanh")
        if argument is not None and _is_tanh_argument(b, argument, x):
            return b.emit(Gelu("tanh"), x)
    return None


def _top_factors(b: GraphScope, node: Node) -> tuple[float, list[Value]]:
    """`factors` of the result of `node`, which is not in the scope yet."""
    scale, parts = 1.0, []
    for position, operand in enumerate(node.inputs):
        number = b.number(operand)
        factor, inner = (number, []) if number is not None else factors(b, operand)
        if node.op.kind == "div" and position == 1:
            if inner or not factor:
                return 1.0, []
            factor = 1 / factor
        scale *= factor
        parts += inner
    return scale, parts


def _is_tanh_argument(b: GraphScope, value: Value, x: Value) -> bool:
    """Whether `value` is sqrt(2/pi) * (x + 0.044715 x^3), or the same with x taken out."""
    factor, base = factors(b, value)
    if not _near(factor, math.sqrt(2 / math.pi)):
        return False
    outside = base.count(x)
    rest = [v for v in base if v is not x]
    if len(rest) != 1 or outside > 1:
        return False
    terms = b.binary_of(rest[0], "add")
    for one, cube in ((terms, terms[::-1]) if terms else ()):
        plain = b.number(one) == 1 if outside else one is x
        scale, parts = factors(b, cube)
        if plain and _near(scale, 0.044715) and parts == [x] * (3 - outside):
            return True
    return False


@rule(MatMul)
def recognize_linear(b: GraphScope, node: Node[MatMul]):
    """x times a transposed matrix, or times a matrix that depends on parameters alone (its transpose is made once)."""
    x, y = node.inputs
    if y.type.rank != 2 or not x.dtype.is_float:
        return None
    if b.made_by(y, Transpose):
        weight = b.made_by(y, Transpose)[1][0]  # type: ignore[index]
    elif b.from_parameters(y):
        weight = b.transpose(y, (1, 0))
    else:
        return None
    return b.emit(Linear(), x, weight)


@rule(Binary)
def recognize_bias(b: GraphScope, node: Node[Binary]):
    """The bias of a linear layer that is used for nothing else."""
    if node.op.kind != "add":
        return None
    for product, bias in (node.inputs, node.inputs[::-1]):
        found = b.made_by(product, Linear)
        if not found or len(found[1]) != 2 or b.uses(product) > 1 or product.type != node.output.type:
            continue
        if bias.shape == product.shape[-1:] and b.number(bias) is None:
            return b.emit(Linear(), *found[1], bias)
    return None


ACTIVATION_RULES = (recognize_silu, recognize_gelu, recognize_linear, recognize_bias)
