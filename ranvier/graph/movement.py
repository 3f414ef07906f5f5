"""Operations that move elements without computing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ranvier.graph.core import Op, TensorType
from ranvier.graph.shapes import check_axes, check_axis, check_same_dtype


@dataclass(frozen=True, slots=True)
class Reshape(Op):
    """The elements in row-major order in another `shape` of as many elements."""

    shape: tuple[int, ...]

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if any(n < 0 for n in self.shape) or math.prod(self.shape) != x.elements:
            raise self.reject(f"{x.elements} elements do not have shape {self.shape}", x)
        return (x.with_shape(self.shape),)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.reshape(self.shape),)


@dataclass(frozen=True, slots=True)
class Transpose(Op):
    """Axis i of the result is axis `perm[i]` of the operand."""

    perm: tuple[int, ...]

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if sorted(self.perm) != list(range(x.rank)):
            raise self.reject(f"{self.perm} is not a permutation of {x.rank} axes", x)
        return (x.with_shape([x.shape[a] for a in self.perm]),)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.transpose(self.perm),)


@dataclass(frozen=True, slots=True)
class Broadcast(Op):
    """The operand repeated to `shape` by numpy's rules: axes are added in front, axes of extent 1 are repeated."""

    shape: tuple[int, ...]

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        added = len(self.shape) - x.rank
        if added < 0 or any(n not in (1, m) for n, m in zip(x.shape, self.shape[added:], strict=True)):
            raise self.reject(f"does not broadcast to {self.shape}", x)
        return (x.with_shape(self.shape),)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.broadcast_to(x, self.shape),)


@dataclass(frozen=True, slots=True)
class Slice(Op):
    """`x[starts:limits:strides]` on every axis, with ``0 <= start <= limit <= extent`` and ``stride >= 1``."""

    starts: tuple[int, ...]
    limits: tuple[int, ...]
    strides: tuple[int, ...]

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if not len(self.starts) == len(self.limits) == len(self.strides) == x.rank:
            raise self.reject(f"needs bounds for {x.rank} axes", x)
        bounds = list(zip(self.starts, self.limits, self.strides, strict=True))
        for axis, (start, limit, stride) in enumerate(bounds):
            if not 0 <= start <= limit <= x.shape[axis] or stride < 1:
                raise self.reject(f"{start}:{limit}:{stride} is not within axis {axis}", x)
        return (x.with_shape([-((start - limit) // stride) for start, limit, stride in bounds]),)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x[tuple(slice(*s) for s in zip(self.starts, self.limits, self.strides, strict=True))],)


@dataclass(frozen=True, slots=True)
class Concat(Op):
    """The operands (one or more, of one dtype) one after the other along `axis`."""

    axis: int
    arity = (1, 1 << 20)

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        first = types[0]
        check_axis(self, self.axis, first.rank, *types)
        check_same_dtype(self, *types)
        for t in types:
            if t.rank != first.rank or any(
                n != m for axis, (n, m) in enumerate(zip(t.shape, first.shape, strict=True)) if axis != self.axis
            ):
                raise self.reject(f"shapes differ outside axis {self.axis}", *types)
        shape = list(first.shape)
        shape[self.axis] = sum(t.shape[self.axis] for t in types)
        return (first.with_shape(shape),)

    def evaluate(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.concatenate(arrays, axis=self.axis),)


@dataclass(frozen=True, slots=True)
class Pad(Op):
    """`low[i]` elements of `value` before and `high[i]` after the operand on axis i; neither is negative."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    value: float

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if not len(self.low) == len(self.high) == x.rank or min((*self.low, *self.high, 0)) < 0:
            raise self.reject(f"needs counts, not negative, for {x.rank} axes; has {self.low}, {self.high}", x)
        return (x.with_shape([lo + n + hi for lo, n, hi in zip(self.low, x.shape, self.high, strict=True)]),)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        widths = list(zip(self.low, self.high, strict=True))
        return (np.pad(x, widths, constant_values=x.dtype.type(self.value)) if widths else x,)


@dataclass(frozen=True, slots=True)
class Reverse(Op):
    """The operand in reverse order along `axes` (ascending)."""

    axes: tuple[int, ...]

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        check_axes(self, self.axes, x.rank, x)
        return (x,)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.flip(x, self.axes),)


OPS = (Reshape, Transpose, Broadcast, Slice, Concat, Pad, Reverse)
