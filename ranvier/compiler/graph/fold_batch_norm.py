"""Fold batch norms into the convolution or linear layer before them."""

from __future__ import annotations

from ranvier.graph.composite import BatchNorm, Linear
from ranvier.graph.contract import Conv
from ranvier.graph.core import Graph, Node
from ranvier.graph.rewriter import GraphScope, rewrite_graph
from ranvier.ir.rewrite import Firing, rule


def fold_batch_norm(graph: Graph, log: list[Firing] | None = None) -> Graph:
    """`graph` with weights and biases scaled in place of batch norms whose operand is used for nothing else.

    The scaled weights depend on parameters alone, so that they are computed once, before the run. This changes where
    results are rounded, and not what they mean.
    """
    return rewrite_graph(graph, [fold], log)


@rule(BatchNorm)
def fold(b: GraphScope, node: Node[BatchNorm]):
    """(w x + b - mean) * s + shift is (w * s) x + (b - mean) * s + shift, with s = weight / sqrt(variance + eps)."""
    op, (x, weight, shift, mean, variance) = node.op, node.inputs
    found = b.made_by(x, Conv) or b.made_by(x, Linear)
    if not found or b.uses(x) > 1 or x.type.rank < 2 or not all(map(b.from_parameters, node.inputs[1:])):
        return None
    layer, (source, kernel, *bias) = found
    if (isinstance(layer, Conv) and layer.transposed) or not b.from_parameters(kernel):
        return None
    if isinstance(layer, Linear) and x.type.rank != 2:
        return None  # the channels of a batch norm are axis 1, those of a linear layer the last one
    scale = b.mul(weight, b.rsqrt(b.add(variance, op.eps)))
    scaled = b.mul(kernel, b.reshape(scale, (-1, *(1,) * (kernel.type.rank - 1))))
    centered = b.sub(bias[0], mean) if bias else b.neg(mean)
    return b.emit(layer, source, scaled, b.add(b.mul(centered, scale), shift))
