"""Element-wise groups: where their operands come from, tile by tile, and where their results go."""

from __future__ import annotations

import math

from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout, dims_of
from ranvier.compiler.lower.context import Lowering, Tiles
from ranvier.compiler.lower.select_instructions import TileEmitter
from ranvier.compiler.lower.step import Chunk, Operand
from ranvier.graph.core import Value
from ranvier.kernels.matmul import spans
from ranvier.nki.tensor import NkiTensor

# -- operands


def operand(ctx: Lowering, value: Value, shape: tuple[int, ...], layout: Layout, chunk: Chunk) -> Operand:
    """`value`, broadcast to `shape` in `layout`, for one chunk."""
    number = ctx.number(value)
    if number is not None:
        return number
    if math.prod(value.shape) == math.prod(shape):
        return own_tile(ctx, value, layout, chunk)
    aligned = (1,) * (len(shape) - len(value.shape)) + value.shape
    groups = dims_of(layout, shape)
    if groups is None:
        return _expanded(ctx, value, shape, layout, chunk)
    a, b, c = (tuple(aligned[i] for i in dims) for dims in groups)
    whole = tuple(tuple(shape[i] for i in dims) for dims in groups)
    plain_free = all(g in (w, (1,) * len(w)) for g, w in ((a, whole[0]), (c, whole[2])))
    if b == whole[1] and plain_free:
        own = Layout(math.prod(a), layout.b, math.prod(c), layout.segment)
        if own.free == 1 and layout.free > 1 and value.dtype.is_float:  # integers would lose digits as float32
            return ctx.vector(value, own, chunk.b0, chunk.b)
        if not ctx.fits(own, value.dtype):
            return _expanded(ctx, value, shape, layout, chunk)
        tile = ctx.tiles(value, own).rows(chunk.b0, chunk.b)
        return _spread(tile, chunk, math.prod(a) != layout.a, math.prod(c) != layout.c)
    free = (*a, *c)
    if all(n == 1 for n in b) and plain_free and ctx.fits(Layout(1, 1, math.prod(free)), value.dtype):
        tile = ctx.replica(value, free, chunk.b).reshape((chunk.b, math.prod(a), math.prod(c)))
        return _spread(tile, chunk, math.prod(a) != layout.a, math.prod(c) != layout.c)
    return _expanded(ctx, value, shape, layout, chunk)


def _spread(tile: NkiTensor, chunk: Chunk, a_broadcast: bool, c_broadcast: bool) -> NkiTensor:
    """A [b, a or 1, c or 1] tile for the chunk, broadcast along the free axes."""
    a = slice(0, 1) if a_broadcast else slice(chunk.a0, chunk.a0 + chunk.a)
    c = slice(0, 1) if c_broadcast else slice(chunk.c0, chunk.c0 + chunk.c)
    part = tile[:, a, c]
    if part.shape[1] != chunk.a:
        part = part.broadcast(1, chunk.a)
    if part.shape[2] != chunk.c:
        part = part.broadcast(2, chunk.c)
    return part


def own_tile(ctx: Lowering, value: Value, layout: Layout, chunk: Chunk) -> NkiTensor:
    """A chunk of `value`, in a layout of its own shape: on chip already, or loaded."""
    if ctx.fits(layout, value.dtype) or layout in ctx.has_tiles(value):
        return chunk.of(ctx.tiles(value, layout).rows(chunk.b0, chunk.b))
    return _streamed(ctx, ctx.view_in(value, layout), layout, chunk)


