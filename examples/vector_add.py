"""The smallest kernel: add two matrices, tile by tile.

    python examples/vector_add.py
"""

import numpy as np

import ranvier.nki.isa as nisa
import ranvier.nki.language as nl
from ranvier import nki


@nki.jit
def vector_add(a, b):
    """a + b for two HBM tensors of one shape [M, N] and dtype; any sizes."""
    assert a.shape == b.shape and a.dtype == b.dtype
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for row in nl.affine_range(0, rows, nl.tile_size.pmax):
        for column in nl.affine_range(0, columns, 512):
            # The last tile of a row or column may be smaller: slices never reach outside their tensor.
            part = (slice(row, min(row + nl.tile_size.pmax, rows)), slice(column, min(column + 512, columns)))
            a_tile = nl.load(a[part])
            b_tile = nl.load(b[part])
            sum_tile = nl.ndarray(a_tile.shape, dtype=a.dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=sum_tile, data1=a_tile, data2=b_tile, op=nl.add)
            nl.store(out[part], sum_tile)
    return out


def main() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 300, 1000)).astype(np.float32)
    result = vector_add(a, b)
    assert np.array_equal(result, a + b)
    print(f"vector_add of {a.shape} {a.dtype}: {len(vector_add.record(a, b).body)} instructions, result exact")


if __name__ == "__main__":
    main()
