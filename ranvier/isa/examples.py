"""Operands for the examples of records, and instructions made from them."""

from __future__ import annotations

from collections.abc import Callable

from ranvier import dtypes as dt
from ranvier.isa.access import AccessPattern, Buffer, BufferKind, Indirect, Space
from ranvier.isa.record import Example, Instruction


def tiles(kind: BufferKind = BufferKind.TEMP) -> Callable[..., AccessPattern]:
    """What `Example.make` takes: `tile(space, shape, dtype, columns=None, partitions=None, index=None)`, each call with a
    buffer of its own ("t0", "t1", ...). `columns` and `partitions` are slices of a two-dimensional tile; `index` is an
    operand with the row numbers that are taken of a tensor in HBM."""
    count = 0

    def tile(
        space,
        shape,
        dtype,
        columns: slice | None = None,
        partitions: slice | None = None,
        index: AccessPattern | None = None,
    ) -> AccessPattern:
        nonlocal count
        buffer = Buffer(f"t{count}", Space(space), tuple(shape), dt.dtype(dtype), kind)
        count += 1
        if index is not None:
            row = buffer.all.pattern[0][0]
            pattern = ((row, index.size), *buffer.all.pattern[1:])
            return AccessPattern(buffer, 0, pattern, buffer.dtype, index=Indirect(index, row, shape[0]))
        if columns is None and partitions is None:
            return buffer.all
        rows = range(*(partitions or slice(None)).indices(shape[0]))
        cols = range(*(columns or slice(None)).indices(shape[1]))
        if buffer.space.on_chip:
            pattern = ((1, len(rows)), (cols.step, len(cols)))
            return AccessPattern(buffer, cols.start, pattern, buffer.dtype, rows.start)
        pattern = ((shape[1] * rows.step, len(rows)), (cols.step, len(cols)))
        return AccessPattern(buffer, rows.start * shape[1] + cols.start, pattern, buffer.dtype)

    return tile


def build(cls: type[Instruction], example: Example) -> Instruction:
    """The instruction of an example."""
    return cls(**example.make(tiles()))
