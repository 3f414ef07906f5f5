"""Element-wise functions that no single instruction computes, on float tiles.

Each takes the emitter and operands, and returns a tile or the last, pending step. Where a formula was chosen for its
precision the docstring says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ranvier import dtypes as dt
from ranvier.compiler.lower.step import Operand, Step
from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor

if TYPE_CHECKING:
    from ranvier.compiler.lower.select_instructions import TileEmitter

WHOLE = 2.0**31
"""Floats from here on are whole numbers, and too large for int32."""
_HIGH_BITS = -4096  # of a float32 with 12 digits: its product with a quotient of up to 12 digits is exact


def _tensors(e: TileEmitter, op: str, x: NkiTensor, y: NkiTensor) -> NkiTensor:
    result = e.temp()
    nisa.tensor_tensor(dst=result, data1=x, data2=y, op=op)
    return result


def _scalar(
    e: TileEmitter, x: NkiTensor, *operations: tuple[str, float], dtype: dt.DType = dt.float32
) -> NkiTensor:
    result = e.temp(dtype)
    (op0, operand0), (op1, operand1) = operations[0], operations[1] if len(operations) == 2 else (None, None)
    nisa.tensor_scalar(dst=result, data=x, op0=op0, operand0=operand0, op1=op1, operand1=operand1)
    return result


def _where(e: TileEmitter, compare: str, number: float, tested: NkiTensor, then: NkiTensor) -> NkiTensor:
    """`then` where `tested` compares so with the number, else 0."""
    result = e.temp()
    nisa.scalar_tensor_tensor(
        dst=result, data=tested, op0=compare, operand0=number, op1="multiply", operand1=then
    )
    return result


def reciprocal(e: TileEmitter, x: NkiTensor) -> NkiTensor:
    result = e.temp()
    nisa.reciprocal(dst=result, data=x)
    return result


def _through_integers(e: TileEmitter, x: NkiTensor) -> NkiTensor:
    whole, back = e.temp(dt.int32), e.temp()
    nisa.tensor_copy(dst=whole, src=x)
    nisa.tensor_copy(dst=back, src=whole)
    return back


def nearest(e: TileEmitter, x: NkiTensor) -> NkiTensor:
    """x rounded to the nearest integer, halves to even, as float32. What int32 does not hold stays as it is."""
    result = _through_integers(e, x)
    small = _scalar(e, x, ("abs", 0.0), ("less", WHOLE), dtype=dt.uint8)
    nisa.tensor_copy_predicated(dst=result, src=e.in_sbuf_as(x, dt.float32), predicate=small, reverse_pred=True)
    return result


def rounded(e: TileEmitter, kind: str, x: NkiTensor) -> Operand | Step:
    """floor, ceil, round or trunc of x."""
    if kind == "trunc":  # toward zero: |x| rounded down, with x's sign
        size, sign = e.temp(), e.temp()
        nisa.activation(dst=size, op="abs", data=x)
        nisa.activation(dst=sign, op="sign", data=x)
        down = nearest(e, size)
        result = _tensors(e, "subtract", down, _tensors(e, "greater", down, size))
        return Step("tensor", result, (("multiply", sign, False),))
    whole = nearest(e, x)
    if kind == "round":
        return whole
    excess = _tensors(e, "greater" if kind == "floor" else "less", whole, x)
    return Step("tensor", whole, (("subtract" if kind == "floor" else "add", excess, False),))


_TURN = (6.28125, 2.0 * math.pi - 6.28125)
"""2 pi in two parts. The first has 8 digits, so that its product with a number of turns below 2^16 is exact."""


def sine(e: TileEmitter, x: NkiTensor, shift: float) -> Step:
    """sin(x + shift) with the argument brought to [-pi, pi], where the scalar engine's sine is valid."""
    turns = _scalar(e, x, ("multiply", 1.0 / (2.0 * math.pi)), ("add", shift / (2.0 * math.pi)))
    whole, reduced = _through_integers(e, turns), x
    for part in _TURN:
        rest = e.temp()
        nisa.scalar_tensor_tensor(dst=rest, data=whole, op0="multiply", operand0=-part, op1="add", operand1=reduced)
        reduced = rest
    limit = math.nextafter(math.pi, 0.0) - 3e-7
    if shift:
        reduced = _scalar(e, reduced, ("add", shift))
    return Step("act", _scalar(e, reduced, ("maximum", -limit), ("minimum", limit)), function="sin")


def isnan(e: TileEmitter, x: NkiTensor) -> Step:
    x = e.in_sbuf(x)
    return Step("tensor", x, (("not_equal", x, False),))


def isinf(e: TileEmitter, x: NkiTensor) -> Step:
    return Step("scalar", x, (("abs", 0.0, False), ("equal", math.inf, False)))


def expm1(e: TileEmitter, x: NkiTensor) -> Step:
    """exp(x) - 1 as tanh(x / 2) * (exp(x) + 1), which keeps its digits near 0."""
    half, power = e.temp(), e.temp()
    nisa.activation(dst=half, op="tanh", data=x, scale=0.5)
    nisa.activation(dst=power, op="exp", data=x)
    return Step("fused", power, (("add", 1.0, False), ("multiply", half, False)))


