"""Operations of neural networks that are kept whole, because the core has better ways for them than for their parts.

Each evaluates directly, in float32 throughout (float64 in float64), rounding once at the end; and each decomposes into
primitive operations with the same meaning, in which 16-bit operands are cast to float32 and the result back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ranvier import dtypes
from ranvier.graph.core import Op, TensorType, Value
from ranvier.graph.shapes import broadcast_shapes, check_axes, check_axis, check_float, check_same_dtype
from ranvier.isa.act import erf, sigmoid

if TYPE_CHECKING:
    from ranvier.graph.builder import GraphBuilder


def wide(b: GraphBuilder, *values: Value) -> list[Value]:
    """`values`, those of less than 32 bits cast to float32."""
    return [b.cast(v, dtypes.float32) if v.dtype.is_float and v.dtype.itemsize < 4 else v for v in values]


class Composite(Op):
    """Base of the composites."""

    __slots__ = ()
    is_composite = True


class _AlongAxis(Composite):
    """A float operand to a result of its type, row by row along `axis`."""

    __slots__ = ()
    axis: int

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        check_axis(self, self.axis, x.rank, x)
        check_float(self, x)
        return (x,)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 5 * inputs[0].elements


@dataclass(frozen=True, slots=True)
class Softmax(_AlongAxis):
    """exp(x) / sum(exp(x)) along `axis`. A row of -inf only gives NaN."""

    axis: int

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        if not x.size:
            return (x,)
        e = np.exp(x - x.max(self.axis, keepdims=True))
        return (e / e.sum(self.axis, keepdims=True),)

    def decompose(self, b: GraphBuilder, *values: Value) -> Value:
        (x,) = wide(b, *values)
        e = b.exp(b.sub(x, b.max(x, self.axis, keepdims=True)))
        return b.cast(b.div(e, b.sum(e, self.axis, keepdims=True)), values[0].dtype)


@dataclass(frozen=True, slots=True)
class LogSoftmax(_AlongAxis):
    """x - log(sum(exp(x))) along `axis`."""

    axis: int

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        if not x.size:
            return (x,)
        shifted = x - x.max(self.axis, keepdims=True)
        return (shifted - np.log(np.exp(shifted).sum(self.axis, keepdims=True)),)

    def decompose(self, b: GraphBuilder, *values: Value) -> Value:
        (x,) = wide(b, *values)
        shifted = b.sub(x, b.max(x, self.axis, keepdims=True))
        total = b.sum(b.exp(shifted), self.axis, keepdims=True)
        return b.cast(b.sub(shifted, b.log(total)), values[0].dtype)


def _normalize(x: np.ndarray, axes: tuple[int, ...], eps: float) -> np.ndarray:
    centered = x - x.mean(axes, keepdims=True)
    return centered / np.sqrt(np.square(centered).mean(axes, keepdims=True) + x.dtype.type(eps))


def _emit_normalize(b: GraphBuilder, x: Value, axes: tuple[int, ...], eps: float) -> Value:
    centered = b.sub(x, b.mean(x, axes, keepdims=True))
    variance = b.mean(b.square(centered), axes, keepdims=True)
    return b.div(centered, b.sqrt(b.add(variance, eps)))


@dataclass(frozen=True, slots=True)
class LayerNorm(Composite):
    """(x - mean) / sqrt(variance + eps) over `axes` (the last ones), times weight, plus bias if the node has them.

    Operands: x, then weight if `has_weight`, then bias if `has_bias`; both have the shape of the normalized axes.
    """

    axes: tuple[int, ...]
    eps: float
    has_weight: bool = True
    has_bias: bool = True
    arity = (1, 3)

    def infer(self, x: TensorType, *affine: TensorType) -> tuple[TensorType, ...]:
        types = (x, *affine)
        check_axes(self, self.axes, x.rank, *types)
        check_same_dtype(self, *types)
        check_float(self, *types)
        inner = x.shape[x.rank - len(self.axes) :]
        if not self.axes or self.axes != tuple(range(x.rank - len(self.axes), x.rank)):
            raise self.reject(f"axes {self.axes} are not the last ones", *types)
        if len(affine) != self.has_weight + self.has_bias or any(t.shape != inner for t in affine):
            raise self.reject(f"weight and bias, as the attributes say, must have shape {inner}", *types)
        return (x,)

    def evaluate(self, x: np.ndarray, *affine: np.ndarray) -> tuple[np.ndarray, ...]:
        result = _normalize(x, self.axes, self.eps)
        if self.has_weight:
            result = result * affine[0]
        return (result + affine[-1] if self.has_bias else result,)

    def decompose(self, b: GraphBuilder, *values: Value) -> Value:
        x, *affine = wide(b, *values)
        result = _emit_normalize(b, x, self.axes, self.eps)
        if self.has_weight:
            result = b.mul(result, affine[0])
        return b.cast(b.add(result, affine[-1]) if self.has_bias else result, values[0].dtype)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return (6 + self.has_weight + self.has_bias) * inputs[0].elements


@dataclass(frozen=True, slots=True)
class RmsNorm(Composite):
    """x / sqrt(mean(x^2) + eps) along the last axis, times weight. Operands: x, and optionally weight[last axis]."""

    eps: float
    arity = (1, 2)

    def infer(self, x: TensorType, *weight: TensorType) -> tuple[TensorType, ...]:
        check_same_dtype(self, x, *weight)
        check_float(self, x)
        if x.rank < 1 or any(t.shape != x.shape[-1:] for t in weight):
            raise self.reject("the weight must have the shape of the last axis", x, *weight)
        return (x,)

    def evaluate(self, x: np.ndarray, *weight: np.ndarray) -> tuple[np.ndarray, ...]:
        result = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + x.dtype.type(self.eps))
        return (result * weight[0] if weight else result,)

    def decompose(self, b: GraphBuilder, *values: Value) -> Value:
        x, *weight = wide(b, *values)
        result = b.div(x, b.sqrt(b.add(b.mean(b.square(x), -1, keepdims=True), self.eps)))
        return b.cast(b.mul(result, weight[0]) if weight else result, values[0].dtype)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return (3 + len(inputs) - 1) * inputs[0].elements


@dataclass(frozen=True, slots=True)
class GroupNorm(Composite):
    """x[N, C, *spatial] normalized over each of `groups` groups of channels; then weight[C] and bias[C] if given.

    Operands: x; x and weight; or x, weight and bias. `eps` is added to the variance.
    """

    groups: int
    eps: float
    arity = (1, 3)

    def infer(self, x: TensorType, *affine: TensorType) -> tuple[TensorType, ...]:
        check_same_dtype(self, x, *affine)
        check_float(self, x)
        if x.rank < 2 or self.groups < 1 or x.shape[1] % self.groups or any(t.shape != x.shape[1:2] for t in affine):
            raise self.reject(f"needs x[N, C, ...] with C divisible by {self.groups}, weight[C], bias[C]", x, *affine)
        return (x,)

    def evaluate(self, x: np.ndarray, *affine: np.ndarray) -> tuple[np.ndarray, ...]:
        result = _normalize(x.reshape(x.shape[0], self.groups, -1), (2,), self.eps).reshape(x.shape)
        columns = [a.reshape(-1, *(1,) * (x.ndim - 2)) for a in affine]
        result = result * columns[0] if columns else result
        return (result + columns[1] if len(columns) == 2 else result,)

    def decompose(self, b: GraphBuilder, *values: Value) -> Value:
        x, *affine = wide(b, *values)
        grouped = b.reshape(x, (x.shape[0], self.groups, -1))
        result = b.reshape(_emit_normalize(b, grouped, (2,), self.eps), x.shape)
        columns = [b.reshape(a, (-1, *(1,) * (x.type.rank - 2))) for a in affine]
        result = b.mul(result, columns[0]) if columns else result
        return b.cast(b.add(result, columns[1]) if len(columns) == 2 else result, values[0].dtype)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return (6 + len(inputs) - 1) * inputs[0].elements


@dataclass(frozen=True, slots=True)
class BatchNorm(Composite):
    """(x - mean) / sqrt(variance + eps) * weight + bias for each channel of x[N, C, ...], with given statistics.

    Operands: x, weight[C], bias[C], mean[C], variance[C].
    """

    eps: float
    arity = (5, 5)

    def infer(self, x: TensorType, *channel: TensorType) -> tuple[TensorType, ...]:
        check_same_dtype(self, x, *channel)
        check_float(self, x)
        if x.rank < 2 or any(t.shape != x.shape[1:2] for t in channel):
            raise self.reject("needs x[N, C, ...] and four operands of shape [C]", x, *channel)
        return (x,)

    def evaluate(self, x: np.ndarray, *channel: np.ndarray) -> tuple[np.ndarray, ...]:
        weight, bias, mean, variance = (a.reshape(-1, *(1,) * (x.ndim - 2)) for a in channel)
        return ((x - mean) / np.sqrt(variance + x.dtype.type(self.eps)) * weight + bias,)

    def decompose(self, b: GraphBuilder, *values: Value) -> Value:
        x, *channel = wide(b, *values)
        weight, bias, mean, variance = (b.reshape(a, (-1, *(1,) * (x.type.rank - 2))) for a in channel)
        normalized = b.div(b.sub(x, mean), b.sqrt(b.add(variance, self.eps)))
        return b.cast(b.add(b.mul(normalized, weight), bias), values[0].dtype)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 4 * inputs[0].elements


@dataclass(frozen=True, slots=True)
class Gelu(Composite):
    """x * Phi(x), elementwise. `approximate` is "none" (with erf) or "tanh" (the usual approximation)."""

    approximate: str = "none"
    is_elementwise = True

    def __post_init__(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise self.reject(f"approximate is none or tanh, not {self.approximate!r}")

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        check_float(self, x)
        return (x,)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        number = x.dtype.type
        if self.approximate == "none":
            inner = erf(x * number(math.sqrt(0.5)))
        else:
            inner = np.tanh(number(math.sqrt(2 / math.pi)) * (x + number(0.044715) * (x * x * x)))
        return (number(0.5) * x * (1 + inner),)

    def decompose(self, b: GraphBuilder, *values: Value) -> Value:
        (x,) = wide(b, *values)
        if self.approximate == "none":
            inner = b.erf(b.mul(x, math.sqrt(0.5)))
        else:
            cube = b.mul(b.mul(x, x), x)
            inner = b.tanh(b.mul(b.add(x, b.mul(cube, 0.044715)), math.sqrt(2 / math.pi)))
        return b.cast(b.mul(b.mul(x, 0.5), b.add(inner, 1.0)), values[0].dtype)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return (5 if self.approximate == "none" else 9) * inputs[0].elements


@dataclass(frozen=True, slots=True)
class Silu(Composite):
    """x * sigmoid(x), elementwise."""

    is_elementwise = True

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        check_float(self, x)
        return (x,)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x * sigmoid(x),)

    def decompose(self, b: GraphBuilder, *values: Value) -> Value:
        (x,) = wide(b, *values)
        return b.cast(b.mul(x, b.sigmoid(x)), values[0].dtype)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * inputs[0].elements


@dataclass(frozen=True, slots=True)
class Linear(Composite):
    """x[..., K] times the transpose of weight[N, K], plus bias[N] if given. Operands: x, weight, and optionally bias.

    The decomposition multiplies in the operands' dtype, so that 16-bit results with a bias are rounded twice.
    """

    arity = (2, 3)

    def infer(self, x: TensorType, weight: TensorType, *bias: TensorType) -> tuple[TensorType, ...]:
        check_same_dtype(self, x, weight, *bias)
        check_float(self, x)
        fits = x.rank >= 1 and weight.rank == 2 and x.shape[-1] == weight.shape[1]
        if not fits or any(t.shape != weight.shape[:1] for t in bias):
            raise self.reject("needs x[..., K], weight[N, K] and bias[N]", x, weight, *bias)
        return (x.with_shape((*x.shape[:-1], weight.shape[0])),)

    def evaluate(self, x: np.ndarray, weight: np.ndarray, *bias: np.ndarray) -> tuple[np.ndarray, ...]:
        rows = x.reshape(-1, x.shape[-1]) if x.shape[-1] else np.zeros((math.prod(x.shape[:-1]), 0), x.dtype)
        result = np.matmul(rows, weight.T).reshape(*x.shape[:-1], weight.shape[0])
        return (result + bias[0] if bias else result,)

    def decompose(self, b: GraphBuilder, *values: Value) -> Value:
        x, weight, *bias = values
        product = b.matmul(x, b.transpose(weight, (1, 0)))
        return b.add(product, bias[0]) if bias else product

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return outputs[0].elements * (2 * inputs[0].shape[-1] + len(inputs) - 2)


@dataclass(frozen=True, slots=True)
class Rope(Composite):
    """Rotary position embedding: x * cos + rotate(x) * sin. Operands: x[..., S, D], cos and sin (they broadcast to x).

    rotate gives (-second half, first half) of the last axis; with `interleaved`, each pair (a, b) becomes (-b, a).
    """

    interleaved: bool = False
    arity = (3, 3)

    def infer(self, x: TensorType, cos: TensorType, sin: TensorType) -> tuple[TensorType, ...]:
        check_same_dtype(self, x, cos, sin)
        check_float(self, x)
        if x.rank < 1 or x.shape[-1] % 2 or broadcast_shapes(self, x, cos, sin) != x.shape:
            raise self.reject("needs an even last axis, and cos and sin that broadcast to x", x, cos, sin)
        return (x,)

    def evaluate(self, x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> tuple[np.ndarray, ...]:
        half = x.shape[-1] // 2
        if self.interleaved:
            rotated = np.stack((-x[..., 1::2], x[..., ::2]), axis=-1).reshape(x.shape)
        else:
            rotated = np.concatenate((-x[..., half:], x[..., :half]), axis=-1)
        return (x * cos + rotated * sin,)

    def decompose(self, b: GraphBuilder, *values: Value) -> Value:
        x, cos, sin = wide(b, *values)
        half, last = x.shape[-1] // 2, x.type.rank - 1
        if self.interleaved:
            pairs = b.reshape(x, (*x.shape[:-1], half, 2))
            second, first = b.slice_axis(pairs, last + 1, 1, 2), b.slice_axis(pairs, last + 1, 0, 1)
            rotated = b.reshape(b.concat((b.neg(second), first), last + 1), x.shape)
        else:
            second, first = b.slice_axis(x, last, half, 2 * half), b.slice_axis(x, last, 0, half)
            rotated = b.concat((b.neg(second), first), last)
        return b.cast(b.add(b.mul(x, cos), b.mul(rotated, sin)), values[0].dtype)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 3 * inputs[0].elements


OPS = (Softmax, LogSoftmax, LayerNorm, RmsNorm, GroupNorm, BatchNorm, Gelu, Silu, Linear, Rope)
