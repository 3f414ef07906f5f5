"""Element-wise math of `nki.language`, made of instructions.

Results are new SBUF tiles; `dtype` is that of the tile operand (of the wider one of two) unless it is given. Nothing is
broadcast but numbers and one value per partition ([P, 1]). Each function carries `alu_name` and `act_name`: the ALU
operation and the activation function that it stands for as the `op` of an instruction, or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ranvier import dtypes as dt
from ranvier.dtypes import DType
from ranvier.isa.act import ACT
from ranvier.isa.alu import ALU
from ranvier.nki import isa as nisa
from ranvier.nki.calls import public
from ranvier.nki.create import copy as copy_tile
from ranvier.nki.create import new, tensor_argument
from ranvier.nki.tensor import NUMBERS, NkiTensor, as_dtype, fail, shown

Operand = NkiTensor | float | int


def op_names(fn: Callable, alu: str | None = None, act: str | None = None) -> Callable:
    """Let `fn` stand for an ALU operation, an activation function, or both."""
    fn.alu_name, fn.act_name = alu, act  # type: ignore[attr-defined]
    return fn


# Two operands ---------------------------------------------------------------------------------------------------------


def promote(a: DType, b: DType) -> DType:
    """The dtype of a result of two tiles: float before integer, then the wider; float32 for two of one size."""
    if a is b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.itemsize != b.itemsize:
        return a if a.itemsize > b.itemsize else b
    return dt.float32


def is_column(x: NkiTensor) -> bool:
    """One value per partition."""
    return x.access.free_elements == 1


def as_column(x: NkiTensor) -> NkiTensor:
    """`x`, one value per partition, as float32 [P, 1], which is what instructions take beside a tile."""
    column = x.reshape((x.shape[0], 1))
    return column if x.dtype is dt.float32 else copy_tile(column, dtype=dt.float32)


def combine(op: str, x: Operand, y: Operand, dtype: object = None) -> NkiTensor:
    """x op y as a new tile. Raises E0103 if neither is a tile, E0304 if their shapes do not fit."""
    for name, value in (("x", x), ("y", y)):
        if not isinstance(value, (NkiTensor, *NUMBERS)):
            raise fail("E0103", f"{name} is {value!r}; it takes a tile or a number", argument=name)
    if isinstance(x, NkiTensor) and isinstance(y, NkiTensor):
        to = dtype or promote(x.dtype, y.dtype)
        if x.shape == y.shape:
            tile = new(x.shape, to)
            nisa.tensor_tensor(dst=tile, data1=x, data2=y, op=op)
            return tile
        if x.shape[0] != y.shape[0] or not (is_column(x) or is_column(y)) or ALU[op].is_bitwise:
            raise fail(
                "E0304",
                f"x has shape {x.shape}, y has shape {y.shape}",
                argument="y",
                fix="give tiles of one shape, or one of shape (P, 1)",
            )
        data, operand, reverse = (x, as_column(y), False) if is_column(y) else (y, as_column(x), True)
    elif isinstance(x, NkiTensor):
        data, operand, reverse, to = x, y, False, dtype or x.dtype
    elif isinstance(y, NkiTensor):
        data, operand, reverse, to = y, x, True, dtype or y.dtype
    else:
        raise fail("E0103", f"x is {shown(x)} and y is {shown(y)}; one of them must be a tile", argument="x")
    tile = new(data.shape, to)
    nisa.tensor_scalar(dst=tile, data=data, op0=op, operand0=operand, reverse0=reverse)
    return tile


def _binary(name: str, doc: str) -> Callable[..., NkiTensor]:
    def fn(x, y, dtype=None) -> NkiTensor:
        return combine(name, x, y, dtype)

    fn.__name__ = fn.__qualname__ = name
    operands = "x and y are tiles of one shape, a tile and a number, or a tile and [P, 1]"
    fn.__doc__ = f"{doc}, element by element, as a new SBUF tile. {operands}."
    return op_names(public(fn), alu=name)


add = _binary("add", "x + y")
subtract = _binary("subtract", "x - y")
multiply = _binary("multiply", "x * y")
maximum = _binary("maximum", "The larger of x and y")
minimum = _binary("minimum", "The smaller of x and y")
abs_max = _binary("abs_max", "The one of x and y with the larger magnitude, with its sign")
abs_min = _binary("abs_min", "The one of x and y with the smaller magnitude, with its sign")
equal = _binary("equal", "1 where x == y, else 0")
not_equal = _binary("not_equal", "1 where x != y, else 0")
less = _binary("less", "1 where x < y, else 0")
less_equal = _binary("less_equal", "1 where x <= y, else 0")
greater = _binary("greater", "1 where x > y, else 0")
greater_equal = _binary("greater_equal", "1 where x >= y, else 0")
logical_and = _binary("logical_and", "1 where x and y are both non-zero, else 0")
logical_or = _binary("logical_or", "1 where x or y is non-zero, else 0")
logical_xor = _binary("logical_xor", "1 where exactly one of x and y is non-zero, else 0")
bitwise_and = _binary("bitwise_and", "Bits of both x and y (integers)")
bitwise_or = _binary("bitwise_or", "Bits of x or y (integers)")
bitwise_xor = _binary("bitwise_xor", "Bits of exactly one of x and y (integers)")
left_shift = _binary("left_shift", "x shifted left by y bits (integers)")
right_shift = _binary("right_shift", "x shifted right by y bits, zeros coming in (integers)")


@public
def power(x, y, dtype=None) -> NkiTensor:
    """x to the power of y, element by element, on gpsimd; x and y are SBUF tiles of one shape."""
    if not (isinstance(x, NkiTensor) and isinstance(y, NkiTensor)):
        name = "y" if isinstance(x, NkiTensor) else "x"
        raise fail(
            "E0103",
            f"{name} is not a tile; power takes two",
            argument=name,
            fix="make a tile of the number with nl.full",
        )
    return combine("power", x, y, dtype)


op_names(power, alu="power")


# One operand ----------------------------------------------------------------------------------------------------------


def activate(name: str, x: NkiTensor, dtype: object = None) -> NkiTensor:
    """The activation function `name` of a tile, as a new tile."""
    tile = new(tensor_argument("x", x).shape, dtype or x.dtype)
    nisa.activation(dst=tile, op=name, data=x)
    return tile


def scalar_op(
    x: NkiTensor,
    dtype: object,
    op0: str,
    operand0: Operand | None,
    op1: str | None = None,
    operand1: Operand | None = None,
) -> NkiTensor:
    """(x op0 operand0) op1 operand1 as a new tile."""
    tile = new(x.shape, dtype)
    nisa.tensor_scalar(dst=tile, data=x, op0=op0, operand0=operand0, op1=op1, operand1=operand1)
    return tile


def _activation(name: str, doc: str) -> Callable[..., NkiTensor]:
    def fn(x, dtype=None) -> NkiTensor:
        return activate(name, x, dtype)

    low, high = ACT[name].domain
    valid = "" if math.isinf(low) and math.isinf(high) else f" Valid for x in [{low:g}, {high:g}]."
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"{doc}, element by element, on the scalar engine, as a new SBUF tile.{valid}"
    return op_names(public(fn), alu=name if name in ALU else None, act=name)


exp = _activation("exp", "e to the power of x")
log = _activation("log", "Natural logarithm of x")
sqrt = _activation("sqrt", "Square root of x")
square = _activation("square", "x * x")
sign = _activation("sign", "-1, 0 or 1 with the sign of x")
tanh = _activation("tanh", "Hyperbolic tangent of x")
sigmoid = _activation("sigmoid", "1 / (1 + exp(-x))")
relu = _activation("relu", "The larger of x and 0")
gelu = _activation("gelu", "x times the normal distribution function at x")
gelu_dx = _activation("gelu_dx", "Derivative of gelu at x")
gelu_apprx_tanh = _activation("gelu_apprx_tanh", "gelu(x) by its tanh approximation")
gelu_apprx_sigmoid = _activation("gelu_apprx_sigmoid", "gelu(x) by its sigmoid approximation")
gelu_apprx_sigmoid_dx = _activation("gelu_apprx_sigmoid_dx", "Derivative of gelu_apprx_sigmoid at x")
silu = _activation("silu", "x * sigmoid(x)")
silu_dx = _activation("silu_dx", "Derivative of silu at x")
softplus = _activation("softplus", "log(1 + exp(x))")
mish = _activation("mish", "x * tanh(softplus(x))")
erf = _activation("erf", "Error function of x")
erf_dx = _activation("erf_dx", "Derivative of the error function at x")


@public
def abs(x, dtype=None) -> NkiTensor:
    """Magnitude of x, on the vector engine, as a new SBUF tile."""
    return scalar_op(tensor_argument("x", x), dtype or x.dtype, "abs", None)


@public
def rsqrt(x, dtype=None) -> NkiTensor:
    """1 / sqrt(x), on gpsimd, as a new SBUF tile; x is in SBUF."""
    return scalar_op(tensor_argument("x", x), dtype or x.dtype, "rsqrt", None)


@public
def reciprocal(x, dtype=None) -> NkiTensor:
    """1 / x, on the vector engine, as a new SBUF tile."""
    tile = new(tensor_argument("x", x).shape, dtype or x.dtype)
    nisa.reciprocal(dst=tile, data=x)
    return tile


@public
def negative(x, dtype=None) -> NkiTensor:
    """-x as a new SBUF tile."""
    return scalar_op(tensor_argument("x", x), dtype or x.dtype, "multiply", -1.0)


@public
def invert(x, dtype=None) -> NkiTensor:
    """All bits of x (integers) turned over, as a new SBUF tile."""
    return scalar_op(tensor_argument("x", x), dtype or x.dtype, "invert", None)


@public
def logical_not(x, dtype=None) -> NkiTensor:
    """1 where x is 0, and 0 where it is 1 (exclusive or with 1), as a new SBUF tile."""
    return scalar_op(tensor_argument("x", x), dtype or x.dtype, "logical_xor", 1.0)


op_names(abs, alu="abs", act="abs")
op_names(rsqrt, alu="rsqrt", act="rsqrt")
op_names(reciprocal, alu="reciprocal", act="reciprocal")
op_names(negative)
op_names(invert, alu="invert")
op_names(logical_not)
op_names(copy_tile, act="copy")


# Rounding and trigonometry: compositions ------------------------------------------------------------------------------


_ALL_INTEGERS_FROM = 2.0**23
"""From here on every float32 is an integer."""


def _rounded(x: NkiTensor, adjust: str, side: float) -> NkiTensor:
    """x rounded to nearest, moved by `side` where that went to the wrong side (`adjust` compares it with x).

    Float to integer rounds to nearest even; beyond 2^23, where float32 has no fractions (and for NaN), x is taken.
    """
    whole = copy_tile(x, dtype=dt.int32)
    near = copy_tile(whole, dtype=dt.float32)
    wide = x if x.dtype is dt.float32 else copy_tile(x, dtype=dt.float32)
    wrong = combine(adjust, near, wide)
    moved = new(x.shape, dt.float32)
    nisa.scalar_tensor_tensor(dst=moved, data=wrong, op0="multiply", operand0=side, op1="add", operand1=near)
    result = copy_tile(wide)
    size = scalar_op(wide, dt.float32, "abs", None)
    small = scalar_op(size, dt.uint8, "less", _ALL_INTEGERS_FROM)
    nisa.tensor_copy_predicated(dst=result, src=moved, predicate=small)
    return result


def cast_to(x: NkiTensor, dtype: object) -> NkiTensor:
    to = as_dtype(dtype)
    return x if x.dtype is to else copy_tile(x, dtype=to)


@public
def floor(x, dtype=None) -> NkiTensor:
    """The largest integer that is at most x, as a new SBUF tile."""
    return cast_to(_rounded(tensor_argument("x", x), "greater", -1.0), dtype or x.dtype)


@public
def ceil(x, dtype=None) -> NkiTensor:
    """The smallest integer that is at least x, as a new SBUF tile."""
    return cast_to(_rounded(tensor_argument("x", x), "less", 1.0), dtype or x.dtype)


@public
def trunc(x, dtype=None) -> NkiTensor:
    """x without its fraction, as a new SBUF tile."""
    size = scalar_op(tensor_argument("x", x), dt.float32, "abs", None)
    return combine("multiply", _rounded(size, "greater", -1.0), activate("sign", x, dt.float32), dtype or x.dtype)


# 2 pi in three float32 pieces, the first two with few enough digits that their products with a small integer are exact.
_TURN_1 = 6.28125
_TURN_2 = float(np.float32(2 * math.pi - _TURN_1) - np.float32(2 * math.pi - _TURN_1) % np.float32(2.0**-21))
_TURN_3 = 2 * math.pi - _TURN_1 - _TURN_2


def _sine(x: NkiTensor, shift: float) -> NkiTensor:
    """sin(x + shift): whole turns are taken off first, since the engine's function is valid in [-pi, pi] only."""
    turns = new(x.shape, dt.int32)
    nisa.tensor_scalar(
        dst=turns, data=x, op0="multiply", operand0=1 / (2 * math.pi), op1="add", operand1=shift / (2 * math.pi)
    )
    angle = x
    for piece in (_TURN_1, _TURN_2, _TURN_3):
        reduced = new(x.shape, dt.float32)
        nisa.scalar_tensor_tensor(dst=reduced, data=turns, op0="multiply", operand0=-piece, op1="add", operand1=angle)
        angle = reduced
    if shift:
        angle = scalar_op(angle, dt.float32, "add", shift)
    limit = float(np.nextafter(np.float32(math.pi), np.float32(0)))
    return activate("sin", scalar_op(angle, dt.float32, "minimum", limit, "maximum", -limit))


