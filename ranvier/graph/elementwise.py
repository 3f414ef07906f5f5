"""Elementwise operations: four families that are tables, and select, cast and clamp.

Operands broadcast by numpy's rules and agree in dtype; nothing is promoted (front ends insert casts).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ranvier import dtypes
from ranvier.dtypes import DType
from ranvier.graph.core import Op, TensorType
from ranvier.graph.shapes import broadcast_shapes, check_same_dtype
from ranvier.graph.special import integer_power
from ranvier.isa.act import erf, sigmoid

FLOAT = frozenset({"float"})
NUMBER = frozenset({"float", "int", "uint"})
SIGNED = frozenset({"float", "int"})
INTEGER = frozenset({"int", "uint"})
BOOL = frozenset({"bool"})
BITS = INTEGER | BOOL
ANY = NUMBER | BOOL


@dataclass(frozen=True, slots=True)
class Kind:
    """A member of a family. `domain` holds the `DType.kind`s that its operands may have."""

    name: str
    function: Callable[..., Any]
    domain: frozenset[str]
    to_bool: bool = False


def _table(*kinds: Kind) -> dict[str, Kind]:
    return {kind.name: kind for kind in kinds}


UNARY = _table(
    Kind("neg", np.negative, SIGNED),
    Kind("abs", np.abs, NUMBER),
    Kind("exp", np.exp, FLOAT),
    Kind("log", np.log, FLOAT),
    Kind("log1p", np.log1p, FLOAT),
    Kind("expm1", np.expm1, FLOAT),
    Kind("sqrt", np.sqrt, FLOAT),
    Kind("rsqrt", lambda x: 1 / np.sqrt(x), FLOAT),
    Kind("reciprocal", lambda x: 1 / x, FLOAT),
    Kind("square", np.square, NUMBER),
    Kind("tanh", np.tanh, FLOAT),
    Kind("sigmoid", sigmoid, FLOAT),
    Kind("erf", erf, FLOAT),
    Kind("sin", np.sin, FLOAT),
    Kind("cos", np.cos, FLOAT),
    Kind("relu", lambda x: np.maximum(x, x.dtype.type(0)), NUMBER),
    Kind("sign", np.sign, NUMBER),
    Kind("floor", np.floor, FLOAT),
    Kind("ceil", np.ceil, FLOAT),
    Kind("round", np.rint, FLOAT),  # halves to even
    Kind("trunc", np.trunc, FLOAT),
    Kind("logical_not", np.logical_not, BOOL),
    Kind("bitwise_not", np.invert, BITS),
    Kind("isnan", np.isnan, FLOAT, to_bool=True),
    Kind("isinf", np.isinf, FLOAT, to_bool=True),
)

BINARY = _table(
    Kind("add", np.add, NUMBER),
    Kind("sub", np.subtract, NUMBER),
    Kind("mul", np.multiply, NUMBER),
    Kind("div", np.divide, FLOAT),
    Kind("pow", integer_power, NUMBER),
    Kind("maximum", np.maximum, ANY),
    Kind("minimum", np.minimum, ANY),
    Kind("mod", np.mod, NUMBER),  # the sign of the divisor, as Python's %
    Kind("fmod", np.fmod, NUMBER),  # the sign of the dividend, as C's fmod
    Kind("floor_div", np.floor_divide, NUMBER),
    Kind("atan2", np.arctan2, FLOAT),
    Kind("logical_and", np.logical_and, BOOL),
    Kind("logical_or", np.logical_or, BOOL),
    Kind("logical_xor", np.logical_xor, BOOL),
    Kind("bitwise_and", np.bitwise_and, BITS),
    Kind("bitwise_or", np.bitwise_or, BITS),
    Kind("bitwise_xor", np.bitwise_xor, BITS),
    Kind("left_shift", np.left_shift, INTEGER),
    Kind("right_shift", np.right_shift, INTEGER),
)

COMPARE = _table(
    Kind("eq", np.equal, ANY, to_bool=True),
    Kind("ne", np.not_equal, ANY, to_bool=True),
    Kind("lt", np.less, ANY, to_bool=True),
    Kind("le", np.less_equal, ANY, to_bool=True),
    Kind("gt", np.greater, ANY, to_bool=True),
    Kind("ge", np.greater_equal, ANY, to_bool=True),
)


class _Family(Op):
    """An operation whose member is chosen by `kind`, a row of `table`."""

    __slots__ = ()
    table: ClassVar[dict[str, Kind]]
    is_elementwise = True
    mnemonic_form = "{kind}"

    kind: str

    @property
    def row(self) -> Kind:
        """The member's row of the table."""
        return self.table[self.kind]

    def __post_init__(self) -> None:
        self.check_kind()

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        check_same_dtype(self, *types)
        row = self.row
        if types[0].dtype.kind not in row.domain:
            raise self.reject(f"takes {' or '.join(sorted(row.domain))}", *types)
        result = dtypes.bool_ if row.to_bool else types[0].dtype
        return (TensorType(broadcast_shapes(self, *types), result),)

    def evaluate(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        return (self.row.function(*arrays),)


@dataclass(frozen=True, slots=True)
class Unary(_Family):
    """`kind(x)`, elementwise; kinds are the rows of `UNARY`. round goes to even; sqrt, log of negatives give NaN."""

    kind: str
    table, kinds = UNARY, tuple(UNARY)


@dataclass(frozen=True, slots=True)
class Binary(_Family):
    """`x kind y`, elementwise; kinds are the rows of `BINARY`. Integers wrap; maximum and minimum pass NaN on."""

    kind: str
    table, kinds = BINARY, tuple(BINARY)
    arity = (2, 2)


@dataclass(frozen=True, slots=True)
class Compare(_Family):
    """`x kind y` as bool, elementwise; kinds are the rows of `COMPARE`."""

    kind: str
    table, kinds = COMPARE, tuple(COMPARE)
    arity = (2, 2)


@dataclass(frozen=True, slots=True)
class Select(Op):
    """`x` where `condition` (bool) holds, else `y`. Operands: condition, x, y; all broadcast."""

    arity = (3, 3)
    is_elementwise = True

    def infer(self, condition: TensorType, x: TensorType, y: TensorType) -> tuple[TensorType, ...]:
        if condition.dtype is not dtypes.bool_:
            raise self.reject("the condition must be bool", condition, x, y)
        check_same_dtype(self, x, y)
        return (TensorType(broadcast_shapes(self, condition, x, y), x.dtype),)

    def evaluate(self, condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.where(condition, x, y),)


@dataclass(frozen=True, slots=True)
class Cast(Op):
    """`x` in `dtype`, by the rules of `ranvier.dtypes.cast`: round to nearest even, integers saturate, NaN becomes 0.

    Float to integer rounds; front ends whose language truncates put `Unary("trunc")` before.
    """

    dtype: DType
    is_elementwise = True

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (x.with_dtype(self.dtype),)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        # Storing the result rounds floats; in float64 evaluation it does not, and nothing may be lost here.
        return (x if self.dtype.is_float else dtypes.cast(x, self.dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Clamp(Op):
    """`x` limited to `min` .. `max`, either of which may be None. NaN stays NaN."""

    min: float | None
    max: float | None
    is_elementwise = True

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype.kind == "bool":
            raise self.reject("takes numbers", x)
        return (x,)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        if x.dtype.kind in "iu":  # through Python numbers: bounds may lie outside the dtype
            info = np.iinfo(x.dtype)
            low = info.min if self.min is None else max(info.min, min(info.max, _whole(self.min, np.ceil)))
            high = info.max if self.max is None else max(info.min, min(info.max, _whole(self.max, np.floor)))
            return (np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high)),)
        result = x if self.min is None else np.maximum(x, x.dtype.type(self.min))
        return (result if self.max is None else np.minimum(result, x.dtype.type(self.max)),)


def _whole(bound: float, toward: Callable[[float], Any]) -> int:
    if isinstance(bound, int):
        return bound
    return int(toward(bound)) if np.isfinite(bound) else (2**64 if bound > 0 else -(2**64))


OPS = (Unary, Binary, Compare, Select, Cast, Clamp)
