"""The kernel language, `nki.language` (usually imported as `nl`): tensors, movement, math, loops.

Everything here is made of instructions of `nki.isa`; a function adds a few of them to the kernel that is being run or
recorded. Functions that name an operation of the engines also serve as the `op` of an instruction: `op=nl.add`.
"""

from __future__ import annotations

from ranvier.dtypes import (
    bfloat16, bool_, float8_e4m3, float8_e4m3fn, float8_e5m2, float16, float32, int8, int16, int32, uint8, uint16, uint32,
)  # fmt: skip
from ranvier.nki.create import (
    broadcast_to, copy, ds, empty_like, expand_dims, full, hbm, is_hbm, is_on_chip, is_psum, is_sbuf, load,
    load_transpose2d, ndarray, ones, private_hbm, psum, sbuf, shared_constant, shared_hbm, shared_identity_matrix, store,
    zeros, zeros_like,
)  # fmt: skip
