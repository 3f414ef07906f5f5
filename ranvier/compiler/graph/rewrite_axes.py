"""Bring operations along any axis to the axis along which the core does them: the last, in the free dimension."""

from __future__ import annotations

import math
from dataclasses import replace

from ranvier.compiler.graph.emitter import Emitter
from ranvier.graph.contract import Pool
from ranvier.graph.core import Node, Value
from ranvier.graph.indexing import ScatterAlong, Take, TakeAlong
from ranvier.graph.movement import Concat, Slice
from ranvier.graph.reduce import ArgReduce, Reduce
from ranvier.kernels.sizes import PARTITIONS


def _to_last(rank: int, axis: int) -> tuple[int, ...]:
    return (*(i for i in range(rank) if i != axis), axis)


def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes `perm`."""
    return tuple(perm.index(i) for i in range(len(perm)))


def along_last(out: Emitter, node: Node) -> tuple[Value, ...] | None:
    """An operation along `op.axis` of its one operand, with results of that rank (or without the axis)."""
    op, x = node.op, node.inputs[0]
    rank, axis = len(x.shape), op.axis  # type: ignore[attr-defined]
    if axis == rank - 1:
        return None
    perm = _to_last(rank, axis)
    moved = replace(op, axis=rank - 1)  # type: ignore[type-var]
    results = out.emit_all(moved, out.transpose(x, perm))
    if isinstance(op, ArgReduce):  # the axis has extent 1 or is gone: nothing to turn back
        return (out.reshape(results[0], node.output.shape),)
    return tuple(out.transpose(value, inverse(perm)) for value in results)


def neighbouring_axes(out: Emitter, node: Node) -> Value | None:
    """A reduction over axes that are not neighbours, or of many elements to one, in two steps to use all partitions."""
    op, x = node.op, node.inputs[0]
    assert isinstance(op, Reduce)
    rank, axes = len(x.shape), op.axes
    if not axes:
        return out.reshape(x, node.output.shape)
    if node.output.type.elements == 1 and x.type.elements > 8 * PARTITIONS:
        rows = max(n for n in range(1, PARTITIONS + 1) if x.type.elements % n == 0)
        if rows > 1:
            first = out.emit(Reduce(op.kind, (1,), False), out.reshape(x, (rows, x.type.elements // rows)))
            return out.reshape(out.emit(Reduce(op.kind, (0,), False), first), node.output.shape)
    if axes == tuple(range(axes[0], axes[0] + len(axes))):
        return None
    kept = tuple(i for i in range(rank) if i not in axes)
    turned = out.transpose(x, (*kept, *axes))
    reduced = out.emit(Reduce(op.kind, tuple(range(len(kept), rank)), False), turned)
    return out.reshape(reduced, node.output.shape)


def simplify_pool(out: Emitter, node: Node) -> Value | None:
    """One window that covers the whole image is a reduction; three dimensions are pooled in two steps."""
    op, x = node.op, node.inputs[0]
    assert isinstance(op, Pool)
    spatial = x.shape[2:]
    if op.kernel == spatial and all(p == (0, 0) for p in op.padding) and all(d == 1 for d in op.dilation):
        kind = "mean" if op.kind == "avg" else "max"
        return out.emit(Reduce(kind, tuple(range(2, len(x.shape))), True), x)
    if len(spatial) != 3:
        return None
    # Maximum and average, and the number of elements that a window averages over, are those of the axes one by one.
    batch, channels, depth, height, width = x.shape
    plane = _along_axes(op, slice(1, 3))
    flat = out.emit(plane, out.reshape(x, (batch, channels * depth, height, width)))
    lines = out.reshape(flat, (batch, channels, depth, flat.shape[2] * flat.shape[3]))
    along = _along_axes(op, slice(0, 1))
    along = replace(along, kernel=(*along.kernel, 1), stride=(*along.stride, 1), padding=(*along.padding, (0, 0)),
                    dilation=(*along.dilation, 1))  # fmt: skip
    return out.reshape(out.emit(along, lines), node.output.shape)


def _along_axes(op: Pool, axes: slice) -> Pool:
    return replace(
        op, kernel=op.kernel[axes], stride=op.stride[axes], padding=op.padding[axes], dilation=op.dilation[axes]
    )


def without_empty(out: Emitter, node: Node) -> Value | None:
    """A concatenation without the operands that have no elements."""
    kept = tuple(v for v in node.inputs if v.type.elements)
    if len(kept) == len(node.inputs) or not kept:
        return None
    return kept[0] if len(kept) == 1 else out.emit(node.op, *kept)


def take_along_first(out: Emitter, node: Node) -> Value | None:
    """Rows of a table are gathered along its first axis."""
    op, (table, indices) = node.op, node.inputs
    assert isinstance(op, Take)
    if op.axis == 0:
        return None
    rank, count = len(table.shape), len(indices.shape)
    perm = (op.axis, *(i for i in range(rank) if i != op.axis))
    taken = out.emit(Take(0), out.transpose(table, perm), indices)  # [indices.., axes before.., axes after..]
    before = tuple(range(count, count + op.axis))
    return out.transpose(taken, (*before, *range(count), *range(count + op.axis, count + rank - 1)))


def gather_along_last(out: Emitter, node: Node) -> Value | None:
    """Both operands with the axis last; the operand cut to the extents of the indices elsewhere."""
    op, (x, indices) = node.op, node.inputs
    assert isinstance(op, TakeAlong)
    rank, axis = len(x.shape), op.axis
    cut = _cut(out, x, indices.shape, axis)
    if axis == rank - 1:
        return None if cut is x else out.emit(op, cut, indices)
    perm = _to_last(rank, axis)
    taken = out.emit(TakeAlong(rank - 1), out.transpose(cut, perm), out.transpose(indices, perm))
    return out.transpose(taken, inverse(perm))


def _cut(out: Emitter, x: Value, shape: tuple[int, ...], axis: int) -> Value:
    limits = tuple(n if i == axis else m for i, (n, m) in enumerate(zip(x.shape, shape, strict=True)))
    if limits == x.shape:
        return x
    return out.emit(Slice((0,) * len(limits), limits, (1,) * len(limits)), x)


def scatter_along_last(out: Emitter, node: Node) -> Value | None:
    """As `gather_along_last`; what the indices do not reach is put back around the part that they do."""
    op, (x, indices, updates) = node.op, node.inputs
    assert isinstance(op, ScatterAlong)
    rank, axis = len(x.shape), op.axis
    part = _cut(out, x, indices.shape, axis)
    if part is x and axis == rank - 1:
        return None
    perm = _to_last(rank, axis)
    operands = (out.transpose(v, perm) for v in (part, indices, updates))
    result = out.transpose(out.emit(ScatterAlong(rank - 1, op.kind), *operands), inverse(perm))
    for i in range(rank):  # along axis i what lies beyond the indices, within what is whole already elsewhere
        have = result.shape[i]
        if have < x.shape[i]:
            starts = tuple(have if k == i else 0 for k in range(rank))
            limits = tuple(x.shape[k] if k == i else result.shape[k] for k in range(rank))
            rest = out.emit(Slice(starts, limits, (1,) * rank), x)
            result = out.emit(Concat(i), result, rest)
    assert math.prod(result.shape) == math.prod(x.shape)
    return result
