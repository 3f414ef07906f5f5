"""Patterns, masks, reductions across partitions and gathers, against plain loops or numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isa_tools import TRN1, TRN2, Tiles, run

from ranvier import dtypes as dt
from ranvier.errors import RanvierError
from ranvier.isa.alu import alu
from ranvier.isa.gpsimd import AffineSelect, Iota, LocalGather, NcNGather, TensorPartitionReduce
from ranvier.target.spec import Engine

patterns = st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 6)), min_size=1, max_size=4)


def affine(pattern, offset, multiplier, partitions) -> np.ndarray:
    """The values one by one, as the documentation's loops have them."""
    counts = [n for _, n in pattern]
    rows = []
    for p in range(partitions):
        rows.append(
            [
                offset + p * multiplier + sum(i * step for i, (step, _) in zip(index, pattern, strict=True))
                for index in np.ndindex(*counts)
            ]
        )
    return np.array(rows)


@given(
    patterns,
    st.integers(-99, 99),
    st.integers(-9, 9),
    st.integers(1, 32),
    st.sampled_from(("int32", "float32", "int16")),
)
@settings(max_examples=40, deadline=None)
def test_iota(pattern, offset, multiplier, partitions, dtype):
    tiles, expected = Tiles(), affine(pattern, offset, multiplier, partitions)
    dst = tiles("sbuf", expected.shape, dtype)
    inst = Iota(dst=dst, pattern=pattern, offset=offset, channel_multiplier=multiplier)
    assert (run(inst, tiles) == expected).all()


def test_iota_counts_in_32_bits():
    tiles = Tiles()
    inst = Iota(dst=tiles("sbuf", (1, 3), "int32"), pattern=[[1, 3]], offset=2**31 - 2)
    assert run(inst, tiles).tolist() == [[2**31 - 2, 2**31 - 1, -(2**31)]]


