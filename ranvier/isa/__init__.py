"""The instruction set: one record per instruction, and everything that is derived from them."""

from __future__ import annotations

from ranvier.isa import (
    dma,
    gpsimd,
    gpsimd_search,
    scalar,
    tensor_engine,
    vector,
    vector_random,
    vector_reduce,
    vector_select,
)
from ranvier.isa.record import REGISTRY

__all__ = [
    "REGISTRY",
    "dma",
    "gpsimd",
    "gpsimd_search",
    "scalar",
    "tensor_engine",
    "vector",
    "vector_random",
    "vector_reduce",
    "vector_select",
]
