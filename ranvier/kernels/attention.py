"""Scaled dot-product attention on one core, whole rows of scores at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ranvier.kernels.matmul import spans
from ranvier.kernels.sizes import BANK_COLUMNS
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl
from ranvier.nki.tensor import NkiTensor

MASKED = -1.0e30
"""Added to scores that do not count: finite, so that no inf - inf arises, and far below any score."""
EMPTY_MAX = 1.0e25
"""Beyond any score, and far nearer to zero than a masked one."""
LEAST_TOTAL = 1.0e-30
"""Below any sum of powers: the largest of them is 1."""


@dataclass(frozen=True)
class Heads:
    """The operands of one batch entry and one chunk of at most 128 queries, for all heads that share them.

    queries[h] is [D, Q] and keys[h] is [D, K] in SBUF (head dimension on partitions, several pieces if D > 128);
    values[h] lists [<=128 keys, Dv] tiles. `row_mask` [1, K] is added to every query's scores, before scaling;
    `mask(h)` gives a [Q, K] tile added after scaling, or None. With `may_be_empty` a query may have no key at all
    (`MASKED` is added to every score of it): its result is zero.
    """

    queries: Sequence[Sequence[NkiTensor]]
    keys: Sequence[Sequence[NkiTensor]]
    values: Sequence[Sequence[NkiTensor]]
    scale: float
    row_mask: tuple[NkiTensor, NkiTensor] | None = None
    mask: Callable[[int], NkiTensor] | None = None
    may_be_empty: bool = False


def attention(dst: NkiTensor, heads: Heads) -> None:
    """dst [Q, H, Dv] = softmax(scale * q k^T + mask) v for every head h; float32 scores, sums and normalization."""
    count = len(heads.queries)
    q_size, _, dv = dst.shape
    k_size = heads.keys[0][0].shape[-1]
    together = max(1, BANK_COLUMNS // k_size)
    totals = nl.ndarray((q_size, count), dtype=nl.float32, buffer=nl.sbuf)
    per_bank = max(1, BANK_COLUMNS // dv)
    inverse = nl.ndarray((q_size, count), dtype=nl.float32, buffer=nl.sbuf)
    for o0, outputs in spans(count, per_bank):
        out = nl.ndarray((q_size, outputs, dv), dtype=nl.float32, buffer=nl.psum)
        for h0, group in spans(outputs, together):
            first = o0 + h0
            powers = _powers(heads, first, group, q_size, k_size, totals)
            _weighted_values(out[:, h0 : h0 + group, :], powers, heads.values[first : first + group])
        span = slice(o0, o0 + outputs)
        if heads.may_be_empty:  # 0 / 0 would be NaN
            nisa.tensor_scalar(dst=totals[:, span], data=totals[:, span], op0=nl.maximum, operand0=LEAST_TOTAL)
        nisa.reciprocal(dst=inverse[:, span], data=totals[:, span])
        factor = inverse[:, span].expand_dim(2).broadcast(2, dv)
        nisa.tensor_tensor(dst=dst[:, span, :], data1=out, data2=factor, op=nl.multiply)


def _powers(
    heads: Heads, first: int, group: int, q_size: int, k_size: int, totals: NkiTensor
) -> NkiTensor:
    """exp(scores - max) [Q, group, K] in the dtype of the values; the row sums go to `totals`."""
    scores = _scores(heads, first, group, q_size, k_size)
    on_psum = heads.mask is None and k_size <= BANK_COLUMNS
    scale = heads.scale if on_psum else 1.0
    negative_max = nl.ndarray((q_size, group), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=negative_max, op=nl.maximum, data=scores, axis=2, negate=True)
    if scale != 1.0 or heads.may_be_empty:
        # A maximum as low as that of a query without keys is replaced by one far above its scores: their powers are 0.
        limit = {"op1": nl.minimum, "operand1": EMPTY_MAX} if heads.may_be_empty else {}
        scaled = nl.ndarray((q_size, group), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=scaled, data=negative_max, op0=nl.multiply, operand0=scale, **limit)
        negative_max = scaled
    powers = nl.ndarray((q_size, group, k_size), dtype=heads.values[first][0].dtype, buffer=nl.sbuf)
    for h in range(group):
        nisa.activation_reduce(
            dst=powers[:, h, :],
            op=nl.exp,
            data=scores[:, h, :],
            reduce_op=nl.add,
            reduce_res=totals[:, first + h : first + h + 1],
            bias=negative_max[:, h : h + 1],
            scale=scale,
        )
    return powers


def _scores(heads: Heads, first: int, group: int, q_size: int, k_size: int) -> NkiTensor:
    """Scores [Q, group, K]: unscaled in PSUM if nothing else is added, else scaled and masked in SBUF."""
    if heads.mask is None and k_size <= BANK_COLUMNS:
        scores = nl.ndarray((q_size, group, k_size), dtype=nl.float32, buffer=nl.psum)
        _products(scores, heads, first, group, 0, k_size)
        return scores
    scores = nl.ndarray((q_size, group, k_size), dtype=nl.float32, buffer=nl.sbuf)
    for k0, k in spans(k_size, BANK_COLUMNS):
        product = nl.ndarray((q_size, group, k), dtype=nl.float32, buffer=nl.psum)
        _products(product, heads, first, group, k0, k)
        part = scores[:, :, k0 : k0 + k]
        if heads.mask is None:
            nisa.tensor_scalar(dst=part, data=product, op0=nl.multiply, operand0=heads.scale)
            continue
        for h in range(group):
            nisa.scalar_tensor_tensor(
                dst=part[:, h, :],
                data=product[:, h, :],
                op0=nl.multiply,
                operand0=heads.scale,
                op1=nl.add,
                operand1=heads.mask(first + h)[:, k0 : k0 + k],
            )
    return scores


def _products(dst: NkiTensor, heads: Heads, first: int, group: int, k0: int, k: int) -> None:
    """dst [Q, group, k] = q k^T (+ the row mask, by a product with a column of ones) for keys k0 .. k0 + k."""
    if heads.row_mask is not None:
        ones, mask = heads.row_mask
        for h in range(group):
            nisa.nc_matmul(
                dst=dst[:, h, :], stationary=ones[:, : dst.shape[0]], moving=mask[:, k0 : k0 + k], accumulate=False
            )
    for h in range(group):
        pieces = zip(heads.queries[first + h], heads.keys[first + h], strict=True)
        for i, (query, key) in enumerate(pieces):
            nisa.nc_matmul(
                dst=dst[:, h, :],
                stationary=query,
                moving=key[:, k0 : k0 + k],
                accumulate=i > 0 or heads.row_mask is not None,
            )


def _weighted_values(dst: NkiTensor, powers: NkiTensor, values: Sequence[Sequence[NkiTensor]]) -> None:
    """dst [Q, group, Dv] in PSUM = powers [Q, group, K] x values, head by head, through transposed powers."""
    q_size, group, _ = powers.shape
    starts = [0]
    for tile in values[0]:
        starts.append(starts[-1] + tile.shape[0])
    for i in range(len(values[0])):
        k0, k = starts[i], starts[i + 1] - starts[i]
        turned = nl.ndarray((k, group, q_size), dtype=powers.dtype, buffer=nl.psum)
        for h in range(group):
            nisa.nc_transpose(dst=turned[:, h, :], data=powers[:, h, k0 : k0 + k])
        columns = nl.ndarray((k, group, q_size), dtype=powers.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=columns, src=turned)
        for h in range(group):
            nisa.nc_matmul(dst=dst[:, h, :], stationary=columns[:, h, :], moving=values[h][i], accumulate=i > 0)
