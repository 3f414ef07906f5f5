"""Patterns of attention: scores, masks, repeated heads, rotary position embedding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ranvier import dtypes
from ranvier.compiler.graph.recognize_activation import factors
from ranvier.graph.attention import Attention
from ranvier.graph.composite import Rope, Softmax
from ranvier.graph.contract import MatMul
from ranvier.graph.core import Node, Value
from ranvier.graph.elementwise import Binary, Select
from ranvier.graph.movement import Broadcast, Concat, Reshape, Slice
from ranvier.graph.rewriter import GraphScope
from ranvier.ir.rewrite import rule

_AS_GOOD_AS_INFINITE = -1e30
"""Added to a score, this and anything below leaves nothing of it in float32 (scores are far below 1e22)."""

_MASK_LIMIT_ELEMENTS = 1 << 24
"""Constant masks up to this size are looked at."""


@rule(Binary)
def recognize_rope(b: GraphScope, node: Node[Binary]):
    """x * cos + concat(-second half, first half) * sin."""
    if node.op.kind != "add":
        return None
    left, right = (b.binary_of(v, "mul") for v in node.inputs)
    if left is None or right is None:
        return None
    for straight, turned in ((left, right), (right, left)):
        for x, cos in (straight, straight[::-1]):
            for rotated, sin in (turned, turned[::-1]):
                if x.type == node.output.type and x.dtype.is_float and _is_rotated(b, rotated, x):
                    return b.emit(Rope(), x, cos, sin)
    return None


def _is_rotated(b: GraphScope, value: Value, x: Value) -> bool:
    joined = b.made_by(value, Concat)
    last, half = x.type.rank - 1, x.shape[-1] // 2
    if not joined or joined[0].axis != last or len(joined[1]) != 2 or x.shape[-1] % 2:
        return False
    second = b.unary_of(joined[1][0], "neg")
    return second is not None and _is_part(b, second, x, half, 2 * half) and _is_part(b, joined[1][1], x, 0, half)


def _is_part(b: GraphScope, value: Value, x: Value, start: int, limit: int) -> bool:
    found = b.made_by(value, Slice)
    if not found or found[1][0] is not x or set(found[0].strides) != {1}:
        return False
    whole = all(found[0].starts[a] == 0 and found[0].limits[a] == x.shape[a] for a in range(x.type.rank - 1))
    return whole and (found[0].starts[-1], found[0].limits[-1]) == (start, limit)


@rule(MatMul)
def recognize_attention(b: GraphScope, node: Node[MatMul]):
    """softmax(q k^T * scale + mask) v, of rank 4 or 3 (heads and batch in one axis).

    Where -inf masks every key of a query, attention gives zeros; the written form would give NaN.
    """
    weights, v = node.inputs
    soft = b.made_by(weights, Softmax)
    rank = v.type.rank
    if not soft or rank not in (3, 4) or weights.type.rank != rank or soft[0].axis != rank - 1:
        return None
    scores, mask = _take_mask(b, soft[1][0])
    if scores is None:
        return None
    scale, parts = factors(b, scores)
    product = b.made_by(parts[0], MatMul) if len(parts) == 1 else None
    if not product or any(x.shape[:-2] != v.shape[:-2] for x in (*product[1], weights)):
        return None
    q, k = product[1][0], b.transpose(product[1][1], (*range(rank - 2), rank - 1, rank - 2))
    if mask is not None and mask.dtype is not dtypes.bool_ and mask.dtype is not v.dtype:
        return None
    if rank == 3:
        q, k, v = (b.reshape(x, (1, *x.shape)) for x in (q, k, v))
    operands = [q, k, v] if mask is None else [q, k, v, mask]
    result = b.emit(Attention(scale, False, mask is not None), *operands)
    return b.reshape(result, node.output.shape)


def _take_mask(b: GraphScope, scores: Value) -> tuple[Value | None, Value | None]:
    """The scores and the mask that was put on them, if any; scores None if they were masked in another way."""
    chosen = b.made_by(scores, Select)
    if chosen:
        keep, x, y = chosen[1]
        low = b.number(y)
        if low is None:
            keep, x, y, low = b.unary("logical_not", keep), y, x, b.number(x)
        if low is None or x.type != scores.type or low > _AS_GOOD_AS_INFINITE:
            return None, None
        if low == float("-inf"):
            return x, keep
        return x, b.select(keep, b.scalar(0.0, x.dtype), b.scalar(low, x.dtype))
    added = b.binary_of(scores, "add")
    for x, mask in ((added, added[::-1]) if added else ()):
        _, parts = factors(b, x)
        if x.type == scores.type and len(parts) == 1 and b.made_by(parts[0], MatMul):
            return x, mask
    return scores, None


@rule(Attention)
def scale_in_attention(b: GraphScope, node: Node[Attention]):
    """A number that multiplies q or k is part of the scale."""
    op, (q, k, *rest) = node.op, node.inputs
    for i, x in enumerate((q, k)):
        scale, parts = factors(b, x, 1)
        if scale != 1 and len(parts) == 1 and parts[0].type == x.type:
            operands = (parts[0], k) if i == 0 else (q, parts[0])
            return b.emit(replace(op, scale=op.scale * scale), *operands, *rest)
    return None


@rule(Attention)
def share_heads(b: GraphScope, node: Node[Attention]):
    """Key and value heads that were repeated for groups of query heads: attention shares them itself."""
    q, k, v, *mask = node.inputs
    keys, values = _unrepeated(b, k), _unrepeated(b, v)
    if keys is None or values is None or keys.shape[1] != values.shape[1]:
        return None
    return b.emit(node.op, q, keys, values, *mask)


def _unrepeated(b: GraphScope, value: Value) -> Value | None:
    """x[B, H, S, D] where `value` is each of its heads repeated n times in place."""
    merged = b.made_by(value, Reshape)
    spread = b.made_by(merged[1][0], Broadcast) if merged else None
    if not merged or not spread or len(spread[0].shape) != 5:
        return None
    (batch, heads, count, rows, depth), source = spread[0].shape, spread[1][0]
    if value.shape != (batch, heads * count, rows, depth) or source.shape != (batch, heads, 1, rows, depth):
        return None
    return b.reshape(source, (batch, heads, rows, depth))


@rule(Attention)
def mask_in_attention(b: GraphScope, node: Node[Attention]):
    """Masks that keep everything are left out, causal ones become an attribute, broadcasts are done by attention."""
    op, (q, k, v, *masks) = node.op, node.inputs
    if not masks:
        return None
    mask = masks[0]
    scores = (*q.shape[:3], k.shape[2])
    found = b.made_by(mask, Broadcast)
    if found and _fits(found[1][0].shape, scores):
        return b.emit(op, q, k, v, found[1][0])
    kind = _constant_mask(b, mask, scores)
    if kind is not None:
        return b.emit(replace(op, has_mask=False, causal=op.causal or kind == "causal"), q, k, v)
    for which in ("logical_and", "bitwise_and"):
        pair = b.binary_of(mask, which) if mask.dtype is dtypes.bool_ else None
        for part, rest in ((pair, pair[::-1]) if pair else ()):
            kind = _constant_mask(b, part, scores)
            if kind is not None:
                return b.emit(replace(op, causal=op.causal or kind == "causal"), q, k, v, rest)
    return None


def _fits(shape: tuple[int, ...], scores: tuple[int, ...]) -> bool:
    return len(shape) <= 4 and all(n in (1, m) for n, m in zip(shape[::-1], scores[::-1], strict=False))


def _constant_mask(b: GraphScope, mask: Value, scores: tuple[int, ...]) -> str | None:
    """ "all" if `mask` is known to keep every key, "causal" if it keeps those up to the query's own position."""
    number = b.number(mask)
    if number is not None:
        return "all" if number == (1 if mask.dtype is dtypes.bool_ else 0) else None
    array = b.array(mask, _MASK_LIMIT_ELEMENTS) if b.is_constant(mask) else None
    if array is None:
        return None
    if array.dtype != np.bool_:
        wide = array.astype(np.float64)
        if not ((wide == 0) | (wide <= _AS_GOOD_AS_INFINITE)).all():
            return None
        array = wide == 0
    if array.all():
        return "all"
    return "causal" if array.shape[-2:] == scores[2:] and (array == np.tri(*scores[2:], dtype=bool)).all() else None


ATTENTION_RULES = (recognize_rope, recognize_attention, scale_in_attention, share_heads, mask_in_attention)
