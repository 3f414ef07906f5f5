"""Matrix multiplication in tiles on the tensor engine, with the left operand given transposed.

    python examples/matmul_tiled.py
"""

import ml_dtypes
import numpy as np

import ranvier.nki.isa as nisa
import ranvier.nki.language as nl
from ranvier import nki


@nki.jit
def matmul_tiled(lhs_t, rhs):
    """lhs_t^T @ rhs for HBM tensors lhs_t [K, M] and rhs [K, N]; K and M multiples of 128, N of 512. Dtype as lhs_t."""
    k_size, m_size = lhs_t.shape
    k_size_, n_size = rhs.shape
    assert k_size == k_size_, "lhs_t and rhs must agree in their first dimension"
    tile_k, tile_m, tile_n = nl.tile_size.pmax, nl.tile_size.gemm_stationary_fmax, nl.tile_size.gemm_moving_fmax
    assert k_size % tile_k == 0 and m_size % tile_m == 0 and n_size % tile_n == 0
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)

    for m in nl.affine_range(m_size // tile_m):
        columns = nl.ds(m * tile_m, tile_m)
        # The stationary tiles of this row of blocks stay on chip while the moving ones stream past.
        stationary = nl.ndarray((tile_k, k_size // tile_k, tile_m), dtype=lhs_t.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(k_size // tile_k):
            nisa.dma_copy(dst=stationary[:, k, :], src=lhs_t[nl.ds(k * tile_k, tile_k), columns])
        for n in nl.affine_range(n_size // tile_n):
            # One PSUM bank; the first matmul overwrites it, the others add.
            product = nl.ndarray((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // tile_k):
                moving = nl.load(rhs[nl.ds(k * tile_k, tile_k), nl.ds(n * tile_n, tile_n)])
                nisa.nc_matmul(dst=product, stationary=stationary[:, k, :], moving=moving)
            result = nl.ndarray((tile_m, tile_n), dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=product)
            nisa.dma_copy(dst=out[columns, nl.ds(n * tile_n, tile_n)], src=result)
    return out


def main() -> None:
    rng = np.random.default_rng(0)
    lhs = (rng.standard_normal((256, 384)) / 384**0.5).astype(ml_dtypes.bfloat16)
    rhs = rng.standard_normal((384, 1024)).astype(ml_dtypes.bfloat16)
    result = matmul_tiled(np.ascontiguousarray(lhs.T), rhs)
    expected = lhs.astype(np.float64) @ rhs.astype(np.float64)
    error = np.abs(result.astype(np.float64) - expected) / np.maximum(np.abs(expected), 1.0)
    assert error.max() < 2.0**-8, error.max()  # sums are float32; one rounding to bfloat16
    print(f"matmul of {lhs.shape} and {rhs.shape} {lhs.dtype}: largest error {error.max():.1e}")


if __name__ == "__main__":
    main()
