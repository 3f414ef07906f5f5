"""The kernel language NKI: write kernels by hand, run them on the simulator, record them for the compiler.

Example::

    from ranvier import nki
    from ranvier.nki import isa as nisa, language as nl

    @nki.jit
    def double(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.multiply(nl.load(x), 2.0))
        return out

`install` makes the package importable as `nki`, so that existing kernels run as they are.
"""

from typing import Any

from ranvier.nki import isa, language, typing
from ranvier.nki.alias import install
from ranvier.nki.jit import JitKernel, TensorSpec, jit, simulate
from ranvier.nki.tensor import fail

__all__ = ["JitKernel", "TensorSpec", "install", "isa", "jit", "language", "simulate", "typing"]


def __getattr__(name: str) -> Any:
    if name == "collectives":
        raise fail("E0104", "nki.collectives", fix="kernels run on one core; collectives are not available")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
