"""Turn transposed and three-dimensional convolutions into the plain ones that have a kernel."""

from __future__ import annotations

from dataclasses import replace

from ranvier.compiler.graph.emitter import Emitter
from ranvier.graph.contract import Conv
from ranvier.graph.core import Node, Value
from ranvier.graph.elementwise import Binary
from ranvier.graph.movement import Concat, Pad, Reverse


def simplify_convolution(out: Emitter, node: Node) -> Value | None:
    """The convolution as ordinary ones in at most two dimensions; None where it is one already."""
    op, (x, weight, *bias) = node.op, node.inputs
    assert isinstance(op, Conv)
    if not op.transposed and len(op.stride) <= 2:
        return None
    if op.transposed:
        op, x, weight = _spread(out, op, x, weight)
    if len(op.stride) <= 2:
        return out.emit(op, x, weight, *bias)
    result = _without_depth(out, op, x, weight)
    if bias:
        column = out.reshape(bias[0], (bias[0].shape[0], *(1,) * (len(result.shape) - 2)))
        result = out.emit(Binary("add"), result, column)
    return result


def _spread(out: Emitter, op: Conv, x: Value, weight: Value) -> tuple[Conv, Value, Value]:
    """A transposed convolution is one of the image with zeros between its elements, with the weight mirrored."""
    rank, kernel = len(op.stride), weight.shape[2:]
    for i, step in enumerate(op.stride):
        x = _with_zeros(out, x, 2 + i, step)
    extra = op.output_padding or (0,) * rank
    padding = []
    for i in range(rank):
        reach = op.dilation[i] * (kernel[i] - 1)
        before, after = reach - op.padding[i][0], reach - op.padding[i][1] + extra[i]
        cut = (max(-before, 0), x.shape[2 + i] - max(-after, 0))  # more is cut off than the window reaches beyond
        x = out.slice_axis(x, 2 + i, *cut)
        padding.append((max(before, 0), max(after, 0)))
    channels, per_group = weight.shape[:2]
    weight = out.reshape(weight, (op.groups, channels // op.groups, per_group, *kernel))
    weight = out.transpose(weight, (0, 2, 1, *range(3, 3 + rank)))
    weight = out.reshape(weight, (op.groups * per_group, channels // op.groups, *kernel))
    weight = out.emit(Reverse(tuple(range(2, 2 + rank))), weight)
    plain = Conv((1,) * rank, tuple(padding), op.dilation, op.groups)
    return plain, x, weight


def _with_zeros(out: Emitter, x: Value, axis: int, step: int) -> Value:
    """`x` with step - 1 zeros between its elements along `axis`."""
    size = x.shape[axis]
    if step == 1 or size == 1:
        return x
    split = out.reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
    rank = len(split.shape)
    high = tuple(step - 1 if i == axis + 1 else 0 for i in range(rank))
    padded = out.emit(Pad((0,) * rank, high, 0.0), split)
    joined = out.reshape(padded, (*x.shape[:axis], size * step, *x.shape[axis + 1 :]))
    return out.slice_axis(joined, axis, 0, (size - 1) * step + 1)


def _without_depth(out: Emitter, op: Conv, x: Value, weight: Value) -> Value:
    """A convolution in three dimensions: slices along the depth are images, and the taps along it further channels."""
    (step, *stride), (reach, *dilation), ((front, back), *padding) = op.stride, op.dilation, op.padding
    batch, channels, depth, height, width = x.shape
    outs, per_group, taps, *kernel = weight.shape
    low, high = (0, 0, front, 0, 0), (0, 0, back, 0, 0)
    if front or back:
        x = out.emit(Pad(low, high, 0.0), x)
    count = (depth + front + back - reach * (taps - 1) - 1) // step + 1
    parts = []
    for tap in range(taps):
        first = tap * reach
        part = out.slice_axis(x, 2, first, first + (count - 1) * step + 1, step)
        part = out.transpose(part, (0, 2, 1, 3, 4))
        parts.append(out.reshape(part, (batch * count, op.groups, 1, per_group, height, width)))
    images = out.emit(Concat(2), *parts) if len(parts) > 1 else parts[0]
    images = out.reshape(images, (batch * count, channels * taps, height, width))
    matrix = out.transpose(weight, (0, 2, 1, 3, 4))
    matrix = out.reshape(matrix, (outs, taps * per_group, *kernel))
    flat = replace(op, stride=tuple(stride), padding=tuple(padding), dilation=tuple(dilation), output_padding=())
    result = out.emit(flat, images, matrix)
    result = out.reshape(result, (batch, count, *result.shape[1:]))
    return out.transpose(result, (0, 2, 1, 3, 4))
