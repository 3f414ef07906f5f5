"""The rules of the level, evaluation at its borders, and the builder."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from ranvier import dtypes
from ranvier.errors import RanvierError
from ranvier.graph import (
    CONSTANT_LIMIT_BYTES,
    Constant,
    Graph,
    GraphBuilder,
    Node,
    Param,
    TensorType,
    Unary,
    Value,
    parse_graph,
    verify,
)
from ranvier.loc import Loc

F4 = TensorType((4,), dtypes.float32)


def small_graph() -> Graph:
    b = GraphBuilder()
    x, w = b.input(F4, "x"), b.param("w", F4)
    return b.build([b.exp(b.add(x, w))])


def broken(graph: Graph, rule: str, says: str) -> None:
    with pytest.raises(RanvierError, match=says) as caught:
        verify(graph, "a_pass")
    assert (caught.value.code, caught.value.rule) == ("E0901", rule)
    assert "after a_pass" in caught.value.message


def test_rules_of_the_level():
    graph = small_graph()
    x, add, exp = graph.inputs[0], *graph.nodes
    assert verify(graph) is graph
    broken(replace(graph, nodes=(add, exp, exp)), "G-1", "defined twice")
    broken(replace(graph, nodes=(exp, add)), "G-2", "exp uses .* not defined before")
    wrong = Value(TensorType((5,), dtypes.float32))
    broken(replace(graph, nodes=(add, Node(Unary("exp"), add.outputs, (wrong,), Loc("m.py", 3)))), "G-3", "recorded is")
    broken(replace(graph, nodes=(Node(Unary("logical_not"), (x,), (wrong,)),)), "G-3", "logical_not: takes bool")
    twice = (*graph.params, Param(Value(F4), "w"))
    broken(replace(graph, params=twice), "G-4", "parameter names occur twice: w")
    inputs = replace(graph, inputs=(x, Value(F4, "x")), input_dtypes=())
    broken(inputs, "G-4", "input names occur twice: x")
    broken(replace(graph, outputs=(wrong,), output_dtypes=()), "G-5", "is not defined")
    constant = Constant(Value(F4), np.zeros(5, np.float32))
    broken(replace(graph, constants=(constant,)), "G-6", r"holds float32\(5,\), 20 bytes")
    broken(replace(graph, input_dtypes=(dtypes.int64,)), "G-7", "meets the caller as int64")


def test_evaluation_checks_its_arguments():
    graph = small_graph()
    x, w = np.zeros(4, np.float32), {"w": np.ones(4, np.float32)}
    cases = [
        ((), w, "takes 1 inputs, not 0"),
        ((np.zeros(3, np.float32),), w, r"input x is float32\[3\], expected float32\[4\]"),
        ((np.zeros(4),), w, r"input x is float64\[4\]"),
        ((x,), {}, "parameter 'w' is missing"),
        ((x,), {"w": np.ones(4, np.int32)}, r"parameter 'w' is int32\[4\], expected float32\[4\]"),
    ]
    for inputs, params, says in cases:
        with pytest.raises(RanvierError, match=says) as caught:
            graph.evaluate(inputs, params)
        assert caught.value.code == "E0603"
    with pytest.raises(RanvierError) as caught:
        graph.evaluate([x], w, precision="float16")
    assert caught.value.code == "E0802"


def test_each_value_is_rounded_once():
    b = GraphBuilder()
    x, y = (b.input(TensorType((1,), dtypes.bfloat16)) for _ in range(2))
    graph = b.build([b.mul(b.add(x, y), y)])
    one, small = np.ones(1, ml_dtypes.bfloat16), np.full(1, 2.0**-9, ml_dtypes.bfloat16)
    (rounded,), (exact,) = graph.evaluate([one, small]), graph.evaluate([one, small], precision="float64")
    assert rounded.dtype == ml_dtypes.bfloat16 and float(rounded[0]) == 2.0**-9  # 1 + 2^-9 rounds to 1
    assert exact.dtype == np.float64 and exact[0] == (1 + 2.0**-9) * 2.0**-9


def test_integers_are_exact_and_boundary_conversions_are_checked():
    graph = verify(parse_graph("""graph @main {
      input %x: int32[2] given int64
      %0: int32[2] = add(%x, %x)
      return %0 given int64
    }"""))
    (result,) = graph.evaluate([np.array([2**30 - 1, -5])])
    assert result.dtype == np.int64 and result.tolist() == [2**31 - 2, -10]
    with pytest.raises(RanvierError, match="input x has elements from 1 to 2147483648") as caught:
        graph.evaluate([np.array([1, 2**31])])
    assert caught.value.code == "E0603"


@pytest.mark.parametrize("indices", [[0, 4], [-1, 0]])
def test_indices_outside_name_the_users_line(indices):
    b = GraphBuilder()
    graph = b.build([b.take(b.input(TensorType((4, 2), dtypes.float32)), b.input(TensorType((2,), dtypes.int32)))])
    with pytest.raises(RanvierError, match=r"index (4|-1) at position \([01],\) is not in 0\.\.3") as caught:
        graph.evaluate([np.zeros((4, 2), np.float32), np.array(indices, np.int32)])
    assert caught.value.code == "E0608" and caught.value.where is not None and caught.value.where.file == __file__


def test_on_value_sees_every_node_and_values_are_freed():
    graph, seen = small_graph(), []
    (result,) = graph.evaluate([np.zeros(4, np.float32)], {"w": np.ones(4, np.float32)},
                               on_value=lambda node, arrays: seen.append((node, arrays)))
    assert [node for node, _ in seen] == list(graph.nodes)
    np.testing.assert_array_equal(seen[-1][1][0], result)


def test_builder():
    b = GraphBuilder()
    x = b.input(TensorType((2, 3), dtypes.bfloat16), "x")
    assert b.reshape(x, (3, -1)).shape == (3, 2) and b.reshape(x, (2, 3)) is x and b.cast(x, x.dtype) is x
    assert b.sum(x, -1).shape == (2,) and b.mean(x, (0, -1), keepdims=True).shape == (1, 1)
    assert b.add(1.5, x).type == x.type and b.compare("lt", x, 0.0).dtype is dtypes.bool_
    row, square = b.slice_axis(x, 0, 0, 1), b.matmul(x, b.transpose(x, (-1, 0)))
    vector = b.reshape(row, (3,))
    assert square.shape == (2, 2) and b.matmul(x, vector).shape == (2,) and b.matmul(vector, vector).shape == ()
    graph = b.build([square])
    assert graph.nodes[0].loc is not None and graph.nodes[0].loc.file == __file__
    assert graph.users()[x] and graph.producers()[square] in graph.nodes
    large = np.zeros(CONSTANT_LIMIT_BYTES + 1, np.int8)
    for wrong in (lambda: b.sum(x, 2), lambda: b.add(1, 2), lambda: b.constant(large)):
        with pytest.raises(RanvierError) as caught:
            wrong()
        assert caught.value.code == "E0601"


def test_flops():
    b = GraphBuilder()
    x, w = b.input(TensorType((8, 16), dtypes.float32)), b.param("w", TensorType((4, 16), dtypes.float32))
    bias = b.param("b", TensorType((4,), dtypes.float32))
    graph = b.build([b.transpose(b.linear(x, w, bias), (1, 0))])
    assert graph.flops() == 8 * 4 * (2 * 16 + 1)
