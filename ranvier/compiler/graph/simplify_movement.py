"""Rules of `simplify` for operations that only move elements."""

from __future__ import annotations

import numpy as np

from ranvier.graph.contract import MatMul
from ranvier.graph.core import Node, Value
from ranvier.graph.elementwise import Binary, Cast, Clamp, Unary
from ranvier.graph.movement import Broadcast, Concat, Pad, Reshape, Reverse, Slice, Transpose
from ranvier.graph.rewriter import GraphScope
from ranvier.ir.rewrite import rule


@rule(Reshape)
def drop_reshape(b: GraphScope, node: Node[Reshape]):
    """A reshape to the same shape does nothing; of two reshapes the last one counts."""
    x = node.inputs[0]
    if x.shape == node.output.shape:
        return x
    found = b.made_by(x, Reshape)
    return b.reshape(found[1][0], node.output.shape) if found else None


@rule(Transpose)
def compose_transpose(b: GraphScope, node: Node[Transpose]):
    """Two transposes are one; one that keeps the order of the axes longer than 1 is a reshape."""
    x, perm = node.inputs[0], node.op.perm
    long = [a for a in perm if x.shape[a] != 1]
    if long == sorted(long):
        return b.reshape(x, node.output.shape)
    found = b.made_by(x, Transpose)
    return b.transpose(found[1][0], [found[0].perm[a] for a in perm]) if found else None


@rule(Broadcast)
def compose_broadcast(b: GraphScope, node: Node[Broadcast]):
    """A broadcast to the same shape does nothing; to as many elements it is a reshape; two are one."""
    x = node.inputs[0]
    if x.type.elements == node.output.type.elements:
        return b.reshape(x, node.output.shape)
    found = b.made_by(x, Broadcast)
    return b.broadcast(found[1][0], node.output.shape) if found else None


@rule(Slice)
def simplify_slice(b: GraphScope, node: Node[Slice]):
    """A slice of everything does nothing; two slices are one; a slice of a concat is one of its parts."""
    op, x = node.op, node.inputs[0]
    if x.shape == node.output.shape:
        return x
    inner = b.made_by(x, Slice)
    if inner:
        return _slice_of_slice(b, op, inner[0], inner[1][0])
    joined = b.made_by(x, Concat)
    return _slice_of_concat(b, op, joined[0].axis, joined[1]) if joined else None


