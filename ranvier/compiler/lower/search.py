"""Largest and smallest elements of rows and their positions: arg reductions, the k best, sorting.

The vector engine finds the eight largest values of a row, their positions, and replaces them, so that the next eight
can be found. It compares float32: rows of integers beyond 2^24 are compared by their upper and lower halves. NaN, which
equals nothing, has no position.
"""

from __future__ import annotations

import math

from ranvier import dtypes as dt
from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout, rows
from ranvier.compiler.lower.context import Lowering
from ranvier.compiler.lower.pointwise import Sink, own_tile
from ranvier.compiler.lower.ranges import EXACT
from ranvier.compiler.lower.step import Chunk
from ranvier.errors import error
from ranvier.graph.core import Node, Value
from ranvier.graph.indexing import Sort, TopK
from ranvier.graph.reduce import ArgReduce
from ranvier.kernels.matmul import spans
from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor

EIGHT = 8
PIECE = 8192
"""Elements of a row that are searched at once; the instructions take 16384, but two tiles of those fill a partition."""
SORTED_MAX = 4096
"""Longest row that is sorted, eight elements in three instructions."""
LOWEST = -3.0e38
"""Stands for minus infinity, which marks the elements that were found already."""
FAR = 2.0**25
"""Added to positions that do not count; larger than any that does."""


def lower_arg_reduce(ctx: Lowering, group: Group) -> None:
    """The position of the first largest or smallest element of each row."""
    node = group.nodes[0]
    assert isinstance(node.op, ArgReduce)
    x = node.inputs[0]
    layout = rows(x.shape)
    smallest, wide = node.op.kind == "argmin", x.dtype.is_integer and ctx.magnitude(x) > EXACT
    sink = Sink(ctx, node.output, Layout(1, layout.b, 1))
    for b0, b in layout.chunks():
        found = []
        for n0, n in spans(layout.c, PIECE):
            chunk = Chunk(b0, b, 0, 1, n0, n)
            if wide and n < layout.c:
                raise _too_long(node, PIECE)
            data = _halves(ctx, x, layout, chunk, smallest) if wide else _comparable(ctx, x, layout, chunk, smallest)
            found.append((n0, *_best(ctx, data)))
        with sink.chunk(Chunk(b0, b, 0, 1, 0, 1)) as dst:
            dst = dst.reshape((b, 1))
            if len(found) == 1:
                nisa.tensor_copy(dst=dst, src=found[0][2][:, :1])
            else:
                _first_of(ctx, found, dst)
    sink.finish()


def _too_long(node: Node, limit: int):
    shapes = ", ".join(str(v.type) for v in node.inputs)
    what = f"{node.op.name} of {shapes}: at most {limit} elements along the axis are supported"
    return error("E0604", what, where=node.loc)


def _comparable(ctx: Lowering, x: Value, layout: Layout, chunk: Chunk, negate: bool) -> NkiTensor:
    """A piece of each row as [b, n], at least eight wide, in which the largest number is wanted."""
    data = own_tile(ctx, x, layout, chunk)
    data = data.reshape((chunk.b, chunk.c))
    if not negate and chunk.c >= EIGHT:
        return data
    tile = _padded(ctx, chunk.b, chunk.c, EIGHT)
    nisa.tensor_scalar(dst=tile[:, : chunk.c], data=data, op0="multiply", operand0=-1.0 if negate else 1.0)
    return tile


def _padded(ctx: Lowering, b: int, n: int, least: int) -> NkiTensor:
    """A [b, n] float32 tile, wider where `least` is; what is added is minus infinity."""
    tile = ctx.sbuf((b, max(n, least)), dt.float32)
    if n < least:
        nisa.memset(dst=tile, value=-math.inf)
    return tile


def _halves(ctx: Lowering, x: Value, layout: Layout, chunk: Chunk, smallest: bool) -> NkiTensor:
    """For rows of 32-bit integers: the lower half plus one where the upper half is the largest, elsewhere 0."""
    data = own_tile(ctx, x, layout, chunk)
    data = data.reshape((chunk.b, chunk.c))
    if smallest:  # the complement reverses the order
        turned = ctx.sbuf(data.shape, x.dtype)
        nisa.tensor_scalar(dst=turned, data=data, op0="bitwise_xor", operand0=-1)
        data = turned
    upper, lower = (ctx.sbuf(data.shape, x.dtype) for _ in range(2))
    sign = 0 if x.dtype.kind == "uint" else 1 << 15  # negative numbers are the smaller ones
    nisa.tensor_scalar(dst=upper, data=data, op0="right_shift", operand0=16, op1="bitwise_xor", operand1=sign)
    nisa.tensor_scalar(dst=lower, data=data, op0="bitwise_and", operand0=0xFFFF)
    largest, counts = ctx.sbuf((chunk.b, 1), dt.float32), ctx.sbuf(data.shape, dt.float32)
    nisa.tensor_reduce(dst=largest, op="maximum", data=upper, axis=1)
    nisa.tensor_scalar(dst=counts, data=upper, op0="equal", operand0=largest)
    result = _padded(ctx, chunk.b, chunk.c, EIGHT)
    nisa.scalar_tensor_tensor(
        dst=result[:, : chunk.c], data=lower, op0="add", operand0=1.0, op1="multiply", operand1=counts
    )
    return result


