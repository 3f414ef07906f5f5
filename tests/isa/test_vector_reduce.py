"""Reductions, statistics and scans of the vector engine against float64, and their accumulators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isa_tools import TRN1, TRN2, TRN3, Tiles, run

from ranvier import dtypes as dt
from ranvier.errors import NkiValidationError
from ranvier.isa.alu import ALU
from ranvier.isa.enums import ReduceCmd
from ranvier.isa.record import verify
from ranvier.isa.vector_common import REDUCE_STATE
from ranvier.isa.vector_reduce import (
    BnAggr,
    BnStats,
    Exponential,
    TensorReduce,
    TensorScalarCumulative,
    TensorScalarReduce,
    TensorTensorScan,
)
from ranvier.sim.machine import Memory
from ranvier.target.spec import Engine

ADD, SUB, MUL, MAX, MIN = (ALU[n] for n in ("add", "subtract", "multiply", "maximum", "minimum"))
FOLDS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


def numbers(shape, dtype="float32", seed=0, low=-2.0, high=2.0):
    values = np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)
    return values.astype(dt.dtype(dtype).np)


# tensor_reduce --------------------------------------------------------------------------------------------------------


@given(
    shape=st.tuples(st.integers(1, 128), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9)),
    first=st.integers(1, 3), op=st.sampled_from([ADD, SUB, MUL, MAX, MIN]), negate=st.booleans(),
    negative=st.booleans(), dtype=st.sampled_from(["float32", "bfloat16", "int8"]), keepdims=st.booleans(),
)  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_tensor_reduce(shape, first, op, negate, negative, dtype, keepdims):
    tiles, data = Tiles(), numbers(shape, dtype)
    axes = tuple(range(first, 4))
    out = (*shape[:first], *([1] * len(axes))) if keepdims else (*shape[:first], 1)
    inst = TensorReduce(
        dst=tiles("sbuf", out, "float32"), op=op, data=tiles.holding(data, "psum"),
        axis=tuple(a - 4 for a in axes) if negative else axes, negate=negate, keepdims=keepdims,
    )  # fmt: skip
    flat = data.astype(np.float64).reshape(*shape[:first], -1)
    expected = FOLDS[op.name].reduce(flat, axis=-1).reshape(out) * (-1 if negate else 1)
    np.testing.assert_allclose(run(inst, tiles), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bitwise_reduction(name):
    tiles, data = Tiles(), np.random.default_rng(0).integers(-(2**31), 2**31 - 1, (8, 5), np.int32)
    inst = TensorReduce(dst=tiles("sbuf", (8, 1), "int32"), op=ALU[name], data=tiles.holding(data), axis=1)
    assert (run(inst, tiles)[:, 0] == getattr(np, name).reduce(data, axis=1)).all()


def test_logical_reduction():
    tiles, data = Tiles(), np.array([[1, 0, 3], [2, 4, 8]], np.float32)
    inst = TensorReduce(dst=tiles("sbuf", (2, 1), "float32"), op=ALU["logical_and"], data=tiles.holding(data), axis=1)
    assert run(inst, tiles)[:, 0].tolist() == [0, 1]


def test_long_sum_in_float32_from_16_bit():
    tiles, data = Tiles(), numbers((4, 4096), "bfloat16", low=0.0)
    inst = TensorReduce(dst=tiles("sbuf", (4, 1), "float32"), op=ADD, data=tiles.holding(data), axis=1)
    np.testing.assert_allclose(run(inst, tiles)[:, 0], data.astype(np.float64).sum(1), rtol=1e-6)


# bn_stats, bn_aggr ----------------------------------------------------------------------------------------------------


@given(partitions=st.integers(1, 128), count=st.integers(1, 512), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_statistics(partitions, count, seed):
    tiles, data = Tiles(), numbers((partitions, count), seed=seed) + np.float32(3)
    stats = run(BnStats(dst=tiles("sbuf", (partitions, 6), "float32"), data=tiles.holding(data)), tiles)
    exact = data.astype(np.float64)
    for column, part in ((0, exact[:, 0::2]), (3, exact[:, 1::2])):
        assert (stats[:, column] == part.shape[1]).all()
        if part.shape[1]:
            np.testing.assert_allclose(stats[:, column + 1], part.mean(1), rtol=1e-5)
            np.testing.assert_allclose(stats[:, column + 2], part.var(1) * part.shape[1], rtol=1e-4, atol=1e-5)
    merged = run(BnAggr(dst=tiles("sbuf", (partitions, 2), "float32"), data=tiles.holding(stats)), tiles)
    np.testing.assert_allclose(merged[:, 0], exact.mean(1), rtol=1e-5)
    np.testing.assert_allclose(merged[:, 1], exact.var(1), rtol=1e-4, atol=1e-5)


@given(lengths=st.lists(st.integers(1, 64), min_size=1, max_size=5))
@settings(max_examples=20, deadline=None)
def test_statistics_of_chunks_merge_into_those_of_the_whole(lengths):
    tiles, data = Tiles(), numbers((16, sum(lengths)), seed=4) * np.float32(10) - np.float32(50)
    chunks = np.split(data, np.cumsum(lengths)[:-1], axis=1)
    stats = [run(BnStats(dst=tiles("sbuf", (16, 6), "float32"), data=tiles.holding(c)), tiles) for c in chunks]
    joined = tiles.holding(np.stack(stats, axis=1))
    merged = run(BnAggr(dst=tiles("sbuf", (16, 2), "float32"), data=joined), tiles)
    exact = data.astype(np.float64)
    np.testing.assert_allclose(merged, np.stack([exact.mean(1), exact.var(1)], 1), rtol=1e-4, atol=1e-4)


# tensor_tensor_scan ---------------------------------------------------------------------------------------------------


@given(
    shape=st.tuples(st.integers(1, 128), st.integers(1, 4), st.integers(1, 9)), vector=st.booleans(),
    op0=st.sampled_from([ADD, SUB, MUL, MAX]), op1=st.sampled_from([ADD, SUB, MIN]),
    reverse=st.tuples(st.booleans(), st.booleans()),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_scan(shape, vector, op0, op1, reverse):
    tiles, first, second = Tiles(), numbers(shape, low=-1, high=1), numbers(shape, "bfloat16", 5)
    initial = numbers((shape[0], 1), seed=6) if vector else 0.5
    inst = TensorTensorScan(
        dst=tiles("sbuf", shape, "float32"), data0=tiles.holding(first), data1=tiles.holding(second),
        initial=tiles.holding(initial) if isinstance(initial, np.ndarray) else initial, op0=op0, op1=op1,
        reverse0=reverse[0], reverse1=reverse[1],
    )  # fmt: skip
    before = np.broadcast_to(np.asarray(initial, np.float64).reshape(-1), (shape[0],))
    flat = [d.astype(np.float64).reshape(shape[0], -1).T for d in (first, second)]
    steps = []
    for a, b in zip(*flat, strict=True):
        inner = op0.fn(before, a) if reverse[0] else op0.fn(a, before)
        before = op1.fn(b, inner) if reverse[1] else op1.fn(inner, b)
        steps.append(before)
    np.testing.assert_allclose(run(inst, tiles), np.stack(steps, 1).reshape(shape), rtol=1e-4, atol=1e-4)


# Accumulators ---------------------------------------------------------------------------------------------------------


def reduce_with(memory, tiles, values, cmd, op=ADD, init=None, negate=False):
    """Run tensor_scalar_reduce (times 2) on `values`; the reduction that it writes."""
    shape = (values.shape[0], 1)
    inst = TensorScalarReduce(
        dst=tiles("sbuf", values.shape, "float32"), data=tiles.holding(values), op0=MUL, operand0=2.0, reduce_op=op,
        reduce_res=tiles("sbuf", shape, "float32"), reduce_cmd=cmd, reduce_init=init, reduce_res_negate=negate,
    )  # fmt: skip
    result = run(inst, tiles, memory=memory)
    np.testing.assert_allclose(result, 2 * values.astype(np.float64), rtol=1e-6)
    assert inst.reduce_res is not None
    return memory.view(inst.reduce_res)[:, 0].astype(np.float64)


@pytest.mark.parametrize("op", [ADD, MUL, MAX, MIN])
def test_reduction_over_several_instructions(op):
    tiles, memory = Tiles(), Memory({})
    a, b = numbers((32, 6)), numbers((32, 7), seed=1)
    first = reduce_with(memory, tiles, a, ReduceCmd.reset_reduce, op)
    both = reduce_with(memory, tiles, b, ReduceCmd.reduce, op)
    fold = FOLDS[op.name].reduce
    np.testing.assert_allclose(first, fold(2 * a.astype(np.float64), axis=1), rtol=1e-4, atol=1e-5)
    joined = np.concatenate([a, b], 1).astype(np.float64)
    np.testing.assert_allclose(both, fold(2 * joined, axis=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("vector", [False, True])
def test_load_reduce_starts_from_the_given_value(vector):
    tiles, memory, a = Tiles(), Memory({}), numbers((8, 6))
    init = numbers((8, 1), seed=3) if vector else 10.0
    made = tiles.holding(init) if isinstance(init, np.ndarray) else init
    result = reduce_with(memory, tiles, a, ReduceCmd.load_reduce, ADD, made, negate=True)
    expected = -(np.reshape(np.asarray(init, np.float64), -1) + 2 * a.astype(np.float64).sum(1))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_reset_leaves_the_identity_and_idle_nothing():
    tiles, memory, a = Tiles(), Memory({}), numbers((8, 6))
    assert (reduce_with(memory, tiles, a, ReduceCmd.reset, MAX) == -np.inf).all()
    after = reduce_with(memory, tiles, a, ReduceCmd.reduce, MAX)
    np.testing.assert_allclose(after, 2 * a.max(1).astype(np.float64))
    inst = TensorScalarReduce(
        dst=tiles("sbuf", (8, 6), "float32"), data=tiles.holding(a), op0=ADD, operand0=0.0, reduce_op=MAX,
        reduce_cmd=ReduceCmd.idle,
    )  # fmt: skip
    run(inst, tiles, memory=memory)
    assert np.isnan(reduce_with(memory, tiles, a, ReduceCmd.reduce, ADD)).all()


def test_accumulators_that_nothing_has_set_are_poison():
    assert np.isnan(reduce_with(Memory({}), Tiles(), numbers((8, 6)), ReduceCmd.reduce)).all()


def test_lanes_of_a_view_are_its_partitions():
    tiles, memory = Tiles(), Memory({})
    upper = tiles("sbuf", (128, 4), "float32", partitions=slice(64, 128))
    tiles.values[upper.buffer.name] = numbers((128, 4))
    inst = TensorScalarReduce(
        dst=tiles("sbuf", (64, 4), "float32"), data=upper, op0=ADD, operand0=0.0, reduce_op=ADD
    )
    run(inst, tiles, memory=memory)
    registers = memory.state(REDUCE_STATE, 128)[:, 0]
    assert np.isnan(registers[:64]).all()
    np.testing.assert_allclose(registers[64:], numbers((128, 4))[64:].sum(1, dtype=np.float64), rtol=1e-5, atol=1e-6)


@given(
    shape=st.tuples(st.integers(1, 64), st.integers(1, 4), st.integers(1, 9)), op0=st.sampled_from([ADD, SUB, MUL]),
    op1=st.sampled_from([ADD, SUB, MUL, MAX, MIN]), start=st.sampled_from([None, 0.5, "vector"]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_cumulative(shape, op0, op1, start):
    tiles, memory, src = Tiles(), Memory({}), numbers(shape, low=0.5, high=1.5)
    imm1 = numbers((shape[0], 1), seed=7) if start == "vector" else start
    inst = TensorScalarCumulative(
        dst=tiles("sbuf", shape, "float32"), src=tiles.holding(src), op0=op0, op1=op1, imm0=0.25,
        imm1=tiles.holding(imm1) if isinstance(imm1, np.ndarray) else imm1,
        reduce_cmd=ReduceCmd.reset_reduce if start is None else ReduceCmd.load_reduce,
    )  # fmt: skip
    values = op0.fn(src.astype(np.float64).reshape(shape[0], -1), 0.25)
    before = op1.identity if imm1 is None else np.reshape(np.asarray(imm1, np.float64), -1)
    steps = []
    for column in values.T:
        before = op1.fn(column, before)
        steps.append(before)
    np.testing.assert_allclose(run(inst, tiles, memory=memory), np.stack(steps, 1).reshape(shape), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(memory.state(REDUCE_STATE, 128)[: shape[0], 0], steps[-1], rtol=1e-4, atol=1e-4)


def test_cumulative_goes_on():
    tiles, memory, ones = Tiles(), Memory({}), np.ones((4, 3), np.float32)

    def step(cmd):
        inst = TensorScalarCumulative(
            dst=tiles("sbuf", (4, 3), "float32"), src=tiles.holding(ones), op0=MUL, op1=ADD, imm0=1.0, reduce_cmd=cmd
        )
        return run(inst, tiles, memory=memory)[0].tolist()

    assert step(ReduceCmd.reset_reduce) == [1, 2, 3]
    assert step(ReduceCmd.reduce) == [4, 5, 6]


@pytest.mark.parametrize("vector", [False, True])
def test_exponential(vector):
    tiles, memory, src = Tiles(), Memory({}), numbers((16, 4, 5))
    most = src.reshape(16, -1).max(1, keepdims=True) if vector else 1.5
    inst = Exponential(
        dst=tiles("sbuf", (16, 4, 5), "float32"), src=tiles.holding(src, "psum"),
        max_value=tiles.holding(most) if isinstance(most, np.ndarray) else most,
        reduce_res=tiles("sbuf", (16, 1), "float32"), reduce_cmd=ReduceCmd.load_reduce, reduce_init=3.0,
    )  # fmt: skip
    result = run(inst, tiles, TRN3, memory)
    expected = np.exp(src.astype(np.float64) - (most[:, :, None] if isinstance(most, np.ndarray) else most))
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert inst.reduce_res is not None
    np.testing.assert_allclose(memory.view(inst.reduce_res)[:, 0], 3 + expected.sum((1, 2)), rtol=1e-5)
    with pytest.raises(NkiValidationError) as caught:
        verify(inst, TRN2)
    assert caught.value.rule == "ISA-6"


# Time -----------------------------------------------------------------------------------------------------------------


def time(inst, on=TRN2):
    verify(inst, on)
    return inst.cost(on, Engine.VECTOR)


def reduction(n, dtype="float32", space="sbuf"):
    tiles = Tiles()
    return TensorReduce(dst=tiles("sbuf", (128, 1), dtype), op=ADD, data=tiles(space, (128, n), dtype), axis=1)


def test_time_of_reductions():
    assert time(reduction(512)).busy.ns == pytest.approx(601, rel=0.03)
    assert time(reduction(512)).latency.ns == pytest.approx(685, rel=0.03)
    assert time(reduction(16384, "bfloat16")).latency.ns == pytest.approx(17239, rel=0.02)
    assert time(reduction(512, space="psum"), TRN1).busy.ns == pytest.approx(494, rel=0.1)
    assert time(reduction(4096, "bfloat16"), TRN1).busy.ns < 0.6 * time(reduction(4096), TRN1).busy.ns


def test_time_of_statistics_and_scans():
    tiles = Tiles()
    stats = BnStats(dst=tiles("sbuf", (128, 6), "float32"), data=tiles("sbuf", (128, 512), "float32"))
    assert time(stats).busy.ns == pytest.approx((512 + 70) / 0.96)
    merge = BnAggr(dst=tiles("sbuf", (128, 2), "float32"), data=tiles("sbuf", (128, 48), "float32"))
    assert time(merge).busy.ns == pytest.approx((48 * 13 / 3 + 70) / 0.96)
    operands = {n: tiles("sbuf", (128, 256), "float32") for n in ("dst", "data0", "data1")}
    assert time(TensorTensorScan(**operands, initial=0.0, op0=MUL, op1=ADD)).busy.ns == pytest.approx((512 + 70) / 0.96)


def test_reading_the_accumulators_costs():
    tiles = Tiles()
    operands = dict(dst=tiles("sbuf", (128, 256), "float32"), data=tiles("sbuf", (128, 256), "float32"))
    plain = TensorScalarReduce(**operands, op0=MUL, operand0=1.0, reduce_op=ADD)
    result = tiles("sbuf", (128, 1), "float32")
    read = TensorScalarReduce(**operands, op0=MUL, operand0=1.0, reduce_op=ADD, reduce_res=result)
    assert time(read).busy.ns - time(plain).busy.ns == pytest.approx(64 / 0.96)
    assert plain.states() == (REDUCE_STATE,)