def log1p(e: TileEmitter, x: NkiTensor) -> NkiTensor:
    """log(1 + x) as log(u) * x / (u - 1) with u = 1 + x rounded, which keeps its digits near 0; x where u is 1."""
    above = _scalar(e, x, ("add", 1.0))
    kept = _scalar(e, above, ("subtract", 1.0))
    lost = _scalar(e, kept, ("equal", 0.0), dtype=dt.uint8)
    logarithm, result = e.temp(), e.temp()
    nisa.activation(dst=logarithm, op="log", data=above)
    ratio = _tensors(e, "multiply", reciprocal(e, kept), x)
    nisa.tensor_tensor(dst=result, data1=logarithm, data2=ratio, op="multiply")
    nisa.tensor_copy_predicated(dst=result, src=e.in_sbuf_as(x, dt.float32), predicate=lost)
    return result


UNARY: dict[str, Callable[[TileEmitter, NkiTensor], Operand | Step]] = {
    "reciprocal": reciprocal,
    "sin": lambda e, x: sine(e, x, 0.0),
    "cos": lambda e, x: sine(e, x, math.pi / 2),
    "isnan": isnan,
    "isinf": isinf,
    "expm1": expm1,
    "log1p": log1p,
    **{kind: (lambda e, x, kind=kind: rounded(e, kind, x)) for kind in ("floor", "ceil", "round", "trunc")},
}


def arc_tangent(e: TileEmitter, y: NkiTensor, x: NkiTensor) -> Step:
    """The angle of (x, y). The scalar engine's arctan takes the ratio of the shorter to the longer side."""
    long_y, long_x = _scalar(e, y, ("abs", 0.0)), _scalar(e, x, ("abs", 0.0))
    longer, shorter = _tensors(e, "maximum", long_y, long_x), _tensors(e, "minimum", long_y, long_x)
    ratio = _tensors(e, "multiply", shorter, reciprocal(e, _scalar(e, longer, ("maximum", 1e-37))))
    angle = e.temp()
    nisa.activation(dst=angle, op="arctan", data=ratio)
    # a, or pi/2 - a where the y side is longer; then that, or pi minus it, where x is negative
    steep, left = _tensors(e, "greater", long_y, long_x), _scalar(e, x, ("less", 0.0))
    for turned, number in ((steep, math.pi / 2), (left, math.pi)):
        sign = _scalar(e, turned, ("multiply", -2.0), ("add", 1.0))
        signed, result = _tensors(e, "multiply", angle, sign), e.temp()
        nisa.scalar_tensor_tensor(
            dst=result, data=turned, op0="multiply", operand0=number, op1="add", operand1=signed
        )
        angle = result
    sign = _scalar(e, _scalar(e, y, ("greater_equal", 0.0)), ("multiply", 2.0), ("subtract", 1.0))
    return Step("tensor", angle, (("multiply", sign, False),))


# -- remainders


def _less_product(e: TileEmitter, x: NkiTensor, q: NkiTensor, y: NkiTensor, whole: bool) -> NkiTensor:
    """x - q * y, exact for whole numbers below 2^24, and for floats while q is below 2^12: y is cut in two for that."""
    if whole:
        return _tensors(e, "subtract", x, _tensors(e, "multiply", q, y))
    high = e.temp()
    nisa.tensor_scalar(dst=high.view(dt.int32), data=y.view(dt.int32), op0="bitwise_and", operand0=_HIGH_BITS)
    low = _tensors(e, "subtract", y, high)
    rest = _tensors(e, "subtract", x, _tensors(e, "multiply", q, high))
    return _tensors(e, "subtract", rest, _tensors(e, "multiply", q, low))


def fmod(e: TileEmitter, x: NkiTensor, y: NkiTensor, whole: bool = False) -> NkiTensor:
    """The remainder of x / y with the sign of x."""
    size, divisor = _scalar(e, x, ("abs", 0.0)), _scalar(e, y, ("abs", 0.0))
    quotient = nearest(e, _tensors(e, "multiply", size, reciprocal(e, divisor)))
    rest = _less_product(e, size, quotient, divisor, whole)
    rest = _tensors(e, "add", rest, _where(e, "less", 0.0, rest, divisor))
    sign = e.temp()
    nisa.activation(dst=sign, op="sign", data=x)
    return _tensors(e, "multiply", rest, sign)


def mod(e: TileEmitter, x: NkiTensor, y: NkiTensor, whole: bool = False) -> NkiTensor:
    """The remainder of x / y with the sign of y."""
    rest = fmod(e, x, y, whole)
    opposite = _tensors(e, "multiply", rest, y)
    return _tensors(e, "add", rest, _where(e, "less", 0.0, opposite, y))


def floor_div(e: TileEmitter, x: NkiTensor, y: NkiTensor, whole: bool = False) -> NkiTensor:
    """x / y rounded down: what is left without the remainder is a multiple of y, so that rounding cannot go wrong."""
    multiple = _tensors(e, "subtract", x, mod(e, x, y, whole))
    return nearest(e, _tensors(e, "multiply", multiple, reciprocal(e, y)))


REMAINDERS = {"fmod": fmod, "mod": mod, "floor_div": floor_div}