def _streamed(ctx: Lowering, view, layout: Layout, chunk: Chunk) -> NkiTensor:
    """Load just the chunk from HBM. The view's free axes are cut by slicing it as [a, b, c]."""
    box = view.reshape((layout.a, layout.b, layout.c))
    if box is None:
        tile = ctx.sbuf((chunk.b, layout.a, layout.c), view.dtype)
        ctx.load(tile, view, layout, chunk.b0, chunk.b)
        return chunk.of(tile)
    starts = (chunk.a0, chunk.b0, chunk.c0)
    limits = (chunk.a0 + chunk.a, chunk.b0 + chunk.b, chunk.c0 + chunk.c)
    part = box.slice(starts, limits, (1, 1, 1))
    tile = ctx.sbuf(chunk.shape, view.dtype)
    ctx.load(tile, part, Layout(chunk.a, chunk.b, chunk.c), 0, chunk.b)
    return tile


def _expanded(ctx: Lowering, value: Value, shape: tuple[int, ...], layout: Layout, chunk: Chunk) -> NkiTensor:
    """A broadcast that crosses the layout's borders: expanded while it is loaded from HBM."""
    return _streamed(ctx, ctx.splitting(ctx.view(value).broadcast(shape), layout), layout, chunk)


# -- groups

CHUNK_ELEMENTS = 2048
"""Free elements that one instruction of a stand-alone element-wise group covers."""


def chunks(layout: Layout, limit: int = CHUNK_ELEMENTS) -> list[Chunk]:
    """The chunks that cover a layout, each with at most `limit` free elements."""
    found = []
    for b0, b in layout.chunks():
        for a0, a in spans(layout.a, max(1, limit // layout.c)):
            for c0, c in spans(layout.c, limit):
                found.append(Chunk(b0, b, a0, a, c0, c))
    return found


def lower_pointwise(ctx: Lowering, group: Group) -> None:
    """A group of element-wise nodes only."""
    result = group.last.output
    shape = result.shape
    layout = ctx.layout_of(result)
    inside = {n.output for n in group.nodes}
    sink = Sink(ctx, result, layout)
    for chunk in chunks(layout):

        def get(value: Value, chunk: Chunk = chunk) -> Operand:
            assert value not in inside
            return operand(ctx, value, shape, layout, chunk)

        with sink.chunk(chunk) as dst:
            TileEmitter(ctx, chunk, get).run(group.nodes, dst)
    sink.finish()


class Sink:
    """Where a group's result goes: tiles on chip, or chunk by chunk to HBM where it is too large for that."""

    def __init__(self, ctx: Lowering, value: Value, layout: Layout):
        self.ctx, self.value, self.layout = ctx, value, layout
        self.on_chip = ctx.fits(layout, value.dtype)
        self.tiles = ctx.new_tiles(layout, value.dtype) if self.on_chip else None
        self.view = None if self.on_chip else ctx.scratch((layout.a, layout.b, layout.c), value.dtype)

    def chunk(self, chunk: Chunk) -> _SinkChunk:
        return _SinkChunk(self, chunk)

    def finish(self) -> None:
        if self.tiles is not None:
            self.ctx.put_tiles(self.value, self.tiles)
        else:
            assert self.view is not None
            self.ctx.put_view(self.value, self.view.reshape(self.value.shape) or self.view)


class _SinkChunk:
    """`with sink.chunk(c) as dst:` gives the tile to write; when it ends the tile is stored if the result is in HBM."""

    def __init__(self, sink: Sink, chunk: Chunk):
        self.sink, self.at = sink, chunk

    def __enter__(self) -> NkiTensor:
        if self.sink.tiles is not None:
            self.dst = self.at.of(self.sink.tiles.rows(self.at.b0, self.at.b))
        else:
            self.dst = self.sink.ctx.sbuf(self.at.shape, self.sink.value.dtype)
        return self.dst

    def __exit__(self, kind, problem, trace) -> None:
        if kind is None and self.sink.view is not None:
            c = self.at
            part = self.sink.view.slice((c.a0, c.b0, c.c0), (c.a0 + c.a, c.b0 + c.b, c.c0 + c.c), (1, 1, 1))
            self.sink.ctx.store(Tiles(Layout(c.a, c.b, c.c), (self.dst,)), part)
