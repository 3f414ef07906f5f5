"""Turn operations without a kernel of their own into forms that have one on the core."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ranvier.compiler.graph.emitter import Emitter
from ranvier.compiler.graph.rewrite_axes import (
    along_last,
    gather_along_last,
    neighbouring_axes,
    scatter_along_last,
    simplify_pool,
    take_along_first,
    without_empty,
)
from ranvier.compiler.graph.rewrite_convolution import simplify_convolution
from ranvier.dtypes import bool_
from ranvier.graph.attention import Attention
from ranvier.graph.composite import BatchNorm, GroupNorm, LayerNorm, Linear, LogSoftmax, Rope, Softmax
from ranvier.graph.contract import Conv, MatMul, Pool
from ranvier.graph.core import Graph, Node, Op, Value
from ranvier.graph.elementwise import Binary, Unary
from ranvier.graph.indexing import ScatterAlong, Sort, Take, TakeAlong, TopK
from ranvier.graph.movement import Broadcast, Concat, Reshape, Slice, Transpose
from ranvier.graph.reduce import ArgReduce, CumSum, Reduce

Rule = Callable[[Emitter, Node], Value | tuple[Value, ...] | None]


def rewrite_for_core(graph: Graph) -> Graph:
    """Apply `RULES` to every node, once, in order; a rule that returns None leaves the node as it is."""
    nodes: list[Node] = []
    constants = list(graph.constants)
    out = Emitter(graph, nodes, constants)
    renamed: dict[Value, Value] = {}
    for node in graph.nodes:
        node = replace(node, inputs=tuple(renamed.get(v, v) for v in node.inputs))
        out.loc = node.loc
        rule = RULES.get(type(node.op))
        result = rule(out, node) if rule is not None else None
        if result is None:
            out.add(node)
        else:
            renamed.update(zip(node.outputs, result if isinstance(result, tuple) else (result,), strict=True))
    outputs = tuple(renamed.get(v, v) for v in graph.outputs)
    return replace(graph, nodes=tuple(nodes), constants=tuple(constants), outputs=outputs)


def _rope_before_split(out: Emitter, node: Node) -> Value | None:
    """rope(transpose(x)) as transpose(rope(x)): rows of x hold all heads of a position, as its producer made them."""
    made = out.producers.get(node.inputs[0])
    if made is None or not isinstance(made.op, Transpose) or made.op.perm != (0, 2, 1, 3):
        return None
    x = made.inputs[0]
    tables = []
    for table in node.inputs[1:]:
        if len(table.shape) == 2:
            table = out.reshape(table, (1, 1, *table.shape))
        elif len(table.shape) == 3:
            table = out.reshape(table, (table.shape[0], 1, *table.shape[1:]))
        batch, heads, length, size = table.shape
        turned = (batch, length, heads, size)
        tables.append(out.reshape(table, turned) if heads == 1 else out.emit(Transpose((0, 2, 1, 3)), table))
    return out.emit(Transpose((0, 2, 1, 3)), out.emit(node.op, x, *tables))


def _patches_to_linear(out: Emitter, node: Node) -> Value | None:
    """A convolution whose windows neither overlap nor leave gaps is a linear layer on patches."""
    op, (x, weight) = node.op, node.inputs[:2]
    assert isinstance(op, Conv)
    kernel = weight.shape[2:]
    flat = len(kernel) == 2 and kernel != (1, 1) and tuple(op.stride) == kernel and op.groups == 1 and not op.transposed
    if not flat or any(p != (0, 0) for p in op.padding) or any(d != 1 for d in op.dilation):
        return None
    batch, channels, height, width = x.shape
    (kh, kw), out_channels = kernel, weight.shape[0]
    if height % kh or width % kw:
        return None
    rows, columns = height // kh, width // kw
    patches = out.emit(Reshape((batch, channels, rows, kh, columns, kw)), x)
    patches = out.emit(Transpose((0, 2, 4, 1, 3, 5)), patches)
    patches = out.emit(Reshape((batch, rows * columns, channels * kh * kw)), patches)
    matrix = out.emit(Reshape((out_channels, channels * kh * kw)), weight)
    result = out.emit(Linear(), patches, matrix, *node.inputs[2:])
    result = out.emit(Transpose((0, 2, 1)), result)
    return out.emit(Reshape((batch, out_channels, rows, columns)), result)


def _batch_norm_to_scale(out: Emitter, node: Node) -> Value | None:
    """x * scale + shift with one scale and shift per channel, which depend on parameters only."""
    op = node.op
    assert isinstance(op, BatchNorm)
    x, weight, bias, mean, variance = node.inputs
    epsilon = out.number(op.eps, variance)
    inverse = out.emit(Unary("rsqrt"), out.emit(Binary("add"), variance, epsilon))
    scale = out.emit(Binary("mul"), weight, inverse)
    shift = out.emit(Binary("sub"), bias, out.emit(Binary("mul"), mean, scale))
    shape = (x.shape[1],) + (1,) * (len(x.shape) - 2)
    scaled = out.emit(Binary("mul"), x, out.reshape(scale, shape))
    return out.emit(Binary("add"), scaled, out.reshape(shift, shape))


def _group_norm_to_layer_norm(out: Emitter, node: Node) -> Value | None:
    """Normalize each group as one row, then scale and shift each channel."""
    op = node.op
    assert isinstance(op, GroupNorm)
    x, *affine = node.inputs
    batch, count = x.shape[:2]
    size = count // op.groups * math.prod(x.shape[2:])
    grouped = out.reshape(x, (batch, op.groups, size))
    normal = out.emit(LayerNorm(axes=(2,), eps=op.eps, has_weight=False, has_bias=False), grouped)
    result = out.reshape(normal, x.shape)
    shape = (count,) + (1,) * (len(x.shape) - 2)
    for kind, value in zip(("mul", "add"), affine, strict=False):
        result = out.emit(Binary(kind), result, out.reshape(value, shape))
    return result


def _matmul_to_linear(out: Emitter, node: Node) -> Value | None:
    """A batch of x times one matrix is one product: a parameter's layout is chosen when it is loaded, too."""
    x, w = node.inputs
    batched = math.prod(x.shape[:-2]) > 1 and math.prod(w.shape[:-2]) == 1
    if (not batched and (w not in out.params or len(w.shape) != 2)) or x.dtype.is_integer:
        return None
    matrix = out.reshape(w, w.shape[-2:])
    return out.reshape(out.emit(Linear(), x, out.emit(Transpose((1, 0)), matrix)), node.output.shape)


