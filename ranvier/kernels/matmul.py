"""Matrix multiplication on the tensor engine."""

from __future__ import annotations

from collections.abc import Sequence

from ranvier.nki import isa as nisa
from ranvier.nki import language as nl
from ranvier.nki.tensor import NkiTensor

PARTITIONS = 128
STATIONARY_COLUMNS = 128
MOVING_COLUMNS = 512


def spans(size: int, step: int) -> list[tuple[int, int]]:
    """(start, length) of the pieces of `size` that are at most `step` long."""
    return [(start, min(step, size - start)) for start in range(0, size, step)]


def accumulate(dst: NkiTensor, stationary: Sequence[NkiTensor], moving: Sequence[NkiTensor], first: bool = True) -> None:
    """dst [M, N] in PSUM (+)= sum over i of stationary[i]^T [K_i, M] x moving[i] [K_i, N]; overwrites if `first`."""
    for i, (s, m) in enumerate(zip(stationary, moving, strict=True)):
        nisa.nc_matmul(dst=dst, stationary=s, moving=m, accumulate=not first or i > 0)


def matmul(lhs_t: NkiTensor, rhs: NkiTensor) -> NkiTensor:
    """lhs_t^T x rhs for HBM tensors lhs_t [K, M] and rhs [K, N]; the result [M, N] has lhs_t's dtype. Any sizes.

    The right operand is kept on chip in blocks of 512 columns; the left operand's tiles are loaded once per block.
    """
    k_size, m_size = lhs_t.shape
    _, n_size = rhs.shape
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for n0, n in spans(n_size, MOVING_COLUMNS):
        moving = []
        for k0, k in spans(k_size, PARTITIONS):
            tile = nl.ndarray((k, n), dtype=rhs.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=rhs[k0 : k0 + k, n0 : n0 + n])
            moving.append(tile)
        for m0, m in spans(m_size, STATIONARY_COLUMNS):
            stationary = []
            for k0, k in spans(k_size, PARTITIONS):
                tile = nl.ndarray((k, m), dtype=lhs_t.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=lhs_t[k0 : k0 + k, m0 : m0 + m])
                stationary.append(tile)
            acc = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
            accumulate(acc, stationary, moving)
            result = nl.ndarray((m, n), dtype=lhs_t.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=acc)
            nisa.dma_copy(dst=out[m0 : m0 + m, n0 : n0 + n], src=result)
    return out
