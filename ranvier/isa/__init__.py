"""The instruction set: one record per instruction, and everything that is derived from them."""

from __future__ import annotations

from ranvier.isa import dma, gpsimd, scalar, tensor_engine, vector, vector_reduce, vector_select
from ranvier.isa.record import REGISTRY

__all__ = ["REGISTRY", "dma", "gpsimd", "scalar", "tensor_engine", "vector", "vector_reduce", "vector_select"]