@given(
    patterns, st.integers(-20, 20), st.integers(-3, 3), st.integers(1, 32),
    st.sampled_from(("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")), st.integers(0, 9),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_affine_select(pattern, offset, multiplier, partitions, cmp, seed):
    tiles, values = Tiles(), affine(pattern, offset, multiplier, partitions)
    data = np.random.default_rng(seed).normal(size=values.shape).astype(np.float32)
    keep = {
        "equal": values == 0, "not_equal": values != 0, "greater": values > 0, "greater_equal": values >= 0,
        "less": values < 0, "less_equal": values <= 0,
    }[cmp]  # fmt: skip
    inst = AffineSelect(
        dst=tiles("sbuf", values.shape, "float32"), pattern=pattern, channel_multiplier=multiplier,
        on_true_tile=tiles.holding(data), on_false_value=-7.5, cmp_op=alu(cmp), offset=offset,
    )  # fmt: skip
    assert (run(inst, tiles) == np.where(keep, data, np.float32(-7.5))).all()


def test_affine_select_makes_a_causal_mask():
    tiles = Tiles()
    scores = np.ones((4, 4), dt.bfloat16.np)
    inst = AffineSelect(
        dst=tiles("sbuf", (4, 4), "float32"), pattern=[[-1, 4]], channel_multiplier=1,
        on_true_tile=tiles.holding(scores),
        on_false_value=0.0, cmp_op=alu("greater_equal"),
    )  # fmt: skip
    assert (run(inst, tiles) == np.tril(np.ones((4, 4)))).all()


def test_affine_select_keeps_integers_that_float32_cannot_hold():
    tiles = Tiles()
    data = np.array([[2**24 + 1, 5]], np.int32)
    inst = AffineSelect(
        dst=tiles("sbuf", (1, 2), "int32"), pattern=[[1, 2]], channel_multiplier=0, on_true_tile=tiles.holding(data),
        on_false_value=2.5,
    )  # fmt: skip
    assert run(inst, tiles).tolist() == [[2**24 + 1, 2]]  # the fill is rounded to even


@given(st.integers(1, 128), st.integers(1, 60), st.sampled_from(("add", "maximum")), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_partition_reduce_against_float64(p, f, op, seed):
    rng, tiles = np.random.default_rng(seed), Tiles()
    data = rng.normal(size=(p, f)).astype(np.float32)
    inst = TensorPartitionReduce(dst=tiles("sbuf", (1, f), "float32"), op=alu(op), data=tiles.holding(data))
    wide = data.astype(np.float64)
    expected = wide.sum(axis=0, keepdims=True) if op == "add" else wide.max(axis=0, keepdims=True)
    np.testing.assert_allclose(run(inst, tiles), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op", "expected"), [("bitwise_or", [[7, -1]]), ("bitwise_and", [[1, 0]])])
def test_partition_reduce_on_bits(op, expected):
    tiles = Tiles()
    data = np.array([[1, -1], [3, 0], [5, 16]], np.int16)
    inst = TensorPartitionReduce(dst=tiles("sbuf", (1, 2), "int16"), op=alu(op), data=tiles.holding(data))
    assert run(inst, tiles).tolist() == expected


@given(
    st.integers(1, 128),
    st.integers(1, 40),
    st.integers(1, 50),
    st.sampled_from(("int32", "bfloat16")),
    st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_gather_within_partitions(p, f, n, dtype, seed):
    rng, tiles = np.random.default_rng(seed), Tiles()
    data = rng.integers(0, 100, (p, f, 2)).astype(dt.dtype(dtype).np)
    indices = rng.integers(0, 2 * f, (p, n)).astype(np.uint32)
    inst = NcNGather(dst=tiles("sbuf", (p, n), dtype), data=tiles.holding(data), indices=tiles.holding(indices))
    expected = np.array([[data[i].reshape(-1)[k] for k in indices[i]] for i in range(p)])
    assert (run(inst, tiles) == expected).all()


@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from((1, 2, 4)), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_local_gather_has_one_list_for_sixteen_partitions(groups, columns, each, seed):
    rng, tiles = np.random.default_rng(seed), Tiles()
    count = int(rng.integers(1, 16 * columns + 1))
    data = rng.normal(size=(16 * groups, 24)).astype(np.float32)
    index = rng.integers(0, 24 - each + 1, (16 * groups, columns)).astype(np.uint16)
    expected = np.empty((16 * groups, count * each), np.float32)
    for group in range(groups):
        rows = slice(16 * group, 16 * group + 16)
        for i, start in enumerate(index[rows].flatten(order="F")[:count]):
            expected[rows, each * i : each * i + each] = data[rows, start : start + each]
    inst = LocalGather(
        dst=tiles("sbuf", expected.shape, "float32"), src_buffer=tiles.holding(data), index=tiles.holding(index),
        num_elem_per_idx=each, num_valid_indices=count,
    )  # fmt: skip
    assert (run(inst, tiles) == expected).all()


def test_an_index_out_of_bounds_is_named():
    tiles = Tiles()
    indices = np.array([[0, 8]], np.uint32)
    data = tiles.holding(np.zeros((1, 8), np.float32))
    inst = NcNGather(dst=tiles("sbuf", (1, 2), "float32"), data=data, indices=tiles.holding(indices))
    with pytest.raises(RanvierError, match="index 8 is outside the 8 elements") as failure:
        run(inst, tiles)
    assert failure.value.code == "E0403"


def test_gpsimd_does_not_reach_psum():
    tiles = Tiles()
    with pytest.raises(RanvierError) as failure:
        run(Iota(dst=tiles("psum", (8, 8), "int32"), pattern=[[1, 8]]), tiles)
    assert failure.value.code == "E0301"


@pytest.mark.parametrize(("target", "clock_ghz"), [(TRN1, 1.4), (TRN2, 1.2)])
def test_times_are_a_start_and_the_elements(target, clock_ghz):
    tiles = Tiles()
    inst = Iota(dst=tiles("sbuf", (128, 512), "int32"), pattern=[[1, 512]])
    assert inst.cost(target, Engine.GPSIMD).busy.ns == pytest.approx((150 + 512) / clock_ghz)
    gather = NcNGather(
        dst=tiles("sbuf", (128, 1024), "float32"), data=tiles("sbuf", (128, 64), "float32"),
        indices=tiles("sbuf", (128, 1024), "uint32"),
    )  # fmt: skip
    assert gather.cost(target, Engine.GPSIMD).busy.ns == pytest.approx((2 * 150 + 2 * 1024) / clock_ghz)


def test_the_time_of_local_gather_is_the_documented_formula():
    tiles = Tiles()
    inst = LocalGather(
        dst=tiles("sbuf", (128, 256), "bfloat16"), src_buffer=tiles("sbuf", (128, 512), "bfloat16"),
        index=tiles("sbuf", (128, 4), "uint16"), num_elem_per_idx=4,
    )  # fmt: skip
    cycles = 150 + 64 * 4 * ((28 + 4 * 4) / (4 * 4)) / min(4 / 2, 4)
    assert inst.cost(TRN1, Engine.GPSIMD).busy.ns == pytest.approx(cycles / 1.4)