def _slice_of_slice(b: GraphScope, outer: Slice, inner: Slice, x: Value) -> Value:
    starts, limits, strides = [], [], []
    for axis in range(x.type.rank):
        first = inner.starts[axis] + outer.starts[axis] * inner.strides[axis]
        stride = inner.strides[axis] * outer.strides[axis]
        count = -((outer.starts[axis] - outer.limits[axis]) // outer.strides[axis])
        starts.append(min(first, x.shape[axis]))
        limits.append(min(first, x.shape[axis]) if not count else first + (count - 1) * stride + 1)
        strides.append(stride)
    return b.slice(x, starts, limits, strides)


def _slice_of_concat(b: GraphScope, op: Slice, axis: int, parts: tuple[Value, ...]) -> Value | None:
    """Only for slices that lie in one part, or begin and end where parts do."""
    start, limit = op.starts[axis], op.limits[axis]
    ends = np.cumsum([p.shape[axis] for p in parts])
    begins = ends - [p.shape[axis] for p in parts]
    touched = [i for i in range(len(parts)) if begins[i] < limit and ends[i] > start]
    if not touched or (len(touched) == len(parts) and len(parts) > 1):
        return None
    offset = int(begins[touched[0]])
    kept = [parts[i] for i in touched]
    rest = kept[0] if len(kept) == 1 else b.concat(kept, axis)
    starts, limits = list(op.starts), list(op.limits)
    starts[axis], limits[axis] = start - offset, limit - offset
    return b.slice(rest, starts, limits, op.strides)


@rule(Concat)
def simplify_concat(b: GraphScope, node: Node[Concat]):
    """Empty parts are left out, a concat of one part does nothing, and slices that follow on each other are one."""
    axis = node.op.axis
    parts: list[Value] = []
    for part in node.inputs:
        joined = _adjacent(b, parts[-1], part, axis) if parts else None
        if joined is not None:
            parts[-1] = joined
        elif part.shape[axis]:
            parts.append(part)
    if not parts:
        return node.inputs[0]
    if len(parts) == len(node.inputs) > 1:
        return None
    return parts[0] if len(parts) == 1 else b.concat(parts, axis)


def _adjacent(b: GraphScope, left: Value, right: Value, axis: int) -> Value | None:
    first, second = b.made_by(left, Slice), b.made_by(right, Slice)
    if not first or not second or first[1][0] is not second[1][0]:
        return None
    one, two = first[0], second[0]
    fits = one.limits[axis] == two.starts[axis] and set(one.strides) | set(two.strides) == {1}
    for a in range(left.type.rank):
        fits = fits and (a == axis or (one.starts[a], one.limits[a]) == (two.starts[a], two.limits[a]))
    if not fits:
        return None
    limits = tuple(two.limits[a] if a == axis else n for a, n in enumerate(one.limits))
    return b.emit(Slice(one.starts, limits, one.strides), first[1][0])


@rule(Pad)
def drop_pad(b: GraphScope, node: Node[Pad]):
    """Padding by nothing does nothing."""
    return node.inputs[0] if node.inputs[0].shape == node.output.shape else None


@rule(Reverse)
def drop_reverse(b: GraphScope, node: Node[Reverse]):
    """Reversing axes of extent 1 does nothing; reversing twice is none."""
    op, x = node.op, node.inputs[0]
    if all(x.shape[a] == 1 for a in op.axes):
        return x
    found = b.made_by(x, Reverse)
    return found[1][0] if found and found[0].axes == op.axes else None


@rule(MatMul)
def outer_product(b: GraphScope, node: Node[MatMul]):
    """A product over one element is elementwise."""
    x, y = node.inputs
    return b.mul(x, y) if x.shape[-1] == 1 else None


@rule(MatMul)
def broadcast_in_matmul(b: GraphScope, node: Node[MatMul]):
    """A product broadcasts leading axes itself: a broadcast of those alone is left out."""
    inputs = list(node.inputs)
    for i, value in enumerate(node.inputs):
        found = b.made_by(value, Broadcast)
        source = found[1][0] if found else value
        if source is not value and source.type.rank >= 2 and source.shape[-2:] == value.shape[-2:]:
            trial = [source if j == i else v for j, v in enumerate(inputs)]
            if np.broadcast_shapes(*(v.shape[:-2] for v in trial)) == node.output.shape[:-2]:
                inputs = trial
    return b.emit(node.op, *inputs) if inputs != list(node.inputs) else None


@rule(Reshape)
def split_back(b: GraphScope, node: Node[Reshape]):
    """A reshape that undoes a reshape around elementwise operations of one operand goes before them."""
    x = node.inputs[0]
    made = b.made.get(x)
    if made is None or not isinstance(made.op, Unary | Cast | Clamp) or b.uses(x) > 1:
        return None
    inner = b.made_by(made.inputs[0], Reshape)
    if inner and inner[1][0].shape == node.output.shape:
        return b.emit(made.op, inner[1][0])
    return None


@rule(Binary)
def scalar_without_axes(b: GraphScope, node: Node[Binary]):
    """An operand of one element whose axes the result does not need is used as it was before its reshape."""
    inputs = list(node.inputs)
    for i, value in enumerate(node.inputs):
        found = b.made_by(value, Reshape)
        if found and found[1][0].type.rank == 0 and inputs[1 - i].type.rank >= value.type.rank:
            inputs[i] = found[1][0]
    return b.emit(node.op, *inputs) if inputs != list(node.inputs) else None


MOVEMENT_RULES = (
    drop_reshape,
    compose_transpose,
    compose_broadcast,
    simplify_slice,
    simplify_concat,
    drop_pad,
    drop_reverse,
    outer_product,
    broadcast_in_matmul,
    split_back,
    scalar_without_axes,
)
