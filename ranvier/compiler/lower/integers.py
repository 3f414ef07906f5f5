"""Integer arithmetic that float32 does not hold: on gpsimd, whose 32-bit arithmetic is exact and wraps around.

`step` takes over a node where the vector engine's float32 would be wrong: operands or results beyond 2^24, results that
wrap around in a narrow dtype, shifts of negative numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ranvier import dtypes as dt
from ranvier.compiler.lower import functions
from ranvier.compiler.lower.ranges import EXACT, largest_of
from ranvier.compiler.lower.step import Operand, Step
from ranvier.dtypes import DType
from ranvier.graph.core import Node, Value
from ranvier.graph.elementwise import Binary, Clamp, Compare, Unary
from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor

if TYPE_CHECKING:
    from ranvier.compiler.lower.select_instructions import TileEmitter

_ALU = {
    "add": "add", "sub": "subtract", "mul": "multiply", "maximum": "maximum", "minimum": "minimum", "pow": "power",
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip


def step(e: TileEmitter, node: Node) -> Operand | Step | None:
    """The result of an element-wise `node` on integers, or None where float32 arithmetic is exact."""
    op, values = node.op, node.inputs
    match op:
        case Unary():
            return _unary(e, op.kind, values[0])
        case Binary():
            return _binary(e, op.kind, *values)
        case Compare():
            return _compare(e, op.kind, *values)
        case Clamp():
            return _clamp(e, op, values[0])
    return None


def word(dtype: DType) -> DType:
    """The 32-bit dtype in which values of `dtype` are computed."""
    return dt.uint32 if dtype is dt.uint32 else dt.int32


def _words(e: TileEmitter, value: Value) -> NkiTensor:
    """The value as a full 32-bit tile in SBUF."""
    return e.in_sbuf_as(e.as_tile(e.tile(value), value.dtype), word(value.dtype))


def _full(e: TileEmitter, number: int, dtype: DType) -> NkiTensor:
    tile = e.temp(dtype)
    nisa.memset(dst=tile, value=number)
    return tile


def apply(e: TileEmitter, op: str, x: NkiTensor, y: NkiTensor) -> NkiTensor:
    """x op y in 32-bit arithmetic."""
    result = e.temp(x.dtype)
    nisa.tensor_tensor(dst=result, data1=x, data2=y, op=op)
    return result


def bits(e: TileEmitter, x: NkiTensor, *operations: tuple[str, int]) -> NkiTensor:
    """One or two bitwise operations with numbers."""
    result = e.temp(x.dtype)
    (op0, operand0), (op1, operand1) = operations[0], operations[1] if len(operations) == 2 else (None, None)
    nisa.tensor_scalar(dst=result, data=x, op0=op0, operand0=operand0, op1=op1, operand1=operand1)
    return result


def narrowed(e: TileEmitter, x: NkiTensor, dtype: DType) -> Operand | Step:
    """A 32-bit result in the dtype of its value: the low bits, as integers wrap around."""
    if dtype.itemsize == 4:
        return x
    low = (1 << (8 * dtype.itemsize)) - 1
    if dtype.kind == "uint":
        return Step("tensor", bits(e, x, ("bitwise_and", low)), (("bypass", x, False),))
    sign = (low + 1) // 2
    return Step("scalar", bits(e, x, ("bitwise_and", low), ("bitwise_xor", sign)), (("subtract", sign, False),))


def _fits(e: TileEmitter, dtype: DType, bound: float, *values: Value) -> bool:
    """Whether float32 holds `values` and a result of size `bound`, which does not wrap around."""
    limit = min(EXACT, largest_of(dtype) - (dtype.kind == "int"))
    return bound <= limit and all(e.ctx.magnitude(v) <= EXACT for v in values)


def _unary(e: TileEmitter, kind: str, value: Value) -> Operand | Step | None:
    if kind == "bitwise_not":
        return Step("scalar", e.in_sbuf(e.as_tile(e.tile(value), value.dtype)), (("bitwise_xor", -1, False),))
    size = e.ctx.magnitude(value)
    if kind == "sign" or _fits(e, value.dtype, size * size if kind == "square" else size, value):
        return None
    if value.dtype.kind == "uint" and kind in ("abs", "relu"):
        return Step("tensor", e.tile(value), (("bypass", 0, False),))
    x = _words(e, value)
    zero = _full(e, 0, x.dtype)
    if kind == "square":
        result = apply(e, "multiply", x, x)
    elif kind == "relu":
        result = apply(e, "maximum", x, zero)
    else:
        negative = apply(e, "subtract", zero, x)
        result = negative if kind == "neg" else apply(e, "maximum", x, negative)
    return narrowed(e, result, value.dtype)


def _binary(e: TileEmitter, kind: str, left: Value, right: Value) -> Operand | Step | None:
    if kind == "right_shift" and left.dtype.kind == "int":
        return _shift_right(e, left, right)
    sizes = [e.ctx.magnitude(v) for v in (left, right)]
    if kind in functions.REMAINDERS:
        return _divide(e, kind, left, right, max(sizes) < EXACT)
    if kind == "pow":
        return narrowed(e, _power(e, left, right), left.dtype)
    if kind not in _ALU:
        return None
    bound = sizes[0] * sizes[1] if kind == "mul" else sum(sizes) if kind in ("add", "sub") else max(sizes)
    if left.dtype.kind == "uint" and kind == "sub":
        bound = math.inf  # below zero
    if (kind in ("maximum", "minimum") and max(sizes) <= EXACT) or _fits(e, left.dtype, bound, left, right):
        return None
    return narrowed(e, apply(e, _ALU[kind], _words(e, left), _words(e, right)), left.dtype)


def _compare(e: TileEmitter, kind: str, left: Value, right: Value) -> Step | None:
    """Rounding to float32 keeps order and does not reach a number below 2^24: comparing with one is exact."""
    numbers = [n for v in (left, right) if (n := e.ctx.number(v)) is not None]
    if any(abs(n) < EXACT for n in numbers) or max(e.ctx.magnitude(v) for v in (left, right)) <= EXACT:
        return None
    return Step("tensor", apply(e, _ALU[kind], _words(e, left), _words(e, right)), (("bypass", 0, False),))


def _clamp(e: TileEmitter, op: Clamp, value: Value) -> Operand | Step:
    info = (-largest_of(value.dtype), largest_of(value.dtype))
    low = None if op.min is None or op.min <= info[0] else math.ceil(min(op.min, info[1]))
    high = None if op.max is None or op.max >= info[1] else math.floor(max(op.max, info[0]))
    bounds = [(name, number) for name, number in (("maximum", low), ("minimum", high)) if number is not None]
    if value.dtype.kind == "uint":
        bounds = [(name, max(number, 0)) for name, number in bounds]
    if not bounds:
        return e.tile(value)
    small = all(abs(number) < EXACT for _, number in bounds)
    if small and (len(bounds) == 2 or e.ctx.magnitude(value) <= EXACT):
        return e.scalars(value, bounds)
    x = _words(e, value)
    for name, number in bounds:
        x = apply(e, name, x, _full(e, number, x.dtype))
    return narrowed(e, x, value.dtype)


def _shift_right(e: TileEmitter, left: Value, right: Value) -> Step:
    """The core's shift brings in zeros. Negative numbers are inverted before and after."""
    x = e.in_sbuf(e.as_tile(e.tile(left), left.dtype))
    sign, mask = bits(e, x, ("right_shift", 8 * left.dtype.itemsize - 1)), e.temp(left.dtype)
    nisa.tensor_scalar(dst=mask, data=sign, op0="multiply", operand0=-1.0)
    positive = apply(e, "bitwise_xor", x, mask)
    count = e.ctx.number(right)
    if count is not None:
        shifted = bits(e, positive, ("right_shift", int(count)))
    else:
        shifted = apply(e, "right_shift", positive, e.as_tile(e.tile(right), right.dtype))
    return Step("tensor", shifted, (("bitwise_xor", mask, False),))


