"""The kernel library: every kernel beside its reference in float64, for odd sizes and several dtypes.

Tolerances are relative to the largest value of the reference. float32: sums of a few hundred products and functions of
the scalar engine, 2e-6. 16 bits: half a unit in the last place of the result, 2^-8 (bfloat16) and 2^-11 (float16), plus
as much for each value that the kernel says it rounds on the way.
"""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier import nki, target
from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.errors import RanvierError
from ranvier.ir.kernel import verify_kernel
from ranvier.kernels import library
from ranvier.nki import language as nl
from ranvier.runtime.benchmark import benchmark
from ranvier.sim.interpreter import run_kernel, run_program

F32, BF16, F16 = np.float32, ml_dtypes.bfloat16, np.float16
UNIT = {F32: 2e-6, BF16: 2.0**-8, F16: 2.0**-11}
FEW = settings(max_examples=12, deadline=None, derandomize=True)
DTYPES = pytest.mark.parametrize("dtype", [F32, BF16, F16])


def normal(*shape, dtype=F32, seed=0, scale=1.0):
    rng = np.random.default_rng((seed, *shape))
    return (rng.standard_normal(shape) * scale).astype(dtype)


def check(name, *args, roundings=1, **options):
    """The kernel agrees with its reference; `roundings` is how often a value is rounded to the dtype on its way."""
    result = getattr(library, name)(*args, **options)
    expected = getattr(library, name + "_reference")(*args, **options)
    assert result.shape == expected.shape and result.dtype == args[0].dtype
    error = np.abs(result.astype(np.float64) - expected).max() / np.abs(expected).max()
    assert error <= UNIT[args[0].dtype.type] * roundings, error


@DTYPES
@pytest.mark.parametrize(("k", "m", "n"), [(1, 1, 1), (130, 129, 513), (300, 200, 77), (64, 257, 1100)])
def test_matmul(k, m, n, dtype):
    check("matmul", normal(k, m, dtype=dtype), normal(k, n, dtype=dtype), roundings=1.02)


def test_matmul_sums_blocks_of_rows_in_float32():
    lhs_t, rhs = normal(4400, 130, dtype=BF16), normal(4400, 140, dtype=BF16, seed=1)
    check("matmul", lhs_t, rhs, roundings=1.02)
    wide = library.matmul(lhs_t, rhs, dtype="float32")
    assert wide.dtype == np.float32
    assert np.abs(wide - library.matmul_reference(lhs_t, rhs)).max() < 1e-5 * np.abs(wide).max()


def test_matmul_of_8_bits_with_16():
    lhs_t, rhs = normal(200, 130, dtype=ml_dtypes.float8_e5m2), normal(200, 90, dtype=BF16)
    result = library.matmul(lhs_t, rhs, dtype="float32")
    assert np.abs(result - library.matmul_reference(lhs_t, rhs)).max() < 1e-5 * np.abs(result).max()


def test_matmul_reuses_blocks_in_both_directions():
    """Several blocks of each operand: 3 by 3 of the result, and two of rows."""
    check("matmul", normal(2050, 1030, dtype=F32), normal(2050, 1060, dtype=F32, seed=1), roundings=2)


@FEW
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 700))
def test_matmul_of_any_size(k, m, n):
    check("matmul", normal(k, m, dtype=BF16), normal(k, n, dtype=BF16, seed=1), roundings=1.02)


@DTYPES
@pytest.mark.parametrize("activation", ["gelu", "gelu_apprx_tanh", "silu", "relu"])
def test_mlp(activation, dtype):
    x, up = normal(3, 45, 150, dtype=dtype), normal(150, 530, dtype=dtype, scale=0.1)
    down = normal(530, 90, dtype=dtype)
    check("mlp", x, up, down, normal(530, dtype=dtype), normal(90, dtype=dtype), activation=activation, roundings=2)


@DTYPES
@pytest.mark.parametrize("with_bias", [False, True])
def test_gated_mlp(with_bias, dtype):
    x, up, down = normal(600, 70, dtype=dtype), normal(70, 140, dtype=dtype, scale=0.1), normal(140, 70, dtype=dtype)
    gate = normal(70, 140, dtype=dtype, scale=0.1, seed=1)
    bias = normal(140, dtype=dtype) if with_bias else None
    check("mlp", x, up, down, bias, w_gate=gate, activation="silu", roundings=3)