def _take_by_literal(out: Emitter, node: Node) -> Value | None:
    """Rows by known numbers: consecutive ones are a slice, one number everywhere is one row, repeated."""
    table, indices = node.inputs
    known = out.literal(indices)
    if known is None or node.op.axis != 0 or known.size == 0:  # type: ignore[attr-defined]
        return None
    flat = known.reshape(-1).astype(np.int64)
    first = int(flat[0])
    consecutive = np.array_equal(flat, np.arange(first, first + flat.size))
    if not (consecutive or (flat == first).all()) or not 0 <= first < table.shape[0]:
        return None
    count = flat.size if consecutive else 1
    rest = table.shape[1:]
    part = table
    if (first, count) != (0, table.shape[0]):
        starts, limits = (first,) + (0,) * len(rest), (first + count, *rest)
        part = out.emit(Slice(starts, limits, (1,) * len(limits)), table)
    if consecutive:
        return out.reshape(part, node.output.shape)
    row = out.reshape(part, (1,) * len(indices.shape) + rest)
    return out.emit(Broadcast(node.output.shape), row)


def _and_true(out: Emitter, node: Node) -> Value | None:
    """x and true is x, broadcast to the result's shape."""
    if node.op.kind not in ("bitwise_and", "logical_and") or node.output.dtype is not bool_:  # type: ignore[attr-defined]
        return None
    for known, other in (node.inputs, node.inputs[::-1]):
        array = out.literal(known)
        if array is not None and array.all() and other.dtype is bool_:
            return other if other.shape == node.output.shape else out.emit(Broadcast(node.output.shape), other)
    return None


WIDEST_VALUES = 512
"""Most elements of one head's values: a row of results has to fit in a PSUM bank."""


def _attention(out: Emitter, node: Node) -> Value | None:
    """Attention broadcasts its mask itself: the mask as it was before somebody broadcast it."""
    if node.inputs[2].shape[-1] > WIDEST_VALUES:
        return out.decompose(node)
    if len(node.inputs) < 4:
        return None
    made = out.producers.get(node.inputs[3])
    if made is None or not isinstance(made.op, Broadcast):
        return None
    source = made.inputs[0]
    mask = out.reshape(source, (1,) * (4 - len(source.shape)) + source.shape)
    return out.emit(node.op, *node.inputs[:3], mask)


def _conv(out: Emitter, node: Node) -> Value | None:
    return _patches_to_linear(out, node) or simplify_convolution(out, node)


def _take(out: Emitter, node: Node) -> Value | None:
    return _take_by_literal(out, node) or take_along_first(out, node)


RULES: dict[type[Op], Rule] = {
    Take: _take,
    Binary: _and_true,
    Attention: _attention,
    Rope: _rope_before_split,
    Conv: _conv,
    Pool: simplify_pool,
    Concat: without_empty,
    BatchNorm: _batch_norm_to_scale,
    GroupNorm: _group_norm_to_layer_norm,
    MatMul: _matmul_to_linear,
    Reduce: neighbouring_axes,
    TakeAlong: gather_along_last,
    ScatterAlong: scatter_along_last,
    **dict.fromkeys((Softmax, LogSoftmax, CumSum, ArgReduce, TopK, Sort), along_last),
}