def _best(ctx: Lowering, data: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    """The eight largest values of each row of [b, n] in descending order, and their positions."""
    values, places = ctx.sbuf((data.shape[0], EIGHT), dt.float32), ctx.sbuf((data.shape[0], EIGHT), dt.uint32)
    nisa.max8(dst=values, src=data)
    nisa.nc_find_index8(dst=places, data=data, vals=values)
    return values, places


def _first_of(ctx: Lowering, found: list[tuple[int, NkiTensor, NkiTensor]], dst: NkiTensor) -> None:
    """The position of the largest value among those of several pieces of a row."""
    b, count = dst.shape[0], len(found)
    values, places = (ctx.sbuf((b, count), dt.float32) for _ in range(2))
    for i, (start, best, place) in enumerate(found):
        nisa.tensor_copy(dst=values[:, i : i + 1], src=best[:, :1])
        nisa.tensor_scalar(dst=places[:, i : i + 1], data=place[:, :1], op0="add", operand0=float(start))
    largest, far, candidates = ctx.sbuf((b, 1), dt.float32), *(ctx.sbuf((b, count), dt.float32) for _ in range(2))
    nisa.tensor_reduce(dst=largest, op="maximum", data=values, axis=1)
    nisa.tensor_scalar(dst=far, data=values, op0="not_equal", operand0=largest, op1="multiply", operand1=FAR)
    nisa.tensor_tensor(dst=candidates, data1=far, data2=places, op="add")
    nisa.tensor_reduce(dst=dst, op="minimum", data=candidates, axis=1)


# -- the k best


def lower_top_k(ctx: Lowering, group: Group) -> None:
    """The k largest or smallest elements of each row in order, and their positions; a whole row for a sort."""
    node = group.nodes[0]
    op, x = node.op, node.inputs[0]
    assert isinstance(op, (TopK, Sort))
    layout = rows(x.shape)
    k, largest = (op.k, op.largest) if isinstance(op, TopK) else (layout.c, op.descending)
    if isinstance(op, Sort) and k > SORTED_MAX:
        raise _too_long(node, SORTED_MAX)
    if x.dtype.is_integer and ctx.magnitude(x) > EXACT:
        raise error(
            "E0604", f"{op.name} of {x.type}: integers that may exceed 2^24 are not ordered", where=node.loc,
            fix="cast to float32 or to a 16-bit integer before",
        )  # fmt: skip
    sinks = [Sink(ctx, value, Layout(1, layout.b, k)) for value in node.outputs]
    for b0, b in layout.chunks():
        values, places = _k_of_row(ctx, node, layout, b0, b, k, largest)
        with sinks[0].chunk(Chunk(b0, b, 0, 1, 0, k)) as dst:
            _store_values(ctx, dst.reshape((b, k)), values[:, :k], x, largest)
        with sinks[1].chunk(Chunk(b0, b, 0, 1, 0, k)) as dst:
            nisa.tensor_copy(dst=dst.reshape((b, k)), src=places[:, :k])
    for sink in sinks:
        sink.finish()


def _k_of_row(
    ctx: Lowering, node: Node, layout: Layout, b0: int, b: int, k: int, largest: bool
) -> tuple[NkiTensor, NkiTensor]:
    """Values (as they are compared) and positions, in as many columns as whole rounds of eight take."""
    pieces = spans(layout.c, PIECE)
    width = EIGHT * math.ceil(k / EIGHT)
    if len(pieces) > 1 and len(pieces) * width > PIECE:
        raise _too_long(node, PIECE * max(1, PIECE // width))
    values, places = (ctx.sbuf((b, len(pieces) * width), dt.float32) for _ in range(2))
    x = node.inputs[0]
    for i, (n0, n) in enumerate(pieces):
        data = own_tile(ctx, x, layout, Chunk(b0, b, 0, 1, n0, n))
        tile = _padded(ctx, b, n, width)
        nisa.tensor_scalar(
            dst=tile[:, :n], data=data.reshape((b, n)), op0="multiply", operand0=1.0 if largest else -1.0,
            op1="maximum", operand1=LOWEST,
        )  # fmt: skip
        part = slice(i * width, (i + 1) * width)
        found = _rounds(ctx, tile, values[:, part])
        nisa.tensor_scalar(dst=places[:, part], data=found, op0="add", operand0=float(n0))
    if len(pieces) == 1:
        return values, places
    merged, chosen = ctx.sbuf((b, width), dt.float32), ctx.sbuf((b, width), dt.float32)
    nisa.nc_n_gather(dst=chosen, data=places, indices=_rounds(ctx, values, merged))
    return merged, chosen


def _rounds(ctx: Lowering, data: NkiTensor, values: NkiTensor) -> NkiTensor:
    """Fill `values` [b, w] with the w largest elements of each row in descending order; their positions."""
    b, width = values.shape
    places = ctx.sbuf((b, width), dt.uint32)
    for start in range(0, width, EIGHT):
        part = slice(start, start + EIGHT)
        nisa.max8(dst=values[:, part], src=data)
        nisa.nc_find_index8(dst=places[:, part], data=data, vals=values[:, part])
        if start + EIGHT < width:
            rest = ctx.sbuf(data.shape, dt.float32)
            nisa.nc_match_replace8(dst=rest, data=data, vals=values[:, part], imm=-math.inf)
            data = rest
    return places


def _store_values(ctx: Lowering, dst: NkiTensor, values: NkiTensor, x: Value, largest: bool) -> None:
    """The values as they were before they were negated and limited."""
    sign = 1.0 if largest else -1.0
    nisa.tensor_scalar(dst=dst, data=values, op0="multiply", operand0=sign)
    if x.dtype.is_float:
        limited = ctx.sbuf(values.shape, dt.uint8)
        nisa.tensor_scalar(dst=limited, data=values, op0="less_equal", operand0=LOWEST)
        nisa.tensor_copy_predicated(dst=dst, src=-sign * math.inf, predicate=limited)
