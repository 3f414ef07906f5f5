"""Examples of records in short form, operands for them, and instructions made from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ranvier import dtypes as dt
from ranvier.errors import error
from ranvier.isa.access import AccessPattern, Buffer, BufferKind, Indirect, Space
from ranvier.isa.record import Example, Instruction

_CUT = r"\d+:\d+(?::\d+)?"
_TILE = re.compile(rf"(sbuf|psum|hbm) (\d+(?:x\d+)*)(?:\[(?:({_CUT}), )?({_CUT})\])? (\w+)(?: rows (.+))?")
_SHORT = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f8": "float8_e4m3", "i32": "int32", "u32": "uint32",
          "i16": "int16", "u16": "uint16", "i8": "int8", "u8": "uint8"}  # fmt: skip


def example(
    rule: str | None = None, feature: str | None = None, note: str = "",
    contents: Mapping[str, Callable[[tuple[int, ...]], np.ndarray]] | None = None, **fields: Any,
) -> Example:  # fmt: skip
    """An `Example` whose operands are text: "sbuf 128x512 bf16"; "sbuf 128x512[0:256:2] bf16" for some columns;
    "sbuf 128x512[64:128, 0:512] bf16" for some partitions and columns; "hbm 100x32 f32 rows sbuf 64x1 i32" for rows that
    another operand names."""

    def make(tile: Callable[..., AccessPattern]) -> dict[str, Any]:
        return {name: _operand(tile, value) if isinstance(value, str) else value for name, value in fields.items()}

    return Example(make, rule, feature, note, contents or {})


def _operand(tile: Callable[..., AccessPattern], text: str) -> AccessPattern:
    match = _TILE.fullmatch(text)
    if match is None:
        raise error("E0902", f"{text!r} is not the operand of an example")
    space, sizes, partitions, columns, dtype, index = match.groups()
    cuts = [None if cut is None else slice(*(int(n) for n in cut.split(":"))) for cut in (columns, partitions)]
    shape = tuple(int(size) for size in sizes.split("x"))
    return tile(space, shape, _SHORT.get(dtype, dtype), *cuts, None if index is None else _operand(tile, index))


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
