"""Every operation: inference agrees with evaluation, composites with their parts, 16 bits with float64."""

import random

import numpy as np
import pytest
from helpers.graph_samples import FLOATS, SAMPLERS, one_op_graph, sample
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier import dtypes
from ranvier.errors import RanvierError
from ranvier.graph import (
    ALL_OPS,
    Attention,
    Binary,
    Compare,
    GraphBuilder,
    Linear,
    Op,
    Pool,
    Reduce,
    TensorType,
    Unary,
    infer_types,
    verify,
)
from ranvier.graph.elementwise import BINARY, COMPARE, UNARY
from ranvier.graph.reduce import REDUCE

SEEDS = st.integers(0, 2**32 - 1)
CLASSES = sorted(SAMPLERS, key=lambda c: c.__name__)
COMPOSITES = [c for c in CLASSES if c.is_composite]


def test_every_operation_has_a_sampler():
    assert set(SAMPLERS) == set(ALL_OPS)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_every_operation_documents_itself(cls):
    assert cls.__doc__ and len(cls.__doc__) > 20


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_evaluation_has_the_inferred_types(cls, seed):
    op, types, arrays = sample(cls, seed)
    graph = one_op_graph(op, types)
    for array, value in zip(graph.evaluate(arrays), graph.outputs, strict=True):
        assert (array.shape, array.dtype) == (value.shape, value.dtype.np)
    for array, value in zip(graph.evaluate(arrays, precision="float64"), graph.outputs, strict=True):
        assert array.shape == value.shape
        assert array.dtype == (np.float64 if value.dtype.is_float else value.dtype.np)


@pytest.mark.parametrize("cls", COMPOSITES, ids=lambda c: c.__name__)
@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_decomposition_agrees(cls, seed):
    op, types, arrays = sample(cls, seed)
    b = GraphBuilder()
    inputs = [b.input(t) for t in types]
    result = op.decompose(b, *inputs)
    graph = verify(b.build([result]))
    assert result.type == infer_types(op, types)[0]
    assert not any(node.op.is_composite for node in graph.nodes)
    (parts,) = graph.evaluate(arrays, precision="float64")
    (whole,) = one_op_graph(op, types).evaluate(arrays, precision="float64")
    np.testing.assert_allclose(parts, whole, rtol=1e-12, atol=1e-12)
    if types[0].dtype is not dtypes.float32 and cls is not Linear:  # casts make 16-bit parts round once, as the whole
        (parts,), (whole,) = graph.evaluate(arrays), one_op_graph(op, types).evaluate(arrays)
        step = np.asarray(_step(types[0].dtype))
        np.testing.assert_allclose(parts.astype(float), whole.astype(float), rtol=step, atol=1e-6)


def _step(dtype) -> float:
    """The distance between 1 and the next number."""
    return {dtypes.bfloat16: 2.0**-7, dtypes.float16: 2.0**-10, dtypes.float32: 2.0**-23}[dtype]


SMOOTH = [c for c in CLASSES if c not in (Compare,)]


@pytest.mark.parametrize("cls", SMOOTH, ids=lambda c: c.__name__)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_evaluation_is_within_rounding_of_float64(cls, seed):
    """Operands are exact in both; so the difference is float32 arithmetic and one rounding to the value's dtype."""
    op, types, arrays = sample(cls, seed)
    discontinuous = isinstance(op, Binary) and op.kind in ("mod", "fmod", "floor_div")
    if discontinuous or not any(t.dtype in FLOATS for t in types):
        return
    graph = one_op_graph(op, types)
    exact = graph.evaluate(arrays, precision="float64")
    for array, oracle, value in zip(graph.evaluate(arrays), exact, graph.outputs, strict=True):
        if value.dtype not in FLOATS:
            np.testing.assert_array_equal(array, oracle)
            continue
        scale = max(1.0, float(np.max(np.abs(oracle), initial=0.0, where=np.isfinite(oracle))))
        np.testing.assert_allclose(array.astype(np.float64), oracle, rtol=_step(value.dtype), atol=4e-6 * scale)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_operations_do_not_write_to_their_operands(cls, seed):
    op, types, arrays = sample(cls, seed)
    before = [a.copy() for a in arrays]
    one_op_graph(op, types).evaluate(arrays)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def F(*shape):
    return TensorType(shape, dtypes.float32)


def I(*shape):  # noqa: E743
    return TensorType(shape, dtypes.int32)


def B(*shape):
    return TensorType(shape, dtypes.bool_)


@pytest.mark.parametrize(
    ("op", "types", "says"),
    [
        (Binary("add"), (F(2, 3), F(4)), r"axis -1 has extents \[3, 4\]"),
        (Binary("add"), (F(2), I(2)), "differ in dtype"),
        (Binary("logical_and"), (F(2), F(2)), "logical_and: takes bool"),
        (Unary("exp"), (I(2),), "exp: takes float"),
        (Unary("exp"), (F(2), F(2)), "takes 1 operands, not 2"),
        (Reduce("sum", (1, 0), False), (F(2, 3),), "must ascend"),
        (Reduce("max", (0,), False), (F(0, 3),), "no elements"),
        (Linear(), (F(2, 3), F(4, 5)), r"weight\[N, K\]"),
        (Attention(1.0), (F(1, 3, 4, 8), F(1, 2, 4, 8), F(1, 2, 4, 8)), "Hkv dividing H"),
        (Attention(1.0, has_mask=True), (F(1, 2, 4, 8),) * 3 + (B(5),), r"operands .*bool\[5\]"),
        (Pool("max", (2,), (1,), ((2, 0),)), (F(1, 1, 4),), "at most half"),
    ],
)
def test_operands_that_do_not_fit(op: Op, types, says):
    b = GraphBuilder()
    inputs = [b.input(t) for t in types]
    with pytest.raises(RanvierError, match=says) as caught:
        b.emit(op, *inputs)
    assert caught.value.code == "E0601"
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_unknown_kinds_are_refused():
    for make in (lambda: Unary("sinh"), lambda: Binary("plus"), lambda: Reduce("median", (), False)):
        with pytest.raises(RanvierError) as caught:
            make()
        assert caught.value.code == "E0601" and "kinds are" in caught.value.message


def test_samplers_reach_every_kind():
    for cls, table in ((Unary, UNARY), (Binary, BINARY), (Compare, COMPARE), (Reduce, REDUCE)):
        assert {SAMPLERS[cls](random.Random(seed))[0].kind for seed in range(400)} == set(table)
