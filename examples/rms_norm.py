"""RMS normalization: x / sqrt(mean(x^2) + epsilon) * weight, one row per partition, and where it runs.

    python examples/rms_norm.py
"""

import ml_dtypes
import numpy as np

import ranvier.nki.isa as nisa
import ranvier.nki.language as nl
from ranvier import nki


@nki.jit
def rms_norm(x, weight, epsilon=1e-6):
    """Rows of x [M, N] normalized and scaled by weight [1, N], in x's dtype; statistics are float32. Any M."""
    rows, columns = x.shape
    pmax = nl.tile_size.pmax
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    # The weight is the same for all rows: a DMA reads it once for each partition, by a stride of 0.
    weight_tile = nl.ndarray((pmax, columns), dtype=weight.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=weight_tile, src=weight.broadcast(0, pmax))

    for start in nl.affine_range(0, rows, pmax):
        size = min(pmax, rows - start)
        tile = nl.load(x[start : start + size])

        # Scalar engine: squares, summed up while they stream through.
        squares = nl.ndarray((size, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(dst=squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)

        # 1 / sqrt(total / N + epsilon), one value per row.
        scale = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=scale, data=total, op0=nl.multiply, operand0=1.0 / columns, op1=nl.add, operand1=epsilon)
        nisa.activation(dst=scale, op=nl.rsqrt, data=scale)

        # Vector engine: both products in one pass.
        result = nl.ndarray((size, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=result, data=tile, op0=nl.multiply, operand0=scale, op1=nl.multiply, operand1=weight_tile[:size]
        )
        nl.store(out[start : start + size], result)
    return out


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 768)).astype(ml_dtypes.bfloat16)
    weight = rng.uniform(0.5, 1.5, (1, 768)).astype(np.float32)
    result = rms_norm(x, weight)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-6) * weight
    error = np.abs(result.astype(np.float64) - expected) / np.maximum(np.abs(expected), 1.0)
    assert error.max() < 2.0**-8, error.max()  # one rounding to bfloat16
    print(f"rms_norm of {x.shape} {x.dtype}: largest error {error.max():.1e}")


if __name__ == "__main__":
    main()
