"""The kernel language, `nki.language` (usually imported as `nl`): tensors, movement, math, loops.

Everything here is made of instructions of `nki.isa`; a function adds a few of them to the kernel that is being run or
recorded. Functions that name an operation of the engines also serve as the `op` of an instruction: `op=nl.add`.
"""
# ruff: noqa: I001 - a name a line would be three screens of imports

from __future__ import annotations

import builtins
from types import MappingProxyType
from typing import Any

from ranvier.dtypes import (
    bfloat16, bool_, float8_e4m3, float8_e4m3fn, float8_e5m2, float16, float32, int8, int16, int32, uint8, uint16,
    uint32,
)  # fmt: skip
from ranvier.isa.act import ACT
from ranvier.isa.alu import ALU
from ranvier.nki.control import (
    affine_range, device_print, no_reorder, num_programs, program_id, program_ndim, sequential_range, static_range,
    tile_size,
)  # fmt: skip
from ranvier.nki.create import (
    broadcast_to, copy, ds, empty_like, expand_dims, full, hbm, is_hbm, is_on_chip, is_psum, is_sbuf, load,
    load_transpose2d, ndarray, ones, private_hbm, psum, sbuf, shared_constant, shared_hbm, shared_identity_matrix,
    store, zeros, zeros_like,
)  # fmt: skip
from ranvier.nki.elementwise import (
    abs, abs_max, abs_min, add, arctan, bitwise_and, bitwise_or, bitwise_xor, ceil, cos, equal, erf, erf_dx, exp,
    floor, gelu, gelu_apprx_sigmoid, gelu_apprx_sigmoid_dx, gelu_apprx_tanh, gelu_dx, greater, greater_equal, invert,
    left_shift, less, less_equal, log, logical_and, logical_not, logical_or, logical_xor, maximum, minimum, mish,
    multiply, negative, not_equal, power, reciprocal, relu, right_shift, rsqrt, sigmoid, sign, silu, silu_dx, sin,
    softplus, sqrt, square, subtract, tan, tanh, trunc, where,
)  # fmt: skip
from ranvier.nki.reductions import (
    all, dropout, gather_flattened, matmul, max, mean, min, prod, rand, random_seed, rms_norm, softmax, sum, transpose,
    var,
)  # fmt: skip
from ranvier.nki.tensor import DynamicSlice, MemoryRegion, NkiTensor, fail

__all__ = [
    "DynamicSlice", "MemoryRegion", "NkiTensor", "abs", "abs_max", "abs_min", "add", "affine_range", "all", "arctan",
    "bfloat16", "bitwise_and", "bitwise_or", "bitwise_xor", "bool_", "broadcast_to", "bypass", "ceil", "copy", "cos",
    "device_print", "dropout", "ds", "empty_like", "equal", "erf", "erf_dx", "exp", "expand_dims", "float8_e4m3",
    "float8_e4m3fn", "float8_e5m2", "float16", "float32", "floor", "full", "gather_flattened", "gelu",
    "gelu_apprx_sigmoid", "gelu_apprx_sigmoid_dx", "gelu_apprx_tanh", "gelu_dx", "greater", "greater_equal", "hbm",
    "int8", "int16", "int32", "invert", "is_hbm", "is_on_chip", "is_psum", "is_sbuf", "left_shift", "less",
    "less_equal", "load", "load_transpose2d", "log", "logical_and", "logical_not", "logical_or", "logical_xor",
    "matmul", "max", "maximum", "mean", "min", "minimum", "mish", "multiply", "ndarray", "negative", "no_reorder",
    "not_equal", "num_programs", "ones", "power", "prelu", "private_hbm", "prod", "program_id", "program_ndim", "psum",
    "rand",
    "random_seed", "range", "reciprocal", "relu", "right_shift", "rms_norm", "rsqrt", "sbuf", "sequential_range",
    "shared_constant", "shared_hbm", "shared_identity_matrix", "sigmoid", "sign", "silu", "silu_dx", "sin", "softmax",
    "softplus", "sqrt", "square", "static_range", "store", "subtract", "sum", "tan", "tanh", "tile_size", "transpose",
    "trunc", "uint8", "uint16", "uint32", "var", "where", "zeros", "zeros_like",
]  # fmt: skip

range = builtins.range
"""Loops are unrolled while the kernel is made: Python's own range."""

bypass = ALU["bypass"]
"""The operation that passes its first operand through."""

prelu = ACT["prelu"]
"""The activation function x for x > 0, slope * x below; the slope is the relu_param of nki.isa.activate2."""

_LOOPS = "use a loop with bounds that are known while the kernel is made; it is unrolled"
_REMAINDER = "no engine has an instruction for it; subtract multiply(floor(multiply(x, reciprocal(y))), y)"
_SLICES = "index with slices: x[0:128, i * 512 : (i + 1) * 512]; there are no masks, so cut with min()"
_ONE_CORE = "kernels run on one core"
_MX = "MX formats are not available; use bfloat16 or float8 tiles"
NOT_AVAILABLE = MappingProxyType({
    "divide": "no engine has an instruction for it; multiply by the reciprocal",
    "fmod": _REMAINDER,
    "mod": _REMAINDER,
    "fori_loop": _LOOPS,
    "while_loop": _LOOPS,
    "dynamic_range": _LOOPS,
    "average": "reduce with nl.add and scale the result",
    "tfloat32": "use float32 or bfloat16",
    "float8_e8m0fnu": _MX,
    "float8_e5m2_x4": _MX,
    "float8_e4m3fn_x4": _MX,
    "float4_e2m1fn_x4": _MX,
    "NKIObject": "use a dataclass",
    # Of the first NKI, and no longer part of it:
    "arange": _SLICES,
    "mgrid": _SLICES,
    "par_dim": "leave it out: dimension 0 is the partition dimension",
    "loop_reduce": "accumulate with nl.add, or in PSUM with nc_matmul",
    "atomic_rmw": "load, compute and store",
    "static_cast": "copy into a tile of the other dtype with nl.copy",
    "nc": _ONE_CORE,
    "spmd_dim": _ONE_CORE,
})  # fmt: skip
"""Names of NKI, present and past, that are not available here, and what to use instead."""


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in NOT_AVAILABLE:
        raise fail("E0104", f"nki.language.{name}", fix=NOT_AVAILABLE[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
