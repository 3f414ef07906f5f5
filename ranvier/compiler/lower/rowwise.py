"""Operations on whole rows (norms, softmax, rotary embedding), and embedding look-up."""

from __future__ import annotations

import math

from ranvier import dtypes as dt
from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout, rows
from ranvier.compiler.lower.context import Affine, Lowering
from ranvier.compiler.lower.pointwise import Sink, operand, own_tile
from ranvier.compiler.lower.step import Chunk
from ranvier.compiler.lower.view import HbmView
from ranvier.compiler.lower.wide_rows import WIDE, lower_wide_rows
from ranvier.errors import error
from ranvier.graph.composite import LayerNorm, LogSoftmax, RmsNorm, Rope, Softmax
from ranvier.graph.core import Node, Value
from ranvier.graph.indexing import Take
from ranvier.isa.access import AccessPattern, Indirect
from ranvier.kernels import norm
from ranvier.kernels.matmul import spans
from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor


def _row_chunks(layout: Layout) -> list[Chunk]:
    return [Chunk(b0, b, 0, layout.a, 0, layout.c) for b0, b in layout.chunks()]


def _single(group: Group) -> Node:
    node = group.anchor
    assert node is not None and len(group.nodes) == 1
    return node


def _two_dims(tile: NkiTensor) -> NkiTensor:
    return tile.reshape((tile.shape[0], math.prod(tile.shape[1:])))


def lower_row_function(ctx: Lowering, group: Group) -> None:
    """Layer norm, RMS norm, softmax and log-softmax over the last axis."""
    node = _single(group)
    op, x = node.op, node.inputs[0]
    axes = (
        op.axes
        if isinstance(op, LayerNorm)
        else (op.axis,)
        if isinstance(op, (Softmax, LogSoftmax))
        else (len(x.shape) - 1,)
    )
    first = min(a % len(x.shape) for a in axes)
    if tuple(sorted(a % len(x.shape) for a in axes)) != tuple(range(first, len(x.shape))):
        raise error(
            "E0604", f"{op.name} over axes {axes} of shape {x.shape}: only trailing axes are supported", where=node.loc
        )
    layout = rows(x.shape, first)
    if layout.c > WIDE:
        lower_wide_rows(ctx, node, layout)
        return
    if isinstance(op, LayerNorm) and len(node.inputs) > 1 and ctx.fits(layout, node.output.dtype):
        _lower_layer_norm(ctx, node, layout)
        return
    sink = Sink(ctx, node.output, layout)
    for chunk in _row_chunks(layout):
        data = own_tile(ctx, x, layout, chunk)
        with sink.chunk(chunk) as dst:
            _emit_row_function(ctx, node, layout, chunk, _two_dims(dst), _two_dims(data))
    sink.finish()


def _lower_layer_norm(ctx: Lowering, node: Node, layout: Layout) -> None:
    """Normalized rows; scale and shift wait until it is known on which side they are needed."""
    op, (x, *rest) = node.op, node.inputs
    assert isinstance(op, LayerNorm)
    weight = rest.pop(0) if op.has_weight else None
    bias = rest.pop(0) if op.has_bias else None
    normal = ctx.new_tiles(layout, node.output.dtype)
    for chunk in _row_chunks(layout):
        data = own_tile(ctx, x, layout, chunk)
        norm.layer_norm(_two_dims(normal.rows(chunk.b0, chunk.b)), _two_dims(data), None, None, op.eps)
    ctx.put_affine(node.output, Affine(normal, weight, bias))


def _emit_row_function(
    ctx: Lowering, node: Node, layout: Layout, chunk: Chunk, dst: NkiTensor, data: NkiTensor
) -> None:
    def replica(value: Value) -> NkiTensor:
        return ctx.replica(value, value.shape, chunk.b)

    op, rest = node.op, list(node.inputs[1:])
    match op:
        case LayerNorm():
            weight = replica(rest.pop(0)) if op.has_weight else None
            bias = replica(rest.pop(0)) if op.has_bias else None
            norm.layer_norm(dst, data, weight, bias, op.eps)
        case RmsNorm():
            norm.rms_norm(dst, data, replica(rest[0]) if rest else None, op.eps)
        case Softmax():
            norm.softmax(dst, data)
        case LogSoftmax():
            norm.log_softmax(dst, data)


