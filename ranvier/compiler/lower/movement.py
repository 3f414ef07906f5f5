"""Operations that only move data. Most become views of an HBM tensor, made when somebody asks for them."""

from __future__ import annotations

import math

from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout
from ranvier.compiler.lower.context import Lowering
from ranvier.compiler.lower.view import HbmView
from ranvier.errors import error
from ranvier.graph.core import Node, Value
from ranvier.graph.indexing import Full, Iota
from ranvier.graph.movement import Broadcast, Concat, Pad, Reshape, Reverse, Slice, Transpose
from ranvier.kernels.matmul import spans
from ranvier.kernels.sizes import PARTITIONS
from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor

FILL_ELEMENTS = 4096


def lower_movement(ctx: Lowering, group: Group) -> None:
    """Reshape, transpose, broadcast, slice, reverse: views. Concat, pad: copies into a new HBM tensor."""
    node = group.nodes[0]
    match node.op:
        case Reshape():
            return  # the same elements in the same order: the context looks through it
        case Transpose() if ctx.has_tiles(node.output):
            return  # attention made it already, in place of its own result
        case Transpose() | Broadcast() | Slice() | Reverse():
            ctx.put_lazy(node.output, lambda: _view(ctx, node))
        case Concat():
            ctx.put_lazy(node.output, lambda: _concatenated(ctx, node))
        case Pad():
            ctx.put_lazy(node.output, lambda: _padded(ctx, node))
        case Full() | Iota():
            raise error("E0901", f"{node.op.name} should have become a constant", where=node.loc)


def _view(ctx: Lowering, node: Node) -> HbmView:
    source, op = ctx.view(node.inputs[0]), node.op
    match op:
        case Transpose():
            return source.permute(op.perm)
        case Broadcast():
            return source.broadcast(op.shape)
        case Slice():
            return source.slice(op.starts, op.limits, op.strides)
        case Reverse():
            offset, strides = source.offset, list(source.strides)
            for axis in op.axes:
                offset += strides[axis] * (source.shape[axis] - 1)
                strides[axis] = -strides[axis]
            return HbmView(source.buffer, offset, source.shape, tuple(strides))
    raise error("E0901", f"{op.name} is not a view")


def _part(view: HbmView, starts: tuple[int, ...], shape: tuple[int, ...]) -> HbmView:
    limits = tuple(s + n for s, n in zip(starts, shape, strict=True))
    return view.slice(starts, limits, (1,) * len(shape))


def _fill_from(ctx: Lowering, to: HbmView, value: Value) -> None:
    """Store `value` into the part `to` of an HBM tensor: from on-chip tiles where that is possible, else from HBM."""
    for layout in ctx.has_tiles(value):
        if to.regroup((layout.a, layout.b, layout.c)) is not None:
            ctx.store(ctx.tiles(value, layout), to)
            return
    ctx.copy_view(to, ctx.view(value))


def _concatenated(ctx: Lowering, node: Node) -> HbmView:
    op, result = node.op, node.output
    assert isinstance(op, Concat)
    view = ctx.scratch(result.shape, result.dtype)
    position = 0
    for value in node.inputs:
        starts = tuple(position if i == op.axis else 0 for i in range(len(result.shape)))
        _fill_from(ctx, _part(view, starts, value.shape), value)
        position += value.shape[op.axis]
    return view


def _padded(ctx: Lowering, node: Node) -> HbmView:
    op, result, source = node.op, node.output, node.inputs[0]
    assert isinstance(op, Pad)
    if min(*op.low, *op.high) < 0:
        raise error("E0604", f"pad with negative amounts {op.low}, {op.high}", where=node.loc)
    view = ctx.scratch(result.shape, result.dtype)
    for axis, (low, high) in enumerate(zip(op.low, op.high, strict=True)):
        for start, size in ((0, low), (result.shape[axis] - high, high)):
            if size:
                starts = tuple(start if i == axis else op.low[i] if i < axis else 0 for i in range(len(result.shape)))
                shape = tuple(
                    size if i == axis else source.shape[i] if i < axis else result.shape[i]
                    for i in range(len(result.shape))
                )
                _fill_number(ctx, _part(view, starts, shape), float(op.value))
    _fill_from(ctx, _part(view, op.low, source.shape), source)
    return view


def _fill_number(ctx: Lowering, to: HbmView, number: float) -> None:
    """Write one number to every element of an HBM view."""
    dtype = to.dtype
    outer, inner = math.prod(to.shape[:-1]), to.shape[-1]
    for start, size in spans(outer, PARTITIONS):
        for c0, c in spans(inner, FILL_ELEMENTS):
            tile = ctx.sbuf((size, 1, c), dtype)
            nisa.memset(dst=tile, value=number if dtype.is_float else int(number))
            column = to.slice((0,) * (len(to.shape) - 1) + (c0,), (*to.shape[:-1], c0 + c), (1,) * len(to.shape))
            _store_rows(tile, column, start, size, outer, c)


def _store_rows(tile, view: HbmView, start: int, size: int, outer: int, width: int) -> None:
    boxes = view.boxes(Layout(1, outer, width), start, size)
    assert boxes is not None
    for done, count, access in boxes:
        nisa.dma_copy(dst=NkiTensor(access), src=tile[done : done + count])
