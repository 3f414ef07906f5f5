"""The kernel language NKI: write kernels by hand, run them on the simulator, record them for the compiler.

from ranvier import nki
from ranvier.nki import isa as nisa, language as nl

@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out
"""

from ranvier.nki import isa, language
from ranvier.nki.jit import JitKernel, TensorSpec, jit, simulate

__all__ = ["JitKernel", "TensorSpec", "isa", "jit", "language", "simulate"]