def lower_rope(ctx: Lowering, group: Group) -> None:
    """x * cos + rotate_half(x) * sin over the last axis of [.., D], for all heads of a row at once."""
    node = _single(group)
    assert isinstance(node.op, Rope)
    x, cos, sin = node.inputs
    shape, size = x.shape, x.shape[-1]
    # One row for all heads of a position, where these lie side by side: [B, S, H, D].
    together = len(shape) == 4 and all(len(v.shape) == 4 and v.shape[2] == 1 for v in (cos, sin))
    layout = rows(shape, 2) if together else rows(shape)
    heads, half = layout.c // size, size // 2
    # a pair is the two halves of the axis, or two neighbours
    first, second = (slice(0, size, 2), slice(1, size, 2)) if node.op.interleaved else (slice(half), slice(half, size))
    sink = Sink(ctx, node.output, layout)
    for chunk in _row_chunks(layout):
        tile, c, s = (_heads(ctx, v, shape, layout, chunk, heads, size) for v in (x, cos, sin))
        with sink.chunk(chunk) as whole:
            dst = whole.reshape((chunk.b, heads, size))
            scaled = ctx.sbuf((chunk.b, heads, size), dt.float32)
            nisa.tensor_tensor(dst=scaled, data1=tile, data2=c, op="multiply")
            turned = ctx.sbuf((chunk.b, heads, size), dt.float32)
            nisa.scalar_tensor_tensor(
                dst=turned[:, :, first], data=tile[:, :, second], op0="multiply", operand0=-1.0, op1="multiply",
                operand1=s[:, :, first],
            )  # fmt: skip
            nisa.tensor_tensor(dst=turned[:, :, second], data1=tile[:, :, first], data2=s[:, :, second], op="multiply")
            nisa.tensor_tensor(dst=dst, data1=scaled, data2=turned, op="add")
    sink.finish()


def _heads(
    ctx: Lowering, value: Value, shape: tuple[int, ...], layout: Layout, chunk: Chunk, heads: int, size: int
) -> NkiTensor:
    """An operand of rope as [rows, heads, D]: cos and sin are the same for all heads."""
    if math.prod(value.shape) != math.prod(shape):
        aligned = (1,) * (len(shape) - len(value.shape)) + value.shape
        if len(shape) == 4 and aligned[2] == 1:  # one row for all heads of a position
            box = Layout(1, layout.b, size)

            def make() -> NkiTensor:
                view = ctx.splitting(ctx.view(value).broadcast((*shape[:2], 1, size)), box)
                tile = ctx.sbuf((chunk.b, 1, size), value.dtype)
                ctx.load(tile, view, box, chunk.b0, chunk.b)
                return tile

            return ctx.once(("rope", value, chunk.b0, chunk.b), make).broadcast(1, heads)
    tile = operand(ctx, value, shape, layout, chunk)
    if not isinstance(tile, NkiTensor):
        number, tile = tile, ctx.sbuf(chunk.shape, value.dtype)
        nisa.memset(dst=tile, value=number)
    return tile.reshape((chunk.b, heads, size))


# -- embedding


def lower_take(ctx: Lowering, group: Group) -> None:
    """Rows of a table [V, ...] by indices of any shape: a gather by DMA, one row per partition."""
    node = _single(group)
    assert isinstance(node.op, Take)
    table, indices = node.inputs
    if node.op.axis != 0:
        raise error(
            "E0604", f"take along axis {node.op.axis} of shape {table.shape}: only axis 0 is supported", where=node.loc
        )
    view = ctx.view(table)
    width = math.prod(table.shape[1:])
    flat = view.reshape((table.shape[0], width))
    if flat is None:
        flat = ctx.contiguous(table).reshape((table.shape[0], width))
    assert flat is not None
    layout = Layout(1, math.prod(indices.shape), width)
    where = ctx.tiles(indices, Layout(1, math.prod(indices.shape), 1))
    sink = Sink(ctx, node.output, layout)
    for b0, b in layout.chunks():
        index = where.rows(b0, b).reshape((b, 1))
        for c0, c in spans(width, GATHERED):
            with sink.chunk(Chunk(b0, b, 0, 1, c0, c)) as dst:
                nisa.dma_copy(dst=dst.reshape((b, c)), src=gathered(flat, index, c0, c))
    sink.finish()


GATHERED = 8192
"""Elements of a row that one transfer gathers."""


def gathered(table: HbmView, index: NkiTensor, first: int = 0, count: int | None = None) -> NkiTensor:
    """Columns [first, first + count) of rows of a [V, width] view, named by a [P, 1] index tile: a source of a DMA."""
    (stride, step), size = table.strides, table.shape[1] if count is None else count
    access = AccessPattern(
        table.buffer, table.offset + first * step, ((stride, index.shape[0]), (step, size)), table.buffer.dtype,
        index=Indirect(index.access, stride, table.shape[0]),
    )  # fmt: skip
    return NkiTensor(access)