def _power(e: TileEmitter, left: Value, right: Value) -> NkiTensor:
    exponent = e.ctx.number(right)
    if exponent is None or not 1 <= exponent <= 8:
        return apply(e, "power", _words(e, left), _words(e, right))
    base = result = _words(e, left)
    for _ in range(int(exponent) - 1):
        result = apply(e, "multiply", result, base)
    return result


def _divide(e: TileEmitter, kind: str, left: Value, right: Value, small: bool) -> Operand | Step:
    if small:
        x, y = (e.in_sbuf_as(e.as_tile(e.tile(v), v.dtype), dt.float32) for v in (left, right))
        return Step("tensor", functions.REMAINDERS[kind](e, x, y, True), (("bypass", 0, False),))
    return narrowed(e, _divide_words(e, kind, _words(e, left), _words(e, right)), left.dtype)


def _divide_words(e: TileEmitter, kind: str, x: NkiTensor, y: NkiTensor) -> NkiTensor:
    """Quotient or remainder of 32-bit integers: an estimate in float32, its remainder exact, and that divided again.

    After the second estimate the quotient is off by one at most.
    """
    inverse, quotient, rest = functions.reciprocal(e, y), None, x
    for _ in range(2):
        estimate, part = e.temp(), e.temp(x.dtype)
        nisa.tensor_tensor(dst=estimate, data1=rest, data2=inverse, op="multiply")
        nisa.tensor_copy(dst=part, src=estimate)
        quotient = part if quotient is None else apply(e, "add", quotient, part)
        rest = apply(e, "subtract", x, apply(e, "multiply", quotient, y))
    assert quotient is not None
    # The remainder has the sign of y (floor_div, mod) or of x (fmod), or is 0.
    zero = _full(e, 0, x.dtype)
    like = _negative(e, x if kind == "fmod" else y, zero)
    other_sign = apply(e, "not_equal", _negative(e, rest, zero), like)
    wrong = apply(e, "multiply", other_sign, apply(e, "not_equal", rest, zero))
    same = apply(e, "equal", _negative(e, y, zero), like)
    # y is added where it has the wanted sign, else subtracted
    direction = apply(e, "subtract", apply(e, "add", same, same), _full(e, 1, x.dtype))
    change = apply(e, "multiply", wrong, direction)
    if kind == "floor_div":
        return apply(e, "subtract", quotient, change)
    return apply(e, "add", rest, apply(e, "multiply", change, y))


def _negative(e: TileEmitter, x: NkiTensor, zero: NkiTensor) -> NkiTensor:
    """1 where x is below 0, else 0."""
    return apply(e, "less", x, zero)
