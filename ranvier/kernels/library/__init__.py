"""Whole kernels: HBM tensors in, HBM tensors out, sizes as they come. Each has a reference in float64 beside it.

    from ranvier.kernels import library
    library.matmul(lhs_t, rhs)                     # on arrays: runs on the simulated core
    ranvier.benchmark(library.matmul)(lhs_t, rhs)  # how long it takes

Inside another kernel they are functions on HBM tensors. They are made of the functions on tiles in `ranvier.kernels`,
which the compiler uses as well.
"""

from ranvier.kernels.library.gather import embedding, embedding_reference
from ranvier.kernels.library.heads import attention, attention_reference, rope, rope_reference
from ranvier.kernels.library.products import matmul, matmul_reference, mlp, mlp_reference
from ranvier.kernels.library.rows import (
    layer_norm,
    layer_norm_reference,
    log_softmax,
    log_softmax_reference,
    rms_norm,
    rms_norm_reference,
    softmax,
    softmax_reference,
)

__all__ = [
    "attention", "attention_reference", "embedding", "embedding_reference", "layer_norm", "layer_norm_reference",
    "log_softmax", "log_softmax_reference", "matmul", "matmul_reference", "mlp", "mlp_reference", "rms_norm",
    "rms_norm_reference", "rope", "rope_reference", "softmax", "softmax_reference",
]  # fmt: skip
