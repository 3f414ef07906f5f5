"""A row softmax written by hand: run on the simulated core, checked, and timed.

    python examples/softmax_kernel.py
    ranvier profile examples/softmax_kernel.py:example
"""

import numpy as np

import ranvier
from ranvier import nki
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl


@nki.jit
def softmax(x):
    """Softmax along the last axis of x [128, n], in float32."""
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=x)
    largest = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=rows, axis=1, negate=True)
    powers = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(dst=powers, op=nl.exp, data=rows, bias=largest, reduce_op=nl.add, reduce_res=total)
    share = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=share, data=total)
    scaled = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=scaled, data=powers, op0=nl.multiply, operand0=share)
    nisa.dma_copy(dst=result, src=scaled)
    return result


def example():
    """The kernel and arguments for it."""
    return softmax, (np.random.default_rng(0).standard_normal((128, 512), np.float32),)


def main() -> None:
    kernel, (x,) = example()
    shifted = np.exp(x - x.max(axis=1, keepdims=True))
    expected = shifted / shifted.sum(axis=1, keepdims=True)
    print(f"largest difference from numpy: {np.abs(kernel(x) - expected).max():.2g}")
    ranvier.check(kernel, (x,)).raise_if_failed()
    ranvier.benchmark(kernel, target="trn2")(x)


if __name__ == "__main__":
    main()
