"""Operations that combine the elements along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ranvier import dtypes
from ranvier.dtypes import DType
from ranvier.graph.core import Op, TensorType
from ranvier.graph.elementwise import BOOL, FLOAT, NUMBER
from ranvier.graph.shapes import check_axes, check_axis


@dataclass(frozen=True, slots=True)
class ReduceKind:
    """A row of `REDUCE`. `identity` is the result over no elements; None where there is none."""

    function: Callable[..., Any]
    domain: frozenset[str]
    identity: float | None


# Integers stay in their dtype (and wrap around), where numpy would widen them.
REDUCE = {
    "sum": ReduceKind(lambda x, axis: np.sum(x, axis, dtype=x.dtype, keepdims=True), NUMBER, 0),
    "prod": ReduceKind(lambda x, axis: np.prod(x, axis, dtype=x.dtype, keepdims=True), NUMBER, 1),
    "mean": ReduceKind(lambda x, axis: np.mean(x, axis, keepdims=True), FLOAT, None),
    "max": ReduceKind(lambda x, axis: np.max(x, axis, keepdims=True), NUMBER, None),
    "min": ReduceKind(lambda x, axis: np.min(x, axis, keepdims=True), NUMBER, None),
    "any": ReduceKind(lambda x, axis: np.any(x, axis, keepdims=True), BOOL, 0),
    "all": ReduceKind(lambda x, axis: np.all(x, axis, keepdims=True), BOOL, 1),
}


def reduced_shape(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """`shape` with `axes` of extent 1, or without them."""
    kept = [1 if axis in axes else n for axis, n in enumerate(shape)]
    return tuple(n for axis, n in enumerate(kept) if keepdims or axis not in axes)


@dataclass(frozen=True, slots=True)
class Reduce(Op):
    """`kind` of the elements along `axes` (ascending); kinds are the rows of `REDUCE`. max and min pass NaN on."""

    kind: str
    axes: tuple[int, ...]
    keepdims: bool
    kinds = tuple(REDUCE)
    mnemonic_form = "reduce_{kind}"

    def __post_init__(self) -> None:
        self.check_kind()

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        check_axes(self, self.axes, x.rank, x)
        row = REDUCE[self.kind]
        if x.dtype.kind not in row.domain:
            raise self.reject(f"takes {' or '.join(sorted(row.domain))}", x)
        if row.identity is None and any(x.shape[a] == 0 for a in self.axes):
            raise self.reject("has no result over no elements", x)
        return (x.with_shape(reduced_shape(x.shape, self.axes, self.keepdims)),)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        result = REDUCE[self.kind].function(x, self.axes)
        return (result.reshape(reduced_shape(x.shape, self.axes, self.keepdims)),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].elements


@dataclass(frozen=True, slots=True)
class ArgReduce(Op):
    """Index along `axis` of the first largest ("argmax") or smallest ("argmin") element; NaN counts as the extreme."""

    kind: str
    axis: int
    keepdims: bool
    dtype: DType = dtypes.int64
    kinds = ("argmax", "argmin")
    mnemonic_form = "{kind}"

    def __post_init__(self) -> None:
        self.check_kind()

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        check_axis(self, self.axis, x.rank, x)
        if x.dtype.kind == "bool" or x.shape[self.axis] == 0 or not self.dtype.is_integer:
            raise self.reject("takes numbers, at least one of them, and gives integers", x)
        return (TensorType(reduced_shape(x.shape, (self.axis,), self.keepdims), self.dtype),)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        function = np.argmax if self.kind == "argmax" else np.argmin
        return (np.asarray(function(x, axis=self.axis, keepdims=self.keepdims)),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].elements


@dataclass(frozen=True, slots=True)
class CumSum(Op):
    """Running sum along `axis`, the element itself included. Integers wrap around."""

    axis: int

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        check_axis(self, self.axis, x.rank, x)
        if x.dtype.kind == "bool":
            raise self.reject("takes numbers", x)
        return (x,)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.cumsum(x, axis=self.axis, dtype=x.dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].elements


OPS = (Reduce, ArgReduce, CumSum)
