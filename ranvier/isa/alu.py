"""ALU operations as a table: one row is all there is to an operation. Semantics on float32 (or raw integer) arrays.

Source of names, classes and engines: NKI documentation, "supported math operators" (nki.api.shared).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ranvier.errors import error


@dataclass(frozen=True, slots=True, eq=False)
class AluOp:
    """One ALU operation.

    `kind`: "arithmetic", "compare", "logical" (float32; results 1.0 or 0.0) or "bitwise" (raw integers, bits untouched).
    `identity` is the start value of a reduction, None where reducing with it is not legal. `engines` names the engines
    that have it, `feature` the target feature it needs. `unary` operations ignore their second operand. `reducer` is
    numpy's function that reduces with the operation, where that is not `fn`.
    """

    name: str
    fn: Callable[..., np.ndarray]
    kind: str = "arithmetic"
    identity: float | int | None = None
    engines: tuple[str, ...] = ("vector",)
    unary: bool = False
    feature: str | None = None
    reducer: np.ufunc | None = None

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self):
        return (alu, (self.name,))

    def __call__(self, a: Any, b: Any = None) -> np.ndarray:
        """The operation on arrays (or an array and a number), without numpy's warnings: NaN and infinity are results."""
        with np.errstate(all="ignore"):
            return self.fn(a, b)

    def apply(self, data: np.ndarray, operand: Any, reverse: bool = False) -> np.ndarray:
        """`data op operand`, or `operand op data` with `reverse`; numbers of bitwise operations become data's dtype."""
        if self.unary:
            return self(data)
        if self.is_bitwise:
            operand = bits(operand, data.dtype)
        return self(operand, data) if reverse else self(data, operand)

    @property
    def is_bitwise(self) -> bool:
        return self.kind == "bitwise"

    @property
    def reduces(self) -> bool:
        """Whether a reduction may use it."""
        return self.identity is not None

    def reduce(self, values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        """Reduce over `axes`, keeping them with size 1. `subtract` (one axis only) takes all others from the first."""
        with np.errstate(all="ignore"):
            return self._ufunc.reduce(values, axis=axes, keepdims=True)

    def accumulate(self, values: np.ndarray, axis: int) -> np.ndarray:
        """All partial results of the reduction in order, each as `op(element, result so far)`."""
        if self.name == "subtract":  # not associative: every other element changes its sign with each later step
            signs = np.where(np.arange(values.shape[axis]) % 2, -1.0, 1.0).astype(values.dtype)
            signs = np.expand_dims(signs, tuple(range(1, values.ndim - axis)))
            return np.add.accumulate(values * signs, axis=axis) * signs
        with np.errstate(all="ignore"):
            return self._ufunc.accumulate(values, axis=axis)

    @property
    def _ufunc(self) -> np.ufunc:
        ufunc = self.reducer if self.reducer is not None else self.fn
        if not isinstance(ufunc, np.ufunc) or not self.reduces:
            raise error("E0902", f"{self.name} has no reduction")
        return ufunc


def _flag(fn: Callable) -> Callable:
    return lambda a, b: fn(a, b).astype(np.float32)


def _logical(fn: Callable) -> Callable:
    return lambda a, b: fn(np.not_equal(a, 0), np.not_equal(b, 0)).astype(np.float32)


def _signed_extreme(pick: Callable) -> Callable:
    return lambda a, b: np.where(pick(np.abs(a), np.abs(b)), a, b)


def _shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.left_shift(a, np.asarray(b).astype(a.dtype))


def _shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Logical shift: zeros come in from the left for signed types as well."""
    unsigned = a.view(a.dtype.str.replace("i", "u"))
    return np.right_shift(unsigned, np.asarray(b).astype(unsigned.dtype)).view(a.dtype)


def bits(operand: Any, to: np.dtype) -> np.ndarray:
    """An integer operand of a bitwise operation as bits of dtype `to`: wider ones are cut, signed ones extended."""
    if isinstance(operand, np.ndarray):
        return operand if operand.dtype == to else operand.astype(to)
    mask = (1 << (8 * to.itemsize)) - 1
    return np.array(int(operand) & mask, np.dtype(f"u{to.itemsize}")).view(to)


_VECTOR_POOL_ACT = ("vector", "gpsimd", "scalar")

ALU: dict[str, AluOp] = {
    op.name: op
    for op in (
        AluOp("add", np.add, identity=0.0, engines=_VECTOR_POOL_ACT),
        AluOp("multiply", np.multiply, identity=1.0, engines=_VECTOR_POOL_ACT),
        AluOp("subtract", np.subtract, identity=0.0),
        AluOp("maximum", np.maximum, identity=-np.inf),
        AluOp("minimum", np.minimum, identity=np.inf),
        AluOp("equal", _flag(np.equal), "compare"),
        AluOp("not_equal", _flag(np.not_equal), "compare"),
        AluOp("greater", _flag(np.greater), "compare"),
        AluOp("greater_equal", _flag(np.greater_equal), "compare"),
        AluOp("less", _flag(np.less), "compare"),
        AluOp("less_equal", _flag(np.less_equal), "compare"),
        AluOp("logical_and", _logical(np.logical_and), "logical", 1, reducer=np.logical_and),
        AluOp("logical_or", _logical(np.logical_or), "logical", 0, reducer=np.logical_or),
        AluOp("logical_xor", _logical(np.logical_xor), "logical", 0, reducer=np.logical_xor),
        AluOp("bitwise_and", np.bitwise_and, "bitwise", -1),
        AluOp("bitwise_or", np.bitwise_or, "bitwise", 0),
        AluOp("bitwise_xor", np.bitwise_xor, "bitwise", 0),
        AluOp("invert", lambda a, b=None: np.invert(a), "bitwise", unary=True),
        AluOp("left_shift", _shift_left, "bitwise"),
        AluOp("right_shift", _shift_right, "bitwise"),
        AluOp("power", np.power, engines=("gpsimd",)),
        AluOp("abs_max", _signed_extreme(np.greater), engines=("vector", "scalar"), feature="abs_max"),
        AluOp("abs_min", _signed_extreme(np.less), engines=("vector", "scalar"), feature="abs_max"),
        AluOp("abs", lambda a, b=None: np.abs(a), unary=True, engines=("vector", "scalar")),
        AluOp("reciprocal", lambda a, b=None: np.reciprocal(a), unary=True, engines=("vector", "scalar")),
        AluOp("rsqrt", lambda a, b=None: np.reciprocal(np.sqrt(a)), unary=True, engines=("gpsimd", "scalar")),
        AluOp("square", lambda a, b=None: np.square(a), unary=True, feature="unary_tensor_scalar"),
        AluOp("relu", lambda a, b=None: np.maximum(a, 0), unary=True, feature="unary_tensor_scalar"),
        AluOp("bypass", lambda a, b=None: a, unary=True, engines=_VECTOR_POOL_ACT),
    )
}


def alu(what: object) -> AluOp:
    """The row for an `AluOp`, a name, a numpy ufunc such as `np.add`, or a language function such as `nl.add`.

    Raises E0309 when there is none.
    """
    if isinstance(what, AluOp):
        return what
    name = what if isinstance(what, str) else getattr(what, "alu_name", None) or getattr(what, "__name__", None)
    if name in ALU:
        return ALU[name]
    raise error("E0309", f"{getattr(what, '__name__', repr(what))} is not an ALU operation; known are {', '.join(ALU)}")
