"""Choose for every group's result which axis lies on partitions, from what its consumers want."""

from __future__ import annotations

import math
from collections import Counter

from ranvier.compiler.graph.fuse import Group
from ranvier.compiler.layout import Layout, channels, columns, rows
from ranvier.graph.attention import Attention
from ranvier.graph.composite import BatchNorm, GroupNorm, LayerNorm, Linear, LogSoftmax, RmsNorm, Rope, Softmax
from ranvier.graph.contract import Conv, MatMul, Pool
from ranvier.graph.core import Graph, Node, Value
from ranvier.graph.indexing import Take
from ranvier.graph.movement import Reshape, Transpose
from ranvier.graph.reduce import Reduce

SPLIT_HEADS = (0, 2, 1, 3)


def root(value: Value, producers: dict[Value, Node]) -> Value:
    """The value with the same elements in the same order from which reshapes made `value`."""
    while value in producers and isinstance(producers[value].op, Reshape):
        value = producers[value].inputs[0]
    return value


def unsplit_heads(value: Value, producers: dict[Value, Node]) -> Value | None:
    """For [B, H, S, D] made by splitting and transposing: the [B, S, H, D] value that was transposed, else None."""
    node = producers.get(value)
    if node is not None and isinstance(node.op, Transpose) and node.op.perm == SPLIT_HEADS:
        return node.inputs[0]
    return None


def merged_heads(node: Node, users: dict[Value, list[Node]]) -> Value | None:
    """For attention whose result is only transposed to [B, S, H, D]: that transposed value, else None."""
    using = users[node.output]
    if len(using) == 1 and isinstance(using[0].op, Transpose) and using[0].op.perm == SPLIT_HEADS:
        return using[0].output
    return None


def head_layout(shape: tuple[int, ...], shared: bool) -> Layout:
    """Layout of [B, S, H, D] queries or keys: the head dimension on partitions.

    Heads of 32 or 64 are packed into tiles of 128 partitions, where an engine can start at each of them; others, and
    heads whose keys serve several query heads (`shared`: both operands of a product start at one partition), get tiles
    of their own.
    """
    batch, length, heads, size = shape
    packed = size in (32, 64) and not shared
    return Layout(batch * length, heads * size, 1, 0 if packed else size)


def reduction_layout(shape: tuple[int, ...], axes: tuple[int, ...]) -> Layout | None:
    """The layout with the reduced axes in the free dimension; None where they are not neighbours."""
    if axes != tuple(range(axes[0], axes[0] + len(axes))):
        return None
    before = math.prod(shape[: axes[0]])
    reduced = math.prod(shape[i] for i in axes)
    after = math.prod(shape[axes[-1] + 1 :])
    if after == 1:
        if before == 1 or axes[0] < 2 or before == shape[0]:
            return Layout(1, before, reduced)
        # [N, C, pixels]: the axis before the reduced ones on partitions
        return Layout(math.prod(shape[: axes[0] - 1]), shape[axes[0] - 1], reduced)
    return Layout(before * reduced, after, 1)


def wanted(group: Group, operand: Value, own: Layout | None) -> Layout | None:
    """The layout in which `group` reads `operand` best; None where it does not matter."""
    anchor = group.anchor
    if anchor is None or operand not in anchor.inputs:
        return own if own is not None and operand.shape == group.last.outputs[0].shape else None
    position = anchor.inputs.index(operand)
    op = anchor.op
    match op:
        case Linear() if position == 0:
            return columns(operand.shape)
        case MatMul() if position == 0 and len(operand.shape) >= 2:
            return columns(operand.shape)
        case MatMul() if position == 1 and len(operand.shape) >= 2:
            return Layout(math.prod(operand.shape[:-2]), operand.shape[-2], operand.shape[-1])
        case Softmax() | LogSoftmax() | LayerNorm() | RmsNorm() | Rope() if position == 0:
            return rows(operand.shape)
        case Conv() | Pool() | BatchNorm() | GroupNorm() if position == 0 and len(operand.shape) > 2:
            return channels(operand.shape)
        case Reduce() if op.axes:
            return reduction_layout(operand.shape, op.axes)
    return None


def _attention_wants(node: Node, producers: dict[Value, Node]) -> list[tuple[Value, Layout]]:
    """What attention wants of the values before the split into heads."""
    query, key, value = node.inputs[:3]
    shared = query.shape[1] != key.shape[1]
    found = []
    for operand in (query, key):
        plain = unsplit_heads(operand, producers)
        if plain is not None:
            found.append((plain, head_layout(plain.shape, shared)))
    plain = unsplit_heads(value, producers)
    if plain is not None:
        found.append((plain, rows(plain.shape, 2, plain.shape[1])))
    return found


def assign_layouts(graph: Graph, groups: tuple[Group, ...]) -> dict[Value, Layout]:
    """The layout of each group's first result, by the value without reshapes. From the last group to the first, so that
    a group knows what its consumers chose; most votes win, rows on partitions win a tie."""
    producers = graph.producers()
    votes: dict[Value, Counter[Layout]] = {}
    chosen: dict[Value, Layout] = {}
    for group in reversed(groups):
        result = group.last.outputs[0]
        own = choose(group, votes.get(result, Counter()))
        if own is not None:
            chosen[result] = own
        if group.anchor is not None and isinstance(group.anchor.op, Attention):
            wants = _attention_wants(group.anchor, producers)
        else:
            wants = [(v, layout) for v in group.inputs if (layout := wanted(group, v, own)) is not None]
        for value, layout in wants:
            votes.setdefault(root(value, producers), Counter())[layout] += 1
    return chosen


def choose(group: Group, votes: Counter[Layout]) -> Layout | None:
    """The layout of the group's result: what it can make, as its consumers want; None where it makes an HBM tensor."""
    result = group.last.outputs[0]
    shape = result.shape
    anchor = group.anchor
    if anchor is None:
        return _most(votes) or (rows(shape) if shape else Layout(1, 1, 1))
    match anchor.op:
        case Linear() | MatMul():
            size = anchor.output.shape[-1]
            batch = math.prod(anchor.output.shape[:-1])
            fitting = Counter({v: n for v, n in votes.items() if (v.a, v.b) == (1, batch) or (v.b, v.c) == (size, 1)})
            if isinstance(anchor.op, MatMul) and batch != anchor.output.shape[-2]:
                return rows(shape, segment=shape[-2])  # a tile holds rows of one product of the batch
            return _most(fitting) or rows(shape)
        case Conv() | Pool():
            return channels(shape)
        case Softmax() | LogSoftmax() | LayerNorm() | RmsNorm() | Take() | Rope():
            return rows(shape)
    return None


def _most(votes: Counter[Layout]) -> Layout | None:
    if not votes:
        return None
    best = max(votes.values())
    leaders = [layout for layout, count in votes.items() if count == best]
    return next((layout for layout in leaders if layout.a == 1), leaders[0])