ROW_KERNELS = {
    "layer_norm": lambda n, dtype: (normal(n, dtype=dtype), normal(n, dtype=F32, seed=1)),
    "rms_norm": lambda n, dtype: (normal(n, dtype=dtype),),
    "softmax": lambda n, dtype: (),
    "log_softmax": lambda n, dtype: (),
}


@DTYPES
@pytest.mark.parametrize("shape", [(1, 2), (2, 3, 50, 37), (129, 1030)])
@pytest.mark.parametrize("name", ROW_KERNELS)
def test_row_kernels(name, shape, dtype):
    roundings = 3 if name == "layer_norm" else 1.01
    check(name, normal(*shape, dtype=dtype), *ROW_KERNELS[name](shape[-1], dtype), roundings=roundings)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms_without_weights(name):
    check(name, normal(70, 300, dtype=BF16), epsilon=0.5, roundings=1.02)


@FEW
@given(st.sampled_from(sorted(ROW_KERNELS)), st.integers(1, 260), st.integers(2, 1200))
def test_row_kernels_of_any_size(name, rows, columns):
    check(name, normal(rows, columns), *ROW_KERNELS[name](columns, F32), roundings=2)


def test_softmax_of_large_values():
    x = normal(40, 60) * 300 + 1e4
    check("softmax", x, roundings=2)
    check("log_softmax", x, roundings=2)


@DTYPES
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, masked, dtype):
    query = normal(2, 6, 150, 48, dtype=dtype)
    key, value = normal(2, 2, 150, 48, dtype=dtype, seed=1), normal(2, 2, 150, 40, dtype=dtype, seed=2)
    mask = np.ones((2, 150), np.int32)
    mask[0, 100:] = 0
    mask[1, :3] = 0  # with causal, the first queries see padding only
    check("attention", query, key, value, mask if masked else None, causal, roundings=2)


@pytest.mark.parametrize("mask_dtype", [np.bool_, np.uint8, np.float32, BF16])
def test_masks_of_attention_have_any_dtype(mask_dtype):
    mask = (np.arange(70) % 3 > 0)[None].astype(mask_dtype)
    check("attention", *(normal(1, 1, 70, 16, seed=i) for i in range(3)), mask)


def test_attention_to_many_keys_with_large_heads():
    query, key = normal(1, 2, 130, 200, dtype=BF16), normal(1, 1, 600, 200, dtype=BF16)
    check("attention", query, key, normal(1, 1, 600, 130, dtype=BF16), causal=True, scale=0.05, roundings=2)
    check("attention", query, key, normal(1, 1, 600, 130, dtype=BF16), normal(1, 600) > 0, roundings=2)


@FEW
@given(st.integers(1, 2), st.integers(1, 3), *[st.integers(1, 140)] * 2, st.integers(1, 70), st.booleans())
def test_attention_of_any_size(groups, shared, queries, keys, size, causal):
    query, key = normal(1, groups * shared, queries, size), normal(1, groups, keys, size, seed=1)
    check("attention", query, key, normal(1, groups, keys, size + 1), causal=causal, roundings=2)


@DTYPES
@pytest.mark.parametrize("shape", [(2, 3, 130, 64), (5, 6)])
def test_rope(shape, dtype):
    angle = normal(*shape[-2:]) * 3
    check("rope", normal(*shape, dtype=dtype), np.cos(angle), np.sin(angle), roundings=1.02)


@FEW
@given(st.lists(st.integers(1, 40), min_size=1, max_size=3), st.integers(1, 300))
def test_embedding_copies_bits(shape, width):
    table = normal(50, width, dtype=BF16)
    table[7] = np.nan
    indices = np.random.default_rng(0).integers(0, 50, shape).astype(np.int32)
    result = library.embedding(table, indices)
    assert result.tobytes() == library.embedding_reference(table, indices).tobytes()
    assert result.shape == (*shape, width)


