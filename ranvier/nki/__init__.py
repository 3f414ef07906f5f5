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

from types import MappingProxyType
from typing import Any

from ranvier.nki import isa, language, typing
from ranvier.nki.alias import install
from ranvier.nki.jit import JitKernel, TensorSpec, jit, simulate
from ranvier.nki.tensor import fail

__all__ = ["JitKernel", "TensorSpec", "install", "isa", "jit", "language", "simulate", "typing"]


_BENCHMARK = "call ranvier.benchmark(kernel)(...), which times a kernel and says where the time goes"
NOT_AVAILABLE = MappingProxyType({
    "collectives": "kernels run on one core; collectives are not available",
    # Of the first NKI, and no longer part of it:
    "baremetal": "call the kernel itself: it runs on the simulated core",
    "benchmark": _BENCHMARK,
    "profile": _BENCHMARK,
    "simulate_kernel": "call nki.simulate(kernel)(...), or the kernel itself",
})  # fmt: skip
"""Names of NKI, present and past, that are not available here, and what to use instead."""


def __getattr__(name: str) -> Any:
    if name in NOT_AVAILABLE:
        raise fail("E0104", f"nki.{name}", fix=NOT_AVAILABLE[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
