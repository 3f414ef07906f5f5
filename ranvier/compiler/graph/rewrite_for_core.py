"""Turn operations without a kernel of their own into forms that have one on the core."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ranvier.graph.composite import BatchNorm, GroupNorm, LayerNorm, Linear, Rope
from ranvier.graph.contract import Conv, MatMul
from ranvier.graph.core import Constant, Graph, Node, Op, Value, infer_types
from ranvier.graph.elementwise import Binary, Unary
from ranvier.graph.movement import Reshape, Transpose
from ranvier.loc import Loc


class _Emitter:
    """Nodes that replace one node, all at its place in the source."""

    def __init__(self, graph: Graph, nodes: list[Node], constants: list[Constant]):
        self.nodes, self.constants = nodes, constants
        self.producers: dict[Value, Node] = {}
        self.params = {p.value for p in graph.params}
        self.loc: Loc | None = None

    def emit(self, op: Op, *values: Value, name: str = "") -> Value:
        (made,) = infer_types(op, [v.type for v in values], self.loc)
        result = Value(made, name)
        self.add(Node(op, values, (result,), self.loc))
        return result

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        for value in node.outputs:
            self.producers[value] = node

    def number(self, value: float, like: Value) -> Value:
        array = np.asarray(value, dtype=like.dtype.np)
        made = Value(like.type.with_shape(()), "")
        self.constants.append(Constant(made, array))
        return made

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        return x if x.shape == shape else self.emit(Reshape(shape), x)


Rule = Callable[[_Emitter, Node], Value | None]


def rewrite_for_core(graph: Graph) -> Graph:
    """Apply `RULES` to every node, once, in order; a rule that returns None leaves the node as it is."""
    nodes: list[Node] = []
    constants = list(graph.constants)
    out = _Emitter(graph, nodes, constants)
    renamed: dict[Value, Value] = {}
    for node in graph.nodes:
        node = replace(node, inputs=tuple(renamed.get(v, v) for v in node.inputs))
        out.loc = node.loc
        rule = RULES.get(type(node.op))
        result = rule(out, node) if rule is not None else None
        if result is None:
            out.add(node)
        else:
            renamed[node.output] = result
    outputs = tuple(renamed.get(v, v) for v in graph.outputs)
    return replace(graph, nodes=tuple(nodes), constants=tuple(constants), outputs=outputs)


def _rope_before_split(out: _Emitter, node: Node) -> Value | None:
    """rope(transpose(x)) as transpose(rope(x)): rows of x then hold all heads of a position, as its producer made them."""
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


def _patches_to_linear(out: _Emitter, node: Node) -> Value | None:
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


def _batch_norm_to_scale(out: _Emitter, node: Node) -> Value | None:
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


def _group_norm_to_layer_norm(out: _Emitter, node: Node) -> Value | None:
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


def _matmul_to_linear(out: _Emitter, node: Node) -> Value | None:
    """x times a weight matrix: the weight can be laid out when it is loaded."""
    x, w = node.inputs
    if w not in out.params or len(w.shape) != 2 or len(x.shape) < 2:
        return None
    return out.emit(Linear(), x, out.emit(Transpose((1, 0)), w))


RULES: dict[type[Op], Rule] = {
    Rope: _rope_before_split,
    Conv: _patches_to_linear,
    BatchNorm: _batch_norm_to_scale,
    GroupNorm: _group_norm_to_layer_norm,
    MatMul: _matmul_to_linear,
}
