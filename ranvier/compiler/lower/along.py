"""Operations along rows whose positions are data, or depend on each other: running sums, gather and scatter."""

from __future__ import annotations

from ranvier import dtypes as dt
from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout, rows
from ranvier.compiler.lower import integers
from ranvier.compiler.lower.context import Lowering, device_dtype
from ranvier.compiler.lower.pointwise import Sink, own_tile
from ranvier.compiler.lower.ranges import EXACT
from ranvier.compiler.lower.rowwise import gathered
from ranvier.compiler.lower.select_instructions import TileEmitter
from ranvier.compiler.lower.step import Chunk
from ranvier.errors import error
from ranvier.graph.core import Value
from ranvier.graph.indexing import ScatterAlong
from ranvier.kernels.matmul import spans
from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor

SCAN_PIECE = 4096
"""Elements of a row that are summed in one instruction: 12 bits of so many integers add up to less than 2^24."""
ROW_BYTES = 48 * 1024
"""Longest row, in bytes per partition, in which elements are gathered or set on chip."""


def _row(ctx: Lowering, value: Value, layout: Layout, b0: int, b: int) -> NkiTensor:
    tile = own_tile(ctx, value, layout, Chunk(b0, b, 0, 1, 0, layout.c))
    return tile.reshape((b, layout.c))


# -- running sums


def lower_cum_sum(ctx: Lowering, group: Group) -> None:
    """Running sums of rows, in float32 or exact in 32-bit integers."""
    node = group.nodes[0]
    x = node.inputs[0]
    layout = rows(x.shape)
    exact = x.dtype.is_float or (ctx.magnitude(node.output) <= EXACT and x.dtype.itemsize == 4)
    sink = Sink(ctx, node.output, layout)
    for b0, b in layout.chunks():
        carry: NkiTensor | None = None
        for n0, n in spans(layout.c, SCAN_PIECE):
            chunk = Chunk(b0, b, 0, 1, n0, n)
            data = own_tile(ctx, x, layout, chunk)
            with sink.chunk(chunk) as dst:
                if exact:
                    total = ctx.sbuf(chunk.shape, dt.float32)
                    _scan(ctx, total, data, carry)
                    nisa.tensor_copy(dst=dst, src=total)
                    carry = total.reshape((b, n))[:, n - 1 : n]
                else:
                    carry = _scan_words(ctx, chunk, dst, data, carry, x)
    sink.finish()


def _scan(ctx: Lowering, dst: NkiTensor, data: NkiTensor, carry: NkiTensor | None) -> None:
    """dst[i] = carry + data[0] + ... + data[i], in float32."""
    ones = ctx.sbuf(data.shape, dt.float32)
    nisa.memset(dst=ones, value=1.0)
    initial = 0.0 if carry is None else carry
    nisa.tensor_tensor_scan(dst=dst, data0=ones, data1=data, initial=initial, op0="multiply", op1="add")


def _scan_words(
    ctx: Lowering, chunk: Chunk, dst: NkiTensor, data: NkiTensor, carry: NkiTensor | None, x: Value
) -> NkiTensor:
    """Running sums of integers that wrap around: 12 bits at a time. Returns the last column."""
    e = TileEmitter(ctx, chunk, lambda value: 0.0)
    total = None
    words = e.in_sbuf_as(data, integers.word(x.dtype))
    for low in range(0, 32, 12):
        digits, summed = integers.bits(e, words, ("right_shift", low), ("bitwise_and", 0xFFF)), e.temp(words.dtype)
        _scan(ctx, summed, digits, None)
        placed = integers.bits(e, summed, ("left_shift", low)) if low else summed
        total = placed if total is None else integers.apply(e, "add", total, placed)
    assert total is not None
    if carry is not None:
        total = integers.apply(e, "add", total, carry.reshape((chunk.b, 1, 1)).broadcast(2, chunk.c))
    e.flush(integers.narrowed(e, total, x.dtype), dst)
    return total.reshape((chunk.b, chunk.c))[:, chunk.c - 1 :]


# -- gather


def lower_take_along(ctx: Lowering, group: Group) -> None:
    """Elements of rows by position: on chip, or straight from HBM where a row is too long for that."""
    node = group.nodes[0]
    x, indices = node.inputs
    source, layout = rows(x.shape), rows(indices.shape)
    on_chip = source.c * device_dtype(x.dtype).itemsize <= ROW_BYTES
    sink = Sink(ctx, node.output, layout)
    for b0, b in layout.chunks():
        row = _row(ctx, x, source, b0, b) if on_chip else None
        for n0, n in spans(layout.c, SCAN_PIECE):
            chunk = Chunk(b0, b, 0, 1, n0, n)
            places = own_tile(ctx, indices, layout, chunk)
            places = places.reshape((b, n))
            with sink.chunk(chunk) as dst:
                dst = dst.reshape((b, n))
                if row is not None:
                    positions = ctx.sbuf((b, n), dt.uint32)
                    nisa.tensor_copy(dst=positions, src=places)
                    nisa.nc_n_gather(dst=dst, data=row, indices=positions)
                else:
                    _from_hbm(ctx, x, source.c, b0, places, dst)
    sink.finish()


