"""Torch tensors and dtypes as those of this package, and back, without a copy wherever memory can be shared."""

from __future__ import annotations

import functools
import zlib

import numpy as np
import torch

from ranvier import dtypes
from ranvier.dtypes import DType
from ranvier.errors import error

_FROM_TORCH: dict[torch.dtype, DType] = {
    torch.float32: dtypes.float32,
    torch.float64: dtypes.float64,
    torch.bfloat16: dtypes.bfloat16,
    torch.float16: dtypes.float16,
    torch.float8_e4m3fn: dtypes.float8_e4m3fn,
    torch.float8_e5m2: dtypes.float8_e5m2,
    torch.bool: dtypes.bool_,
    torch.int8: dtypes.int8,
    torch.int16: dtypes.int16,
    torch.int32: dtypes.int32,
    torch.int64: dtypes.int64,
    torch.uint8: dtypes.uint8,
    torch.uint16: dtypes.uint16,
    torch.uint32: dtypes.uint32,
}
_TO_TORCH = {ours: theirs for theirs, ours in _FROM_TORCH.items()}
# numpy has no such types of its own, and torch does not know those of ml_dtypes: both see the bytes as an integer.
_CARRIER = {1: torch.uint8, 2: torch.int16}


def from_torch_dtype(dtype: torch.dtype) -> DType:
    """The `DType` of a torch dtype. Raises E0602 for those that no graph has (complex, quantized, uint64)."""
    if dtype not in _FROM_TORCH:
        raise error("E0602", f"tensors of dtype {dtype} are not supported", fix="use one of "
                    + ", ".join(str(d).removeprefix("torch.") for d in _FROM_TORCH))
    return _FROM_TORCH[dtype]


def is_supported(dtype: torch.dtype) -> bool:
    """Whether a graph can hold tensors of a torch dtype."""
    return dtype in _FROM_TORCH


def to_torch_dtype(dtype: DType) -> torch.dtype:
    """The torch dtype of a `DType`. Raises E0602 for `float8_e4m3`, which torch lacks."""
    if dtype not in _TO_TORCH:
        raise error("E0602", f"torch has no dtype {dtype}")
    return _TO_TORCH[dtype]


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """`tensor` as an array that shares its memory (a strided view for a strided tensor); dtype as `from_torch_dtype`.

    A tensor on another device than the CPU is copied to the CPU first. Raises E0602 for sparse tensors, E0603 for those
    without values.
    """
    dtype = from_torch_dtype(tensor.dtype)
    if tensor.layout is not torch.strided:
        raise error("E0602", f"tensors of layout {tensor.layout} are not supported", fix="call its to_dense()")
    if tensor.is_meta:
        raise error("E0603", "a tensor on the meta device has no values", fix="give one that has, of the same shape")
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if dtype.np.isbuiltin == 1:
        return tensor.numpy()
    return tensor.view(_CARRIER[dtype.itemsize]).numpy().view(dtype.np)


def checksum(tensor: torch.Tensor) -> int:
    """A checksum of the contents of `tensor`."""
    return zlib.crc32(np.ascontiguousarray(to_numpy(tensor)).reshape(-1).view(np.uint8).data)


def to_torch(array: np.ndarray) -> torch.Tensor:
    """`array` as a tensor that shares its memory if it is writable and has positive strides, and a copy if not."""
    dtype = dtypes.dtype(array.dtype)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    if dtype.np.isbuiltin == 1:
        return torch.from_numpy(array) if array.shape else torch.tensor(array.item(), dtype=to_torch_dtype(dtype))
    carrier = np.uint8 if dtype.itemsize == 1 else np.int16
    return torch.from_numpy(array.view(carrier)).view(to_torch_dtype(dtype))


Operand = tuple[DType, int] | float | int | bool
"""What type promotion looks at: dtype and rank of a tensor, or a Python number."""


@functools.lru_cache(maxsize=4096)
def _sample(dtype: torch.dtype, scalar: bool) -> torch.Tensor:
    return torch.empty(() if scalar else (1,), dtype=dtype, device="meta")


def promote(left: Operand, right: Operand) -> DType:
    """The dtype in which torch combines `left` and `right`.

    Tensors with axes outrank tensors without, and both outrank Python numbers, of the same category.
    """
    pair = [_sample(to_torch_dtype(x[0]), x[1] == 0) if isinstance(x, tuple) else x for x in (left, right)]
    return from_torch_dtype(torch.result_type(pair[0], pair[1]))
