"""What the kernels of the library have in common: checks of arguments, and tensors seen as matrices of rows."""

from __future__ import annotations

import math

import numpy as np

from ranvier.nki import isa as nisa
from ranvier.nki import language as nl
from ranvier.nki.tensor import NkiTensor, fail


def expect(holds: bool, argument: str, message: str) -> None:
    """Raise E0103 that names `argument` unless `holds`."""
    if not holds:
        raise fail("E0103", message, argument=argument)


def expect_shape(argument: str, tensor: NkiTensor | None, shape: tuple[int, ...]) -> None:
    """Raise E0103 unless `tensor` is None or has this shape."""
    if tensor is not None:
        expect(tensor.shape == shape, argument, f"{argument} has shape {tensor.shape}; it takes {shape}")


def rows_of(tensor: NkiTensor) -> NkiTensor:
    """An HBM tensor [..., N] as a matrix [rows, N]."""
    return tensor.reshape((math.prod(tensor.shape[:-1]), tensor.shape[-1]))


def replicated(vector: NkiTensor | None, partitions: int) -> NkiTensor | None:
    """A tile [partitions, N] with the HBM vector [N] in each partition; None for None."""
    if vector is None:
        return None
    size = vector.shape[0]
    tile = nl.ndarray((partitions, size), dtype=vector.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=vector.reshape((1, size)).broadcast(0, partitions))
    return tile


def wide(array: np.ndarray) -> np.ndarray:
    """`array` as float64, which the references compute in."""
    return np.asarray(array).astype(np.float64)
