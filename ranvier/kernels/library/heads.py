"""Attention and rotary embedding, for tensors [batch, heads, positions, size of a head]."""

from __future__ import annotations

import math

import numpy as np

from ranvier import nki
from ranvier.kernels import attention as tiles
from ranvier.kernels.library.arguments import expect, expect_shape, wide
from ranvier.kernels.matmul import spans
from ranvier.kernels.sizes import PARTITIONS
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl
from ranvier.nki.tensor import NkiTensor

KEY_BYTES = 48 * 1024
"""Bytes per partition that the keys and values of the heads that are worked on together may take."""
TURNED_BYTES = 2048
"""Bytes per partition of transposes that leave PSUM together: one bank."""
PADDING = -1.0e30
"""Added to scores of keys that are padding, before scaling: far below any score."""
HIDDEN = -3.0e38
"""Added to scores of later keys, after scaling: far below padding, so that no query reaches for the future."""


@nki.jit
def attention(query, key, value, key_mask=None, causal=False, scale=None):
    """softmax(scale * q k^T + mask) v for query [B, H, S, D], key [B, G, L, D] and value [B, G, L, E]: [B, H, S, E].

    H is a multiple of G; query head h uses key head h // (H / G). `key_mask` [B, L] holds 1 for keys that count and 0
    for padding, in any dtype; with `causal` query i sees keys 0 to i. `scale` is by default 1 / sqrt(D). A query that
    sees nothing but padding gets the mean of the values that it sees.

    The operands have the same dtype, float32 or one of 16 bits, and so has the result. Scores, their maxima,
    exponentials and sums are float32; the exponentials are rounded to the dtype of the values before they weigh them,
    and the result is rounded once. Whole rows of scores are on chip, which with heads of 128 elements of 16 bits goes
    up to L = 16,000 (12,000 with `causal`); E is at most 512.
    """
    (batch, heads, q_len, size), (_, kv_heads, k_len, _) = query.shape, key.shape
    expect(heads % kv_heads == 0, "query", f"query has {heads} heads, no multiple of the {kv_heads} of key")
    expect_shape("key", key, (batch, kv_heads, k_len, size))
    expect_shape("value", value, (batch, kv_heads, k_len, value.shape[-1]))
    expect_shape("key_mask", key_mask, (batch, k_len))
    width, shared = value.shape[-1], heads // kv_heads
    out = nl.ndarray((batch, heads, q_len, width), dtype=query.dtype, buffer=nl.shared_hbm)
    masks = _Masks(key_mask, causal, query.dtype)
    scale = size**-0.5 if scale is None else scale
    per_head = (math.ceil(size / PARTITIONS) * k_len + math.ceil(k_len / PARTITIONS) * width) * key.dtype.itemsize
    for b in range(batch):
        padding = masks.row(b)
        for g0, g in spans(kv_heads, max(1, KEY_BYTES // per_head)):
            keys = _turned(key[b, g0 : g0 + g])
            values = _positions(value[b, g0 : g0 + g])
            own = slice(g0 * shared, (g0 + g) * shared)
            for q0, q in spans(q_len, PARTITIONS):
                count = min(k_len, q0 + q) if causal else k_len
                queries = _turned(query[b, own, q0 : q0 + q])
                mask = masks.tile(q0, q, count)
                operands = tiles.Heads(
                    queries=[[piece[:, h, :] for piece in queries] for h in range(g * shared)],
                    keys=[[piece[:, h // shared, :count] for piece in keys] for h in range(g * shared)],
                    values=[_first(values, h // shared, count) for h in range(g * shared)],
                    scale=scale,
                    row_mask=padding,
                    mask=None if mask is None else lambda h, mask=mask: mask,
                )
                dst = nl.ndarray((q, g * shared, width), dtype=out.dtype, buffer=nl.sbuf)
                tiles.attention(dst, operands)
                nisa.dma_copy(dst=out[b, own, q0 : q0 + q].permute((1, 0, 2)), src=dst)
    return out


def attention_reference(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, key_mask: np.ndarray | None = None, causal: bool = False,
    scale: float | None = None,
) -> np.ndarray:  # fmt: skip
    """The same in float64, rounded nowhere."""
    shared = query.shape[1] // key.shape[1]
    keys, values = np.repeat(wide(key), shared, 1), np.repeat(wide(value), shared, 1)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = wide(query) @ keys.swapaxes(-1, -2) * factor
    if key_mask is not None:
        scores = np.where(wide(key_mask)[:, None, None, :] != 0, scores, PADDING)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers @ values / powers.sum(-1, keepdims=True)


def _positions(heads: NkiTensor) -> list[NkiTensor]:
    """[H, L, D] in HBM as tiles [<= 128 positions, H, D]."""
    by_position = heads.permute((1, 0, 2))
    return [nl.load(by_position[start : start + size]) for start, size in spans(heads.shape[1], PARTITIONS)]


def _first(values: list[NkiTensor], head: int, count: int) -> list[NkiTensor]:
    """Tiles of the first `count` positions of one head."""
    return [values[start // PARTITIONS][:size, head, :] for start, size in spans(count, PARTITIONS)]


def _turned(heads: NkiTensor) -> list[NkiTensor]:
    """[H, L, D] in HBM as tiles [<= 128 of D, H, L], through transposes on the tensor engine."""
    count, length, size = heads.shape
    turned = [nl.ndarray((d, count, length), dtype=heads.dtype, buffer=nl.sbuf) for _, d in spans(size, PARTITIONS)]
    for (l0, n), tile in zip(spans(length, PARTITIONS), _positions(heads), strict=True):
        for h0, group in spans(count, max(1, TURNED_BYTES // (n * heads.dtype.itemsize))):
            for (d0, d), dst in zip(spans(size, PARTITIONS), turned, strict=True):
                bank = nl.ndarray((d, group, n), dtype=heads.dtype, buffer=nl.psum)
                for h in range(group):
                    nisa.nc_transpose(dst=bank[:, h, :], data=tile[:, h0 + h, d0 : d0 + d])
                nisa.tensor_copy(dst=dst[:, h0 : h0 + group, l0 : l0 + n], src=bank)
    return turned


class _Masks:
    """What is added to the scores."""

    def __init__(self, key_mask: NkiTensor | None, causal: bool, dtype: object):
        self.key_mask, self.causal = key_mask, causal
        # A column of ones times the row is added by the tensor engine, which multiplies float32 with float32 only.
        # float16 could not hold the number; bfloat16 can.
        self.dtype = nl.float32 if dtype is nl.float32 else nl.bfloat16
        self.ones: NkiTensor | None = None

    def row(self, b: int) -> tuple[NkiTensor, NkiTensor] | None:
        """Ones [1, 128], and [1, L] with 0 for keys that count and PADDING for the others."""
        if self.key_mask is None:
            return None
        if self.ones is None:
            self.ones = nl.ones((1, PARTITIONS), dtype=self.dtype)
        counts = nl.load(self.key_mask[b : b + 1])
        row = nl.ndarray(counts.shape, dtype=self.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=row, data=counts, op0=nl.subtract, operand0=1.0, op1=nl.multiply, operand1=-PADDING)
        return self.ones, row

    def tile(self, q0: int, q: int, count: int) -> NkiTensor | None:
        """[q, count] with HIDDEN for keys after the query, else 0: query q0 + p sees key k if q0 + p - k >= 0."""
        if not self.causal:
            return None
        zeros = nl.zeros((q, count), dtype=nl.float32)
        tile = nl.ndarray((q, count), dtype=nl.float32, buffer=nl.sbuf)
        nisa.affine_select(
            dst=tile, pattern=[[-1, count]], offset=q0, channel_multiplier=1, on_true_tile=zeros, on_false_value=HIDDEN,
            cmp_op=nl.greater_equal,
        )  # fmt: skip
        return tile


HEAD_BYTES = 16 * 1024
"""Bytes per partition, in float32, of the heads that are rotated together."""


@nki.jit
def rope(x, cos, sin):
    """x * cos + rotated * sin for x [..., S, D] and cos, sin [S, D], where rotated is (-x2, x1) for the halves of x.

    x is float32 or has 16 bits, and the result has its dtype; cos and sin may have others. Both products and the sum
    are float32, and only the result is rounded. D is even: element i and
    element i + D / 2 are a pair.
    """
    s_size, size = x.shape[-2:]
    expect(size % 2 == 0, "x", f"x has {size} elements in its last axis; they are pairs")
    expect_shape("cos", cos, (s_size, size))
    expect_shape("sin", sin, (s_size, size))
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    heads = math.prod(x.shape[:-2])
    data, result = (t.reshape((heads, s_size, size)).permute((1, 0, 2)) for t in (x, out))
    for s0, s in spans(s_size, PARTITIONS):
        factors = nl.load(cos[s0 : s0 + s]), nl.load(sin[s0 : s0 + s])
        for h0, h in spans(heads, max(1, HEAD_BYTES // (size * 4))):
            tile = nl.load(data[s0 : s0 + s, h0 : h0 + h])
            dst = nl.ndarray((s, h, size), dtype=x.dtype, buffer=nl.sbuf)
            _rotate(dst, tile, *(factor.expand_dim(1).broadcast(1, h) for factor in factors))
            nisa.dma_copy(dst=result[s0 : s0 + s, h0 : h0 + h], src=dst)
    return out


def rope_reference(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """The same in float64, rounded nowhere."""
    first, second = np.split(wide(x), 2, -1)
    return wide(x) * wide(cos) + np.concatenate([-second, first], -1) * wide(sin)


def _rotate(dst: NkiTensor, data: NkiTensor, cos: NkiTensor, sin: NkiTensor) -> None:
    """dst = data * cos + rotated * sin for [P, heads, D] tiles."""
    half = data.shape[2] // 2
    scaled = nl.ndarray(data.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=scaled, data1=data, data2=cos, op=nl.multiply)
    turned = nl.ndarray(data.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.scalar_tensor_tensor(
        dst=turned[:, :, :half], data=data[:, :, half:], op0=nl.multiply, operand0=-1.0, op1=nl.multiply,
        operand1=sin[:, :, :half],
    )  # fmt: skip
    nisa.tensor_tensor(dst=turned[:, :, half:], data1=data[:, :, :half], data2=sin[:, :, half:], op=nl.multiply)
    nisa.tensor_tensor(dst=dst, data1=scaled, data2=turned, op=nl.add)
