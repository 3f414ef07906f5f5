"""Matmul and transpose: values against float64, bits of moves, and times against published numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isa_tools import TRN1, TRN2, TRN3, Tiles, run

from ranvier import dtypes as dt
from ranvier.errors import RanvierError
from ranvier.isa.enums import MatmulPerfMode
from ranvier.isa.tensor_engine import NcMatmul, NcTranspose, spread_non_finite
from ranvier.sim.machine import Memory, bind
from ranvier.target.spec import Engine

FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2")
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def random(rng, shape, dtype: str) -> np.ndarray:
    return dt.cast(rng.uniform(-2, 2, shape).astype(np.float32), dt.dtype(dtype))


def random_bits(rng, shape, dtype: str) -> np.ndarray:
    """Any bits at all: NaN with payloads, infinities, denormals."""
    of = dt.dtype(dtype)
    return rng.integers(0, 256, (*shape[:-1], shape[-1] * of.itemsize), dtype=np.uint8).view(of.np).reshape(shape)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    kind = BITS[a.dtype.itemsize]
    return a.shape == b.shape and bool((np.ascontiguousarray(a).view(kind) == np.ascontiguousarray(b).view(kind)).all())


@given(
    st.tuples(st.integers(1, 128), st.integers(1, 128), st.integers(1, 512)),
    st.sampled_from(FLOATS), st.sampled_from(FLOATS), st.booleans(), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_matmul_against_float64(sizes, stationary, moving, accumulate, seed):
    k, m, n = sizes
    if "float32" in (stationary, moving):
        stationary = moving = "float32"
    rng, tiles = np.random.default_rng(seed), Tiles()
    a, b = random(rng, (k, m), stationary), random(rng, (k, n), moving)
    start = rng.normal(size=(m, n)).astype(np.float32)
    dst = tiles.holding(start, "psum")
    inst = NcMatmul(dst=dst, stationary=tiles.holding(a), moving=tiles.holding(b), accumulate=accumulate)
    exact = a.astype(np.float64).T @ b.astype(np.float64) + (start if accumulate else 0)
    # Sums of k products of values up to 2 in float32: each of k additions errs by at most half an ulp of 4 k.
    assert np.abs(run(inst, tiles) - exact).max() <= k * 4 * k * 2.0**-24 + 1e-6


@given(st.integers(1, 128), st.integers(1, 128), st.integers(1, 200), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_double_row_contracts_both_rows(k, m, n, seed):
    rng, tiles = np.random.default_rng(seed), Tiles()
    a, b = random(rng, (k, 2, m), "float8_e4m3"), random(rng, (k, 2, n), "float8_e5m2")
    inst = NcMatmul(
        dst=tiles("psum", (m, n), "float32"), stationary=tiles.holding(a), moving=tiles.holding(b),
        perf_mode=MatmulPerfMode.double_row,
    )  # fmt: skip
    exact = np.einsum("ktm,ktn->mn", a.astype(np.float64), b.astype(np.float64))
    assert np.abs(run(inst, tiles) - exact).max() <= 2 * k * 8 * k * 2.0**-24 + 1e-6
    assert inst.flops() == 4 * k * m * n


def test_bfloat16_accumulation_rounds_every_sum():
    tiles = Tiles()
    dst = tiles.holding(np.full((1, 1), 256, dt.bfloat16.np), "psum")
    ones = np.ones((1, 1), dt.bfloat16.np)
    inst = NcMatmul(dst=dst, stationary=tiles.holding(ones), moving=tiles.holding(ones), accumulate=True)
    assert run(inst, tiles, TRN3) == 256  # 257 lies between 256 and 258; ties go to even


@given(
    st.integers(1, 128), st.integers(1, 128), st.sampled_from(("float32", "bfloat16", "float16")), st.integers(0, 99)
)
@settings(max_examples=30, deadline=None)
def test_transposes_move_bits_where_they_are_exact(p, f, dtype, seed):
    rng, tiles = np.random.default_rng(seed), Tiles()
    data = random_bits(rng, (p, f), dtype)
    inst = NcTranspose(dst=tiles("psum", (f, p), dtype), data=tiles.holding(data))
    assert inst.engine_on(TRN2) is Engine.TENSOR
    assert same_bits(run(inst, tiles), data.T)


@given(
    st.integers(1, 32), st.integers(1, 32), st.sampled_from(("int32", "int8", "bfloat16", "uint16")), st.integers(0, 99)
)
@settings(max_examples=30, deadline=None)
def test_the_vector_engine_transposes_small_tiles_of_any_dtype(p, f, dtype, seed):
    rng, tiles = np.random.default_rng(seed), Tiles()
    data = random_bits(rng, (p, f), dtype)
    inst = NcTranspose(dst=tiles("sbuf", (f, p), dtype), data=tiles.holding(data))
    for target in (TRN1, TRN2, TRN3):
        assert inst.engine_on(target) is Engine.VECTOR
        assert same_bits(run(inst, tiles, target), data.T)


def test_further_free_axes_are_flattened():
    tiles = Tiles()
    data = np.arange(4 * 3 * 5, dtype=np.float32).reshape(4, 3, 5)
    inst = NcTranspose(dst=tiles("psum", (15, 4), "float32"), data=tiles.holding(data))
    assert (run(inst, tiles) == data.reshape(4, 15).T).all()


def test_eight_bit_transposes_leave_elements_sixteen_bits_apart():
    tiles = Tiles()
    data = random(np.random.default_rng(0), (16, 8), "float8_e4m3")
    dst = tiles("psum", (8, 32), "float8_e4m3", slice(0, 32, 2))
    assert same_bits(run(NcTranspose(dst=dst, data=tiles.holding(data)), tiles), data.T)


def test_without_an_exact_mode_what_is_not_finite_spreads_over_its_row():
    tiles = Tiles()
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    data[1, 2] = np.inf
    with np.errstate(invalid="ignore"):
        as_product = data.T @ np.eye(3, dtype=np.float32)
    inst = NcTranspose(dst=tiles("psum", (4, 3), "float32"), data=tiles.holding(data))
    np.testing.assert_array_equal(run(inst, tiles, TRN1), as_product)
    np.testing.assert_array_equal(run(inst, tiles, TRN2), data.T)
    on_vector = NcTranspose(dst=inst.dst, data=inst.data, engine=Engine.VECTOR)
    np.testing.assert_array_equal(run(on_vector, tiles, TRN1), data.T)


@given(st.lists(st.sampled_from([0.0, 1.5, np.inf, -np.inf, np.nan]), min_size=12, max_size=12))
def test_spreading_is_what_a_product_with_the_identity_does(values):
    data = np.array(values, np.float32).reshape(3, 4)
    with np.errstate(invalid="ignore"):
        expected = data.T @ np.eye(3, dtype=np.float32)
    np.testing.assert_array_equal(spread_non_finite(data.T), expected)


def test_transpose_mode_selects_rows_by_a_permutation():
    rng, tiles = np.random.default_rng(0), Tiles()
    data = random_bits(rng, (16, 24), "bfloat16")
    order = rng.permutation(16)
    moving = np.eye(16, dtype=dt.bfloat16.np)[:, order]
    inst = NcMatmul(
        dst=tiles("psum", (24, 16), "bfloat16"), stationary=tiles.holding(data), moving=tiles.holding(moving),
        is_transpose=True,
    )  # fmt: skip
    assert same_bits(run(inst, tiles), data[order].T)
    assert inst.flops() == 0


def test_transpose_mode_with_another_matrix_is_undefined():
    tiles = Tiles()
    ones = tiles.holding(np.ones((4, 4), np.float32))
    inst = NcMatmul(dst=tiles("psum", (4, 4), "float32"), stationary=ones, moving=ones, is_transpose=True)
    memory = Memory({})
    memory.set(ones.buffer, np.ones((4, 4), np.float32))
    with pytest.raises(RanvierError) as failure:
        bind(inst, memory, TRN2)()
    assert failure.value.code == "E0405"
    bind(inst, memory, TRN1)()  # a hint there: the product is computed
    assert (memory.get(inst.dst.buffer) == 4).all()


def _matmul_ns(target, k, m, n, dtype, **attributes):
    tiles = Tiles()
    inst = NcMatmul(
        dst=tiles("psum", (m, n), "float32"), stationary=tiles("sbuf", (k, m), dtype),
        moving=tiles("sbuf", (k, n), dtype), **attributes,
    )  # fmt: skip
    return inst.cost(target, Engine.TENSOR).busy.ns


@pytest.mark.parametrize(
    ("target", "shape", "dtype", "expected_ns", "tolerance"),
    [
        (TRN1, (128, 128, 512), "bfloat16", 183, 0.01),
        (TRN2, (128, 128, 512), "bfloat16", 213, 0.02),
        (TRN2, (128, 128, 512), "float32", 858, 0.01),
        (TRN1, (128, 128, 1), "bfloat16", 22.9, 0.01),
    ],
)
def test_matmul_times_are_the_published_ones(target, shape, dtype, expected_ns, tolerance):
    assert _matmul_ns(target, *shape, dtype) == pytest.approx(expected_ns, rel=tolerance)


def test_transpose_times():
    tiles = Tiles()
    inst = NcTranspose(dst=tiles("psum", (128, 128), "bfloat16"), data=tiles("sbuf", (128, 128), "bfloat16"))
    assert inst.cost(TRN1, Engine.TENSOR).busy.ns == pytest.approx(45.7, rel=0.01)
    wide = NcTranspose(dst=tiles("psum", (128, 128), "float32"), data=tiles("sbuf", (128, 128), "float32"))
    product_ns = _matmul_ns(TRN2, 128, 128, 128, "float32")
    assert product_ns / wide.cost(TRN2, Engine.TENSOR).busy.ns == pytest.approx(2, rel=0.01)


def test_double_row_halves_the_time_of_a_contraction():
    tiles = Tiles()
    double = NcMatmul(
        dst=tiles("psum", (128, 512), "float32"), stationary=tiles("sbuf", (128, 2, 128), "float8_e4m3"),
        moving=tiles("sbuf", (128, 2, 512), "float8_e4m3"), perf_mode=MatmulPerfMode.double_row,
    )  # fmt: skip
    assert double.cost(TRN2, Engine.TENSOR).busy.ns == _matmul_ns(TRN2, 128, 128, 512, "float8_e4m3")
