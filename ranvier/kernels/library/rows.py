"""Normalizations and softmax over the last axis, one row per partition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ranvier import nki
from ranvier.kernels import norm
from ranvier.kernels.library.arguments import expect, expect_shape, replicated, rows_of, wide
from ranvier.kernels.matmul import spans
from ranvier.kernels.sizes import PARTITIONS
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl
from ranvier.nki.tensor import NkiTensor


def _each_tile(x: NkiTensor, function: Callable[[NkiTensor, NkiTensor], None]) -> NkiTensor:
    """A new HBM tensor like x, made by `function(dst, data)` on tiles of up to 128 rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows, result = rows_of(x), rows_of(out)
    for start, size in spans(rows.shape[0], PARTITIONS):
        data = nl.load(rows[start : start + size, :])
        dst = nl.ndarray(data.shape, dtype=x.dtype, buffer=nl.sbuf)
        function(dst, data)
        nisa.dma_copy(dst=result[start : start + size, :], src=dst)
    return out


def _replicas(x: NkiTensor, **vectors: NkiTensor | None) -> list[NkiTensor | None]:
    for name, vector in vectors.items():
        expect_shape(name, vector, x.shape[-1:])
    rows = min(PARTITIONS, rows_of(x).shape[0])
    return [replicated(vector, rows) for vector in vectors.values()]


def _first(tile: NkiTensor | None, rows: int) -> NkiTensor | None:
    return None if tile is None else tile[:rows]


@nki.jit
def layer_norm(x, weight=None, bias=None, epsilon=1e-5):
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis of x [..., N].

    x is float32 or has 16 bits, and the result has its dtype; weight and bias are [N] or None and may have others. Mean
    and variance (divided by N) are float32. In x's dtype are rounded: the normalized row, its product with weight, and
    the result. Rows of 20,000 elements of 16 bits fit on chip.
    """
    weight, bias = _replicas(x, weight=weight, bias=bias)

    def normalize(dst: NkiTensor, data: NkiTensor) -> None:
        rows = data.shape[0]
        norm.layer_norm(dst, data, _first(weight, rows), _first(bias, rows), epsilon)

    return _each_tile(x, normalize)


def layer_norm_reference(
    x: np.ndarray, weight: np.ndarray | None = None, bias: np.ndarray | None = None, epsilon: float = 1e-5
) -> np.ndarray:
    """The same in float64, rounded nowhere."""
    data = wide(x)
    normal = (data - data.mean(-1, keepdims=True)) / np.sqrt(data.var(-1, keepdims=True) + epsilon)
    return normal * (1.0 if weight is None else wide(weight)) + (0.0 if bias is None else wide(bias))


@nki.jit
def rms_norm(x, weight=None, epsilon=1e-6):
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis of x [..., N]; weight is [N] or None.

    x is float32 or has 16 bits, and the result has its dtype; weight may have another. All is float32 inside, and only
    the result is rounded. Rows of 24,000 elements of 16 bits fit on chip.
    """
    (weight,) = _replicas(x, weight=weight)
    return _each_tile(x, lambda dst, data: norm.rms_norm(dst, data, _first(weight, data.shape[0]), epsilon))


def rms_norm_reference(x: np.ndarray, weight: np.ndarray | None = None, epsilon: float = 1e-6) -> np.ndarray:
    """The same in float64, rounded nowhere."""
    data = wide(x)
    normal = data / np.sqrt((data**2).mean(-1, keepdims=True) + epsilon)
    return normal * (1.0 if weight is None else wide(weight))


@nki.jit
def softmax(x):
    """exp(x) over its sum along the last axis of x [..., N], in x's dtype: float32 or one of 16 bits.

    The maximum is taken off first; all is float32 inside, and only the result is rounded. Rows of 24,000 elements of 16
    bits fit on chip.
    """
    expect(x.dtype.is_float, "x", f"x is {x.dtype}; softmax takes floats")
    return _each_tile(x, norm.softmax)


def softmax_reference(x: np.ndarray) -> np.ndarray:
    """The same in float64, rounded nowhere."""
    powers = np.exp(wide(x) - wide(x).max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@nki.jit
def log_softmax(x):
    """x - log(sum(exp(x))) along the last axis of x [..., N], in x's dtype: float32 or one of 16 bits.

    The maximum is taken off first; all is float32 inside, and only the result is rounded. Rows of 24,000 elements of 16
    bits fit on chip.
    """
    expect(x.dtype.is_float, "x", f"x is {x.dtype}; log_softmax takes floats")
    return _each_tile(x, norm.log_softmax)


def log_softmax_reference(x: np.ndarray) -> np.ndarray:
    """The same in float64, rounded nowhere."""
    shifted = wide(x) - wide(x).max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