def test_embedding_refuses_what_is_outside():
    with pytest.raises(RanvierError, match="E0403"):
        library.embedding(normal(5, 4), np.array([0, 5], np.int32))


ONE_OF_EACH = {
    "matmul": lambda: ((normal(300, 140, dtype=BF16), normal(300, 600, dtype=BF16)), {}),
    "mlp": lambda: ((normal(140, 130, dtype=BF16), normal(130, 150, dtype=BF16), normal(150, 140, dtype=BF16)), {}),
    "layer_norm": lambda: ((normal(140, 600, dtype=BF16), normal(600), normal(600)), {}),
    "rms_norm": lambda: ((normal(140, 600, dtype=BF16), normal(600)), {}),
    "softmax": lambda: ((normal(140, 300),), {}),
    "log_softmax": lambda: ((normal(140, 300),), {}),
    "attention": lambda: (
        (normal(1, 4, 140, 40, dtype=BF16), *(normal(1, 2, 140, 40, dtype=BF16) for _ in "kv"), np.ones((1, 140), F32)),
        {"causal": True},
    ),
    "rope": lambda: ((normal(2, 140, 32, dtype=BF16), normal(140, 32), normal(140, 32)), {}),
    "embedding": lambda: ((normal(40, 30), np.arange(300, dtype=np.int32) % 40), {}),
}


@pytest.mark.parametrize("chip", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_recorded_and_scheduled_kernels_equal_the_eager_run(name, chip):
    args, options = ONE_OF_EACH[name]()
    kernel = getattr(library, name)
    recorded = kernel.record(*args, target=chip, **options)
    verify_kernel(recorded, target.get(chip))
    eager = nki.simulate(kernel, target=chip)(*args, **options)
    (replayed,) = run_kernel(recorded, target.get(chip), list(args))
    assert replayed.dtype == eager.dtype and replayed.tobytes() == eager.tobytes()
    program = lower_kernel(recorded, target.get(chip))
    (scheduled,) = run_program(program, target.get(chip), list(args), seed=1, dma="late").values()
    assert scheduled.tobytes() == eager.tobytes()


def test_kernels_call_kernels():
    @nki.jit
    def normalized_product(x, weight, rhs):
        """The transpose of norm(x), times rhs: x is [K, M]."""
        return library.matmul(library.rms_norm(x, weight), rhs)

    x, weight, rhs = normal(50, 60), normal(60), normal(50, 30)
    expected = library.rms_norm_reference(x, weight).T @ rhs
    assert np.abs(normalized_product(x, weight, rhs) - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: library.matmul(normal(4, 5), normal(5, 4)), "rhs"),
        (lambda: library.matmul(normal(2, 4, 5), normal(4, 5)), "lhs_t"),
        (lambda: library.mlp(normal(4, 5), normal(5, 6), normal(6, 5), activation="sine"), "activation"),
        (lambda: library.mlp(normal(4, 5), normal(5, 6), normal(5, 6)), "w_down"),
        (lambda: library.layer_norm(normal(4, 5), normal(4)), "weight"),
        (lambda: library.softmax(np.ones((4, 5), np.int32)), "x"),
        (lambda: library.attention(normal(1, 3, 4, 5), *[normal(1, 2, 4, 5)] * 2), "query"),
        (lambda: library.attention(*[normal(1, 2, 4, 5)] * 3, normal(4)), "key_mask"),
        (lambda: library.rope(normal(4, 5), normal(4, 5), normal(4, 5)), "x"),
        (lambda: library.embedding(normal(4, 5), normal(3)), "indices"),
    ],
)
def test_arguments_that_do_not_fit(call, argument):
    with pytest.raises(RanvierError, match="E0103") as caught:
        call()
    assert caught.value.argument == argument


def test_a_large_matmul_keeps_the_tensor_engine_busy():
    x = nki.TensorSpec((2048, 2048), nl.bfloat16)
    profile = benchmark(library.matmul, target="trn2", show=False)(x, x).profile
    assert profile.bound_ns > 0.9 * profile.latency_ns
    assert profile.moved_bytes["inputs"] <= 20 << 20  # 16 MiB are there; a block of rhs is loaded twice
