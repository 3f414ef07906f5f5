"""Scaled dot-product attention, kept whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ranvier import dtypes
from ranvier.graph.composite import Composite, wide
from ranvier.graph.core import TensorType, Value
from ranvier.graph.shapes import broadcast_shapes, check_float, check_same_dtype

if TYPE_CHECKING:
    from ranvier.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class Attention(Composite):
    """softmax(q k^T * scale + mask) v for each head.

    Operands: q[B, H, Sq, D], k[B, Hkv, Sk, D], v[B, Hkv, Sk, Dv], and mask if `has_mask`. Hkv divides H; query head h
    reads key head h // (H / Hkv). The mask broadcasts to [B, H, Sq, Sk]; a bool mask keeps where it holds, a float mask
    is added. With `causal`, query i keeps keys j <= i (both counted from 0). A query for which no key is kept, or all
    are masked with -inf, gives zeros.
    """

    scale: float
    causal: bool = False
    has_mask: bool = False
    arity = (3, 4)

    def infer(self, q: TensorType, k: TensorType, v: TensorType, *mask: TensorType) -> tuple[TensorType, ...]:
        types = (q, k, v, *mask)
        check_same_dtype(self, q, k, v)
        check_float(self, q)
        if any(t.rank != 4 for t in (q, k, v)) or len(mask) != self.has_mask:
            raise self.reject(f"needs q, k, v of rank 4{', and a mask' if self.has_mask else ''}", *types)
        (batch, heads, queries, depth), (_, kv_heads, keys, _) = q.shape, k.shape
        if k.shape != (batch, kv_heads, keys, depth) or v.shape[:3] != k.shape[:3] or not kv_heads or heads % kv_heads:
            raise self.reject("needs q[B, H, Sq, D], k[B, Hkv, Sk, D], v[B, Hkv, Sk, Dv] with Hkv dividing H", *types)
        scores = q.with_shape((batch, heads, queries, keys))
        for m in mask:
            if m.dtype is not dtypes.bool_ and m.dtype is not q.dtype:
                raise self.reject("the mask must be bool or of the dtype of q", *types)
            if broadcast_shapes(self, scores, m) != scores.shape:
                raise self.reject(f"the mask does not broadcast to {scores.shape}", *types)
        return (q.with_shape((batch, heads, queries, v.shape[3])),)

    def evaluate(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, *mask: np.ndarray) -> tuple[np.ndarray, ...]:
        group = q.shape[1] // k.shape[1]
        k, v = (x if group == 1 else np.repeat(x, group, axis=1) for x in (k, v))
        scores = np.matmul(q, k.swapaxes(2, 3)) * q.dtype.type(self.scale)
        if mask and mask[0].dtype == np.bool_:
            scores = np.where(mask[0], scores, -np.inf)
        elif mask:
            scores = scores + mask[0]
        if self.causal:
            scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -np.inf)
        peak = scores.max(-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(peak == -np.inf, 0, peak)).astype(q.dtype, copy=False)
        total = weights.sum(-1, keepdims=True)
        return (np.matmul(weights / np.where(total == 0, 1, total).astype(q.dtype, copy=False), v),)

    def decompose(self, b: GraphBuilder, *values: Value) -> Value:
        q, k, v, *mask = wide(b, *values)
        _, heads, queries, _ = q.shape
        keys = k.shape[2]
        k, v = (_repeat_heads(b, x, heads) for x in (k, v))
        scores = b.mul(b.matmul(q, b.transpose(k, (0, 1, 3, 2))), self.scale)
        if mask and mask[0].dtype is dtypes.bool_:
            scores = b.select(mask[0], scores, float("-inf"))
        elif mask:
            scores = b.add(scores, mask[0])
        if self.causal:
            row, column = (b.iota((queries, keys), axis, dtypes.int32) for axis in (0, 1))
            scores = b.select(b.compare("le", column, row), scores, float("-inf"))
        peak = b.max(scores, -1, keepdims=True)
        if mask:  # only then can a row have no key
            peak = b.select(b.compare("eq", peak, float("-inf")), 0.0, peak)
        weights = b.exp(b.sub(scores, peak))
        total = b.sum(weights, -1, keepdims=True)
        if mask:
            total = b.select(b.compare("eq", total, 0.0), 1.0, total)
        return b.cast(b.matmul(b.div(weights, total), v), values[0].dtype)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        q, k, v = inputs[:3]
        scores = q.elements // q.shape[3] * k.shape[2] if q.shape[3] else 0
        return scores * (2 * q.shape[3] + 2 * v.shape[3] + 6 + self.has_mask)


def _repeat_heads(b: GraphBuilder, x: Value, heads: int) -> Value:
    """x[B, Hkv, S, D] with each head repeated to `heads` heads."""
    batch, kv_heads, rows, depth = x.shape
    if kv_heads == heads:
        return x
    column = b.reshape(x, (batch, kv_heads, 1, rows, depth))
    spread = b.broadcast(column, (batch, kv_heads, heads // kv_heads, rows, depth))
    return b.reshape(spread, (batch, heads, rows, depth))


OPS = (Attention,)
