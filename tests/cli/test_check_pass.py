"""A wrong pass for the tests of `ranvier check`, and that it is wrong."""

import dataclasses

import numpy as np

from ranvier import dtypes as dt
from ranvier.graph import Graph, GraphBuilder, TensorType, Unary


def drop_relu(graph: Graph) -> Graph:
    """A relu becomes an abs."""
    nodes = tuple(dataclasses.replace(n, op=Unary("abs")) if n.op == Unary("relu") else n for n in graph.nodes)
    return dataclasses.replace(graph, nodes=nodes)


def test_it_is_wrong():
    b = GraphBuilder("g")
    x = b.input(TensorType((4,), dt.float32), "x")
    graph = b.build([b.relu(x)])
    array = np.array([-1, 0, 1, 2], np.float32)
    assert not np.array_equal(graph.evaluate([array])[0], drop_relu(graph).evaluate([array])[0])
