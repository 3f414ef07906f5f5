"""fold_batch_norm: the scale goes into the weights."""

import numpy as np
import pytest
from helpers.graph_samples import arrays_for

from ranvier import dtypes
from ranvier.compiler.graph.fold_batch_norm import fold_batch_norm
from ranvier.graph import BatchNorm, Conv, GraphBuilder, TensorType, verify


def build(layer: str, bias: bool, *, used_twice: bool = False, transposed: bool = False):
    b = GraphBuilder("g")

    def param(name, *shape):
        return b.param(name, TensorType(shape, dtypes.float32))

    if layer == "conv":
        x = b.input(TensorType((2, 4, 5, 5), dtypes.float32), "x")
        op = Conv((1, 1), ((1, 1), (0, 0)), (1, 1), 2, transposed, (0, 0) if transposed else ())
        y = b.emit(op, x, param("w", *((4, 3) if transposed else (6, 2)), 3, 3), *([param("b", 6)] if bias else []))
    else:
        x = b.input(TensorType((2, 4), dtypes.float32), "x")
        y = b.linear(x, param("w", 6, 4), param("b", 6) if bias else None)
    statistics = [param(name, 6) for name in ("gamma", "beta", "mean", "variance")]
    normal = b.emit(BatchNorm(1e-3), y, *statistics)
    return b.build([normal, y] if used_twice else [normal])


@pytest.mark.parametrize("layer", ["conv", "linear"])
@pytest.mark.parametrize("bias", [False, True])
def test_folded(layer, bias):
    graph = build(layer, bias)
    result = verify(fold_batch_norm(graph), "fold_batch_norm")
    depends_on_input = [n.op.mnemonic for n in result.nodes if result.inputs[0] in n.inputs]
    assert depends_on_input == [layer] and result.nodes[-1].op.mnemonic == layer
    assert not any(isinstance(n.op, BatchNorm) for n in result.nodes)
    inputs = arrays_for(None, graph.input_types, 0)
    params = {p.key: np.abs(a) + 0.1 if p.key == "variance" else a for p, a in
              zip(graph.params, arrays_for(None, [p.value.type for p in graph.params], 1), strict=True)}
    (a,), (e,) = (g.evaluate(inputs, params, precision="float64") for g in (result, graph))
    np.testing.assert_allclose(a, e, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{"used_twice": True}, {"transposed": True}])
def test_left_alone(options):
    graph = build("conv", True, **options)
    assert fold_batch_norm(graph) == graph
