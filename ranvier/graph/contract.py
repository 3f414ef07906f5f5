"""Matrix products, convolutions and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ranvier.graph.core import Op, TensorType
from ranvier.graph.shapes import broadcast_shapes, check_float, check_same_dtype

Padding = tuple[tuple[int, int], ...]
"""Elements before and after the operand, for each spatial axis."""


@dataclass(frozen=True, slots=True)
class MatMul(Op):
    """x[..., M, K] times y[..., K, N], summed in float32 (float64 in float64); the leading axes broadcast."""

    arity = (2, 2)
    mnemonic_form = "matmul"

    def infer(self, x: TensorType, y: TensorType) -> tuple[TensorType, ...]:
        check_same_dtype(self, x, y)
        if x.dtype.kind == "bool" or x.rank < 2 or y.rank < 2 or x.shape[-1] != y.shape[-2]:
            raise self.reject("needs numbers of shapes [..., M, K] and [..., K, N]", x, y)
        leading = broadcast_shapes(self, x.with_shape(x.shape[:-2]), y.with_shape(y.shape[:-2]))
        return (x.with_shape((*leading, x.shape[-2], y.shape[-1])),)

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.matmul(x, y),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].elements * inputs[0].shape[-1]


def _windows(x: np.ndarray, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> np.ndarray:
    """All windows of x[N, C, *S], as a view [N, C, *output, *kernel]."""
    spatial = tuple(range(2, x.ndim))
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=spatial)  # type: ignore[call-overload]
    steps = tuple(slice(None, None, s) for s in (*stride, *dilation))
    return view[(slice(None), slice(None), *steps)]


@dataclass(frozen=True, slots=True)
class Conv(Op):
    """Convolution (cross-correlation) over the spatial axes. Operands: x, weight, and optionally bias[O].

    x is [N, C, *spatial]. The weight is [O, C/groups, *kernel], of a transposed convolution [C, O/groups, *kernel].
    Transposed, each element of x adds the weight to a place of the result, `padding` is cut off the result, and
    `output_padding` is appended to it: extent (n-1)*stride - low - high + dilation*(k-1) + output_padding + 1.
    """

    stride: tuple[int, ...]
    padding: Padding
    dilation: tuple[int, ...]
    groups: int
    transposed: bool = False
    output_padding: tuple[int, ...] = ()
    arity = (2, 3)

    def infer(self, x: TensorType, weight: TensorType, *bias: TensorType) -> tuple[TensorType, ...]:
        types = (x, weight, *bias)
        check_same_dtype(self, *types)
        check_float(self, *types)
        rank = x.rank - 2
        if rank < 1 or weight.rank != x.rank or any(len(a) != rank for a in (self.stride, self.padding, self.dilation)):
            raise self.reject(f"attributes {self} do not fit the ranks", *types)
        if len(self.output_padding) not in ((rank,) if self.transposed else (0, rank)):
            raise self.reject(f"output_padding {self.output_padding} does not fit the ranks", *types)
        if min((*self.stride, *self.dilation)) < 1 or min(n for pair in self.padding for n in pair) < 0:
            raise self.reject("strides and dilations are at least 1, paddings at least 0", *types)
        channels, per_group = (weight.shape[0], weight.shape[1]) if self.transposed else (
            weight.shape[1] * self.groups, weight.shape[0])
        out_channels = per_group * self.groups if self.transposed else per_group
        if self.groups < 1 or x.shape[1] != channels or channels % self.groups or out_channels % self.groups:
            raise self.reject(f"channels do not fit {self.groups} groups", *types)
        if bias and bias[0].shape != (out_channels,):
            raise self.reject(f"the bias must have shape ({out_channels},)", *types)
        spatial = self.output_spatial(x.shape[2:], weight.shape[2:])
        if min(spatial) < 1:
            raise self.reject(f"the result would have spatial shape {spatial}", *types)
        return (x.with_shape((x.shape[0], out_channels, *spatial)),)

    def output_spatial(self, spatial: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
        """Spatial extents of the result."""
        sizes = []
        for i, (n, k) in enumerate(zip(spatial, kernel, strict=True)):
            low, high = self.padding[i]
            reach = self.dilation[i] * (k - 1) + 1
            if self.transposed:
                sizes.append((n - 1) * self.stride[i] - low - high + reach + self.output_padding[i])
            else:
                sizes.append((n + low + high - reach) // self.stride[i] + 1)
        return tuple(sizes)

    def evaluate(self, x: np.ndarray, weight: np.ndarray, *bias: np.ndarray) -> tuple[np.ndarray, ...]:
        if self.transposed:
            result = self._evaluate_transposed(x, weight)
        else:
            padded = np.pad(x, ((0, 0), (0, 0), *self.padding))
            result = _convolve(padded, weight, self.stride, self.dilation, self.groups)
        if bias:
            result = result + bias[0].reshape(-1, *(1,) * (x.ndim - 2))
        return (result,)

    def _evaluate_transposed(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """As an ordinary convolution of x, spread out by the stride, with the mirrored weight."""
        rank = x.ndim - 2
        extents = [(n - 1) * s + 1 for n, s in zip(x.shape[2:], self.stride, strict=True)]
        spread = np.zeros((*x.shape[:2], *extents), x.dtype)
        spread[(slice(None), slice(None), *(slice(None, None, s) for s in self.stride))] = x
        for i in range(rank):
            reach = self.dilation[i] * (weight.shape[2 + i] - 1)
            low, high = reach - self.padding[i][0], reach - self.padding[i][1] + self.output_padding[i]
            widths = [(0, 0)] * spread.ndim
            widths[2 + i] = (max(low, 0), max(high, 0))
            spread = np.pad(spread, widths)
            cut = [slice(None)] * spread.ndim
            cut[2 + i] = slice(max(-low, 0), spread.shape[2 + i] - max(-high, 0))
            spread = spread[tuple(cut)]
        kernel = weight.shape[2:]
        grouped = weight.reshape(self.groups, -1, *weight.shape[1:]).swapaxes(1, 2)
        mirrored = np.flip(grouped.reshape(-1, weight.shape[0] // self.groups, *kernel), tuple(range(2, weight.ndim)))
        return _convolve(spread, mirrored, (1,) * rank, self.dilation, self.groups)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        x, weight = inputs[0], inputs[1]
        positions = x if self.transposed else outputs[0]  # each meets one column of the weight
        per_position = weight.elements // weight.shape[0]
        return 2 * positions.elements * per_position + (outputs[0].elements if len(inputs) == 3 else 0)


def _convolve(
    x: np.ndarray, weight: np.ndarray, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> np.ndarray:
    """The convolution without padding or bias, as one matrix product for each group."""
    rank = x.ndim - 2
    view = _windows(x, weight.shape[2:], stride, dilation)
    n, channels, *rest = view.shape
    output = tuple(rest[:rank])
    view = view.reshape(n, groups, channels // groups, *rest)
    order = (1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    columns = view.transpose(order).reshape(groups, n * math.prod(output), -1)
    matrix = weight.reshape(groups, weight.shape[0] // groups, -1).swapaxes(1, 2)
    product = np.matmul(columns, matrix).reshape(groups, n, *output, -1)
    return product.transpose(1, 0, 2 + rank, *range(2, 2 + rank)).reshape(n, -1, *output)


@dataclass(frozen=True, slots=True)
class Pool(Op):
    """Largest ("max") or mean ("avg") element of each window of x[N, C, *spatial].

    Padding counts as -inf for max. For avg it counts as zeros, and in the divisor only with `count_include_pad`. With
    `ceil_mode` a last, incomplete window is kept if it begins within the operand or the padding before it.
    """

    kind: str
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Padding
    ceil_mode: bool = False
    count_include_pad: bool = True
    dilation: tuple[int, ...] = ()
    kinds = ("max", "avg")
    mnemonic_form = "{kind}_pool"

    def __post_init__(self) -> None:
        self.check_kind()
        if not self.dilation:
            object.__setattr__(self, "dilation", (1,) * len(self.kernel))

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        rank = x.rank - 2
        if rank < 1 or any(len(a) != rank for a in (self.kernel, self.stride, self.padding, self.dilation)):
            raise self.reject(f"attributes {self} do not fit the rank", x)
        check_float(self, x)
        for (low, high), k in zip(self.padding, self.kernel, strict=True):
            if not 0 <= low <= k // 2 or not 0 <= high <= k // 2:
                raise self.reject(f"padding {low}, {high} must be at most half of the kernel {k}", x)
        spatial = tuple(count for count, _ in self._extents(x.shape[2:]))
        if min((*spatial, *self.stride, *self.dilation)) < 1:
            raise self.reject(f"the result would have spatial shape {spatial}", x)
        return (x.with_shape((*x.shape[:2], *spatial)),)

    def _extents(self, spatial: Sequence[int]) -> list[tuple[int, int]]:
        """For each spatial axis: number of windows, and elements missing at the end of the last one."""
        result = []
        for i, n in enumerate(spatial):
            low, high = self.padding[i]
            reach = self.dilation[i] * (self.kernel[i] - 1) + 1
            room = n + low + high - reach
            count = room // self.stride[i] + 1
            if self.ceil_mode and room % self.stride[i] and count * self.stride[i] < n + low:
                count += 1
            result.append((count, max(0, (count - 1) * self.stride[i] - room)))
        return result

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        extra = [missing for _, missing in self._extents(x.shape[2:])]
        rank = len(self.kernel)
        inner = ((0, 0), (0, 0), *self.padding)
        beyond = ((0, 0), (0, 0), *((0, e) for e in extra))
        kernel_axes = tuple(range(-rank, 0))
        fill = -np.inf if self.kind == "max" else 0.0
        padded = np.pad(np.pad(x, inner, constant_values=fill), beyond, constant_values=fill)
        view = _windows(padded, self.kernel, self.stride, self.dilation)
        if self.kind == "max":
            return (view.max(axis=kernel_axes),)
        ones = np.pad(np.ones((1, 1, *x.shape[2:]), x.dtype), inner, constant_values=float(self.count_include_pad))
        counted = _windows(np.pad(ones, beyond), self.kernel, self.stride, self.dilation).sum(axis=kernel_axes)
        return (view.sum(axis=kernel_axes) / counted,)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return outputs[0].elements * math.prod(self.kernel)


OPS = (MatMul, Conv, Pool)