def _from_hbm(ctx: Lowering, x: Value, size: int, b0: int, places: NkiTensor, dst: NkiTensor) -> None:
    """One element of each row at a time, by its position in the whole tensor."""
    flat = ctx.contiguous(x).reshape((x.type.elements, 1))
    assert flat is not None
    b, count = places.shape
    starts, positions = (ctx.sbuf((b, count), dt.int32) for _ in range(2))
    nisa.iota(dst=starts, pattern=[[0, count]], offset=b0 * size, channel_multiplier=size)
    nisa.tensor_tensor(dst=positions, data1=starts, data2=places, op="add")
    for j in range(count):
        column = slice(j, j + 1)
        nisa.dma_copy(dst=dst[:, column], src=gathered(flat, positions[:, column]))


# -- scatter


def lower_scatter_along(ctx: Lowering, group: Group) -> None:
    """Rows in which elements are set or increased: one update of every row at a time, where its position is."""
    node = group.nodes[0]
    x, indices, updates = node.inputs
    assert isinstance(node.op, ScatterAlong)
    layout, given = rows(x.shape), rows(indices.shape)
    if layout.c * 4 > ROW_BYTES:
        raise error(
            "E0604", f"scatter into {x.type}: at most {ROW_BYTES // 4} elements along the axis are supported",
            where=node.loc,
        )  # fmt: skip
    sink = Sink(ctx, node.output, layout)
    for b0, b in layout.chunks():
        places = ctx.float32(_row(ctx, indices, given, b0, b))
        data, new = _row(ctx, x, layout, b0, b), _row(ctx, updates, given, b0, b)
        with sink.chunk(Chunk(b0, b, 0, 1, 0, layout.c)) as dst:
            dst = dst.reshape((b, layout.c))
            if node.op.kind == "set":
                _set(ctx, dst, data, places, new)
            elif x.dtype.is_float:
                _add(ctx, dst, data, places, ctx.float32(new))
            else:
                _add_words(ctx, dst, data, places, new, x)
    sink.finish()


def _positions(ctx: Lowering, b: int, count: int) -> NkiTensor:
    """[b, count] with each element's position in its row."""

    def make() -> NkiTensor:
        tile = ctx.sbuf((b, count), dt.float32)
        nisa.iota(dst=tile, pattern=[[1, count]])
        return tile

    return ctx.once(("positions", b, count), make)


def _set(ctx: Lowering, dst: NkiTensor, data: NkiTensor, places: NkiTensor, new: NkiTensor) -> None:
    b, size = dst.shape
    nisa.tensor_copy(dst=dst, src=data)
    for j in range(places.shape[1]):
        here = ctx.sbuf((b, size), dt.uint8)
        nisa.tensor_scalar(dst=here, data=_positions(ctx, b, size), op0="equal", operand0=places[:, j : j + 1])
        nisa.tensor_copy_predicated(dst=dst, src=new[:, j : j + 1].broadcast(1, size), predicate=here)


def _add(ctx: Lowering, dst: NkiTensor, data: NkiTensor, places: NkiTensor, new: NkiTensor) -> None:
    b, size = dst.shape
    count = places.shape[1]
    for j in range(count):
        here, column = ctx.sbuf((b, size), dt.float32), slice(j, j + 1)
        nisa.tensor_scalar(
            dst=here, data=_positions(ctx, b, size), op0="equal", operand0=places[:, column], op1="multiply",
            operand1=new[:, column],
        )  # fmt: skip
        total = dst if j == count - 1 else ctx.sbuf((b, size), dt.float32)
        nisa.tensor_tensor(dst=total, data1=data, data2=here, op="add")
        data = total


def _add_words(ctx: Lowering, dst: NkiTensor, data: NkiTensor, places: NkiTensor, new: NkiTensor, x: Value) -> None:
    """Integers, which wrap around."""
    b, size = dst.shape
    e = TileEmitter(ctx, Chunk(0, b, 0, 1, 0, size), lambda value: 0.0)
    total, word = e.in_sbuf_as(data.reshape((b, 1, size)), integers.word(x.dtype)), integers.word(x.dtype)
    wide = ctx.sbuf(new.shape, word)
    nisa.tensor_copy(dst=wide, src=new)
    for j in range(places.shape[1]):
        here = e.temp(word)
        nisa.tensor_scalar(
            dst=here.reshape((b, size)), data=_positions(ctx, b, size), op0="equal", operand0=places[:, j : j + 1]
        )
        column = wide[:, j : j + 1].reshape((b, 1, 1)).broadcast(2, size)
        total = integers.apply(e, "add", total, integers.apply(e, "multiply", here, column))
    e.flush(integers.narrowed(e, total, x.dtype), dst.reshape((b, 1, size)))
