"""Look-up of rows."""

from __future__ import annotations

import math

import numpy as np

from ranvier import nki
from ranvier.kernels.library.arguments import expect
from ranvier.kernels.sizes import PARTITIONS
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl

ROW_GROUP_BYTES = 16 * 1024
"""Bytes per partition of the rows that are stored together."""


@nki.jit
def embedding(table, indices):
    """Rows of table [V, W] named by `indices`, integers of any shape [...]: [..., W] with the table's dtype.

    Bits are copied. An index outside 0 .. V - 1 is an error (E0403) when the kernel runs. A partition takes several
    neighbouring indices, so that they arrive, and their rows leave, in few long transfers; each instruction gathers one
    row per partition.
    """
    expect(len(table.shape) == 2, "table", f"table has shape {table.shape}; it takes [V, W]")
    expect(indices.dtype.is_integer, "indices", f"indices are {indices.dtype}; they are integers")
    width, count = table.shape[1], math.prod(indices.shape)
    out = nl.ndarray((*indices.shape, width), dtype=table.dtype, buffer=nl.shared_hbm)
    result, flat = out.reshape((count * width,)), indices.reshape((count,))
    most = max(1, ROW_GROUP_BYTES // (width * table.dtype.itemsize))
    start = 0
    while start < count:
        each = max(1, min(most, (count - start) // PARTITIONS))
        partitions = min(PARTITIONS, count - start)
        end = start + partitions * each
        where = nl.load(flat[start:end].reshape((partitions, each)))
        rows = nl.ndarray((partitions, each, width), dtype=table.dtype, buffer=nl.sbuf)
        for i in range(each):
            nisa.dma_copy(dst=rows[:, i, :], src=table.vector_select(0, where[:, i : i + 1]))
        nisa.dma_copy(dst=result[start * width : end * width].reshape((partitions, each, width)), src=rows)
        start = end
    return out


def embedding_reference(table: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The rows, with their bits."""
    return np.asarray(table)[np.asarray(indices)]