@public
def sin(x, dtype=None) -> NkiTensor:
    """Sine of x as a new SBUF tile. Any x: whole turns are taken off before the scalar engine's function is used."""
    return cast_to(_sine(tensor_argument("x", x), 0.0), dtype or x.dtype)


@public
def cos(x, dtype=None) -> NkiTensor:
    """Cosine of x, any x, as a new SBUF tile."""
    return cast_to(_sine(tensor_argument("x", x), math.pi / 2), dtype or x.dtype)


@public
def tan(x, dtype=None) -> NkiTensor:
    """Tangent of x, any x, as a new SBUF tile: sine times the reciprocal of the cosine."""
    cosine = _sine(tensor_argument("x", x), math.pi / 2)
    return combine("multiply", _sine(x, 0.0), reciprocal(cosine), dtype or x.dtype)


@public
def arctan(x, dtype=None) -> NkiTensor:
    """Arc tangent of x, any x, as a new SBUF tile: beyond 1 by way of 1/x, into the domain of the engine's function."""
    size = scalar_op(tensor_argument("x", x), dt.float32, "abs", None)
    small = scalar_op(size, dt.float32, "minimum", 1.0)
    angle = activate("arctan", small)
    inverse = scalar_op(reciprocal(scalar_op(size, dt.float32, "maximum", 1.0)), dt.float32, "minimum", 1.0)
    far = scalar_op(activate("arctan", inverse), dt.float32, "multiply", -1.0, "add", math.pi / 2)
    nisa.tensor_copy_predicated(dst=angle, src=far, predicate=scalar_op(size, dt.uint8, "greater", 1.0))
    return combine("multiply", angle, activate("sign", x, dt.float32), dtype or x.dtype)


for _composed in (floor, ceil, trunc, cos, tan):
    op_names(_composed)
op_names(sin, act="sin")
op_names(arctan, act="arctan")


@public
def where(condition, x, y, dtype=None) -> NkiTensor:
    """x where the tile `condition` is not 0, else y, as a new SBUF tile; x and y are tiles of its shape or numbers."""
    tensor_argument("condition", condition)
    tiles = [v for v in (x, y) if isinstance(v, NkiTensor)]
    to = dtype or (promote(tiles[0].dtype, tiles[-1].dtype) if tiles else dt.float32)
    result = new(condition.shape, to)
    if isinstance(y, NkiTensor):
        nisa.tensor_copy(dst=result, src=y)
    else:
        nisa.memset(dst=result, value=float(y) if result.dtype.is_float else y)
    flags = scalar_op(condition, dt.uint8, "not_equal", 0.0)
    chosen = cast_to(x, result.dtype) if isinstance(x, NkiTensor) else x
    nisa.tensor_copy_predicated(dst=result, src=chosen, predicate=flags)
    return result
