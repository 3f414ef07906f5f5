"""Tensors made from nothing, and operations whose element positions are data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ranvier import dtypes
from ranvier.dtypes import DType
from ranvier.errors import error
from ranvier.graph.core import Op, TensorType
from ranvier.graph.shapes import check_axis, check_integer, check_same_dtype


def _check_bounds(op: Op, indices: np.ndarray, extent: int) -> None:
    bad = (indices < 0) | (indices >= extent)
    if np.any(bad):
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        index = int(indices[where])
        raise error("E0608", f"{op.mnemonic}: index {index} at position {where} is not in 0..{extent - 1}")


@dataclass(frozen=True, slots=True)
class Iota(Op):
    """Each element's position along `axis`, as a tensor of `shape`. No operands."""

    shape: tuple[int, ...]
    axis: int
    dtype: DType
    arity = (0, 0)

    def infer(self) -> tuple[TensorType, ...]:
        check_axis(self, self.axis, len(self.shape))
        return (TensorType(self.shape, self.dtype),)

    def evaluate(self) -> tuple[np.ndarray, ...]:
        column = np.arange(self.shape[self.axis]).reshape(-1, *(1,) * (len(self.shape) - 1 - self.axis))
        return (np.broadcast_to(column, self.shape),)


@dataclass(frozen=True, slots=True)
class Full(Op):
    """A tensor of `shape` in which each element is `value`. No operands; ``Full((), v, dtype)`` is a scalar."""

    shape: tuple[int, ...]
    value: float | int | bool
    dtype: DType
    arity = (0, 0)

    def infer(self) -> tuple[TensorType, ...]:
        if not self.dtype.is_float:
            info = np.iinfo(np.uint8 if self.dtype is dtypes.bool_ else self.dtype.np)
            high = 1 if self.dtype is dtypes.bool_ else info.max
            if not info.min <= self.value <= high or self.value != int(self.value):
                raise self.reject(f"{self.value} is not a value of {self.dtype}")
        return (TensorType(self.shape, self.dtype),)

    def evaluate(self) -> tuple[np.ndarray, ...]:
        return (np.full(self.shape, self.value, np.float64 if self.dtype.is_float else self.dtype.np),)


@dataclass(frozen=True, slots=True)
class Take(Op):
    """Slices of `table` along `axis`, one for each index (embedding look-up). Operands: table, indices (any shape).

    Result shape: ``table.shape[:axis] + indices.shape + table.shape[axis+1:]``. An index outside 0..extent-1 is E0608.
    """

    axis: int
    arity = (2, 2)

    def infer(self, table: TensorType, indices: TensorType) -> tuple[TensorType, ...]:
        check_axis(self, self.axis, table.rank, table, indices)
        check_integer(self, indices)
        return (table.with_shape(table.shape[: self.axis] + indices.shape + table.shape[self.axis + 1 :]),)

    def evaluate(self, table: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, ...]:
        _check_bounds(self, indices, table.shape[self.axis])
        return (np.take(table, indices, axis=self.axis),)


@dataclass(frozen=True, slots=True)
class TakeAlong(Op):
    """`x` at positions along `axis` (gather): ``y[i, j] = x[i, indices[i, j]]``. Operands: x, indices of the same rank.

    Other axes of `indices` are at most as long as those of `x`. An index outside 0..extent-1 is E0608.
    """

    axis: int
    arity = (2, 2)

    def infer(self, x: TensorType, indices: TensorType) -> tuple[TensorType, ...]:
        check_axis(self, self.axis, x.rank, x, indices)
        check_integer(self, indices)
        if x.rank != indices.rank or any(
            n > m for axis, (n, m) in enumerate(zip(indices.shape, x.shape, strict=True)) if axis != self.axis
        ):
            raise self.reject("indices reach beyond the operand", x, indices)
        return (x.with_shape(indices.shape),)

    def evaluate(self, x: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, ...]:
        _check_bounds(self, indices, x.shape[self.axis])
        rows = tuple(slice(None) if a == self.axis else slice(n) for a, n in enumerate(indices.shape))
        return (np.take_along_axis(x[rows], indices, axis=self.axis),)


@dataclass(frozen=True, slots=True)
class ScatterAlong(Op):
    """`x` in which positions along `axis` are set to, or increased by, `updates`. Operands: x, indices, updates.

    `kind` is "set" (an index that occurs twice in a row has no defined result) or "add". Indices and updates have one
    shape, of the rank of `x`, at most as long as `x` outside `axis`. An index outside 0..extent-1 is E0608.
    """

    axis: int
    kind: str = "set"
    kinds = ("set", "add")
    arity = (3, 3)

    def __post_init__(self) -> None:
        self.check_kind()

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType, ...]:
        check_axis(self, self.axis, x.rank, x, indices, updates)
        check_integer(self, indices)
        check_same_dtype(self, x, updates)
        if indices.shape != updates.shape or x.rank != indices.rank or any(
            n > m for axis, (n, m) in enumerate(zip(indices.shape, x.shape, strict=True)) if axis != self.axis
        ):
            raise self.reject("indices and updates must agree and lie within the operand", x, indices, updates)
        if self.kind == "add" and x.dtype is dtypes.bool_:
            raise self.reject("add takes numbers", x, indices, updates)
        return (x,)

    def evaluate(self, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> tuple[np.ndarray, ...]:
        _check_bounds(self, indices, x.shape[self.axis])
        result = x.copy()
        place: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
        place[self.axis] = indices
        if self.kind == "add":
            np.add.at(result, tuple(place), updates)
        else:
            result[tuple(place)] = updates  # type: ignore[index]
        return (result,)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[2].elements if self.kind == "add" else 0


def _order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Stable order along `axis`; NaN counts as larger than any number."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(backwards, axis)


@dataclass(frozen=True, slots=True)
class Sort(Op):
    """Two results: the elements in order along `axis`, and their former positions. Stable; NaN counts as largest."""

    axis: int
    descending: bool = False
    index_dtype: DType = dtypes.int64

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        check_axis(self, self.axis, x.rank, x)
        return (x, x.with_dtype(self.index_dtype))

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        order = _order(x, self.axis, self.descending)
        return np.take_along_axis(x, order, self.axis), order


@dataclass(frozen=True, slots=True)
class TopK(Op):
    """Two results: the `k` largest (or smallest) elements along `axis` in order, and their positions.

    Among equal elements the one that comes first is taken; NaN counts as largest.
    """

    k: int
    axis: int
    largest: bool = True
    index_dtype: DType = dtypes.int64

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        check_axis(self, self.axis, x.rank, x)
        if not 0 <= self.k <= x.shape[self.axis]:
            raise self.reject(f"k = {self.k} is not in 0..{x.shape[self.axis]}", x)
        shape = [self.k if axis == self.axis else n for axis, n in enumerate(x.shape)]
        return (x.with_shape(shape), TensorType(tuple(shape), self.index_dtype))

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        order = np.take(_order(x, self.axis, self.largest), np.arange(self.k), axis=self.axis)
        return np.take_along_axis(x, order, self.axis), order


OPS = (Iota, Full, Take, TakeAlong, ScatterAlong, Sort, TopK)
