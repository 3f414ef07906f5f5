"""Each function of `nki.language` against numpy in float64, for float32 and bfloat16 tiles."""

import math

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from ranvier import nki
from ranvier.errors import NkiValidationError, RanvierError
from ranvier.nki import isa as nisa
from ranvier.nki import language as nl

RNG = np.random.default_rng(7)
SHAPE = (96, 160)
# Error allowed, relative to max(|expected|, 1): float32 functions, and one rounding to 8 bits of mantissa.
TOLERANCE = {"float32": 4e-6, "bfloat16": 2.0**-8}


def run(fn, *arrays, target="trn2"):
    """fn on tiles loaded from `arrays`; the result as an array."""

    @nki.jit(target=target)
    def kernel(*inputs):
        tile = fn(*(nl.load(x) for x in inputs))
        out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile if tile.buffer is nl.sbuf else nl.copy(tile))
        return out

    return kernel(*arrays)


def close(got, want, dtype="float32", factor=1.0):
    assert got.shape == want.shape
    error = np.abs(got.astype(np.float64) - want) / np.maximum(np.abs(want), 1.0)
    assert error.max() <= factor * TOLERANCE[dtype], error.max()


def sample(low, high, dtype="float32", shape=SHAPE):
    wide = RNG.uniform(low, high, shape).astype(np.float32)
    return wide.astype(ml_dtypes.bfloat16) if dtype == "bfloat16" else wide


BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    fn, reference = getattr(nl, name), BINARY[name]
    x, y = sample(-4, 4, dtype), sample(-4, 4, dtype)
    x[::3, ::2] = y[::3, ::2]
    x[1::5] = 0
    column = y[:, :1].copy()
    wide = [a.astype(np.float64) for a in (x, y, column)]
    close(run(fn, x, y), reference(wide[0], wide[1]).astype(np.float64), dtype)
    close(run(lambda a: fn(a, 1.5), x), reference(wide[0], 1.5).astype(np.float64), dtype)
    close(run(lambda a: fn(1.5, a), x), reference(1.5, wide[0]).astype(np.float64), dtype)
    close(run(fn, x, column), reference(wide[0], wide[2]).astype(np.float64), dtype)
    close(run(fn, column, x), reference(wide[2], wide[0]).astype(np.float64), dtype)


BITWISE = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
           "left_shift": np.left_shift, "right_shift": np.right_shift}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int32])
@pytest.mark.parametrize("name", BITWISE)
def test_bitwise(name, dtype):
    x = RNG.integers(0, np.iinfo(dtype).max, SHAPE, dtype=dtype, endpoint=True)
    y = RNG.integers(0, 7, SHAPE, dtype=dtype)
    assert np.array_equal(run(getattr(nl, name), x, y), BITWISE[name](x, y))
    assert np.array_equal(run(lambda a: getattr(nl, name)(a, 3), x), BITWISE[name](x, dtype(3)))


def test_invert_and_logical_not():
    x = RNG.integers(0, 2, SHAPE, dtype=np.int32)
    assert np.array_equal(run(nl.invert, x), ~x)
    assert np.array_equal(run(nl.logical_not, x), 1 - x)


def normal(x):
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


UNARY = {
    "abs": (np.abs, -5, 5), "square": (np.square, -5, 5), "exp": (np.exp, -20, 5), "log": (np.log, 1e-3, 50),
    "sqrt": (np.sqrt, 0, 50), "rsqrt": (lambda x: 1 / np.sqrt(x), 0.05, 50), "reciprocal": (lambda x: 1 / x, 0.05, 50),
    "tanh": (np.tanh, -5, 5), "negative": (np.negative, -5, 5), "sign": (np.sign, -5, 5),
    "ceil": (np.ceil, -9, 9), "floor": (np.floor, -9, 9), "trunc": (np.trunc, -9, 9),
    "arctan": (np.arctan, -50, 50), "relu": (lambda x: np.maximum(x, 0), -5, 5), "sigmoid": (special.expit, -9, 9),
    "gelu": (lambda x: x * special.ndtr(x), -5, 5), "gelu_dx": (lambda x: special.ndtr(x) + x * normal(x), -5, 5),
    "gelu_apprx_tanh": (lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), -5, 5),
    "gelu_apprx_sigmoid": (lambda x: x * special.expit(1.702 * x), -5, 5),
    "gelu_apprx_sigmoid_dx": (
        lambda x: special.expit(1.702 * x) * (1 + 1.702 * x * (1 - special.expit(1.702 * x))), -5, 5),
    "silu": (lambda x: x * special.expit(x), -9, 9),
    "silu_dx": (lambda x: special.expit(x) * (1 + x * (1 - special.expit(x))), -9, 9),
    "softplus": (lambda x: np.logaddexp(x, 0), -9, 9), "mish": (lambda x: x * np.tanh(np.logaddexp(x, 0)), -9, 9),
    "erf": (special.erf, -4, 4), "erf_dx": (lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x), -4, 4),
    "sin": (np.sin, -40, 40), "cos": (np.cos, -40, 40),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    reference, low, high = UNARY[name]
    x = sample(low, high, dtype)
    close(run(getattr(nl, name), x), reference(x.astype(np.float64)), dtype)
    if dtype == "bfloat16":
        wider = run(lambda a: getattr(nl, name)(a, dtype=nl.float32), x)
        assert wider.dtype == np.float32
        close(wider, reference(x.astype(np.float64)))


def test_every_function_is_tested():
    elsewhere = {"power", "abs_max", "abs_min", "where", "tan", "invert", "logical_not", "copy"}
    tested = {*BINARY, *BITWISE, *UNARY, *elsewhere}
    assert {n for n in nl.__all__ if hasattr(getattr(nl, n), "alu_name")} <= tested


def test_tan():
    x = sample(-40, 40)
    x = x[:, np.abs(np.cos(x.astype(np.float64))).min(axis=0) > 0.003]
    want = np.tan(x.astype(np.float64))
    assert x.shape[1] > 10
    assert (np.abs(run(nl.tan, x) - want) / (1 + want * want)).max() < 2e-6  # tan's condition is 1 + tan^2


@pytest.mark.parametrize("name", ["ceil", "floor", "trunc"])
def test_rounding_of_special_values(name):
    x = np.zeros(SHAPE, np.float32)
    x[0, :12] = [0.5, 1.5, -0.5, -1.5, 2.0**23 + 1, -(2.0**31), 3e38, np.inf, -np.inf, 8388607.5, -8388607.5, -0.0]
    assert np.array_equal(run(getattr(nl, name), x), getattr(np, name)(x))
    x[1, 0] = np.nan
    assert np.isnan(run(getattr(nl, name), x)[1, 0])


def test_power():
    x, y = sample(0.1, 4), sample(-3, 3)
    close(run(nl.power, x, y), np.power(x.astype(np.float64), y))
    with pytest.raises(NkiValidationError, match="y is not a tile; power takes two"):
        run(lambda a: nl.power(a, 2.0), x)


def test_magnitudes_need_the_newest_generation():
    x, y = sample(-4, 4), sample(-4, 4)
    want = np.where(np.abs(x) > np.abs(y), x, y)
    assert np.array_equal(run(nl.abs_max, x, y, target="trn3"), want)
    assert np.array_equal(run(nl.abs_min, x, y, target="trn3"), np.where(np.abs(x) < np.abs(y), x, y))
    with pytest.raises(NkiValidationError, match="lacks the operation abs_max") as caught:
        run(nl.abs_max, x, y)
    assert caught.value.code == "E0307"


def test_where():
    x, y = sample(-4, 4), sample(-4, 4, "bfloat16")
    flags = (RNG.random(SHAPE) > 0.5).astype(np.float32)
    assert np.array_equal(run(nl.where, flags, x, y), np.where(flags != 0, x, y.astype(np.float32)))
    assert np.array_equal(run(lambda c, a: nl.where(c, a, 0.25), flags, x), np.where(flags != 0, x, np.float32(0.25)))
    assert np.array_equal(run(lambda c, a: nl.where(c, 2.0, a), flags, x), np.where(flags != 0, np.float32(2), x))


def test_dtype_of_a_result():
    x, y = sample(-4, 4), sample(-4, 4, "bfloat16")
    assert run(nl.add, x, y).dtype == np.float32
    assert run(nl.add, y, y).dtype == ml_dtypes.bfloat16
    assert run(nl.add, y, y.astype(np.float16)).dtype == np.float32
    assert run(nl.add, y, RNG.integers(0, 9, SHAPE, dtype=np.int32)).dtype == ml_dtypes.bfloat16
    assert run(lambda a: nl.less(a, 0.0, dtype=nl.uint8), x).dtype == np.uint8


REDUCTIONS = {"sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, dtype):
    x = sample(-4, 4, dtype, (64, 6, 50))
    for axis, keepdims in ((2, False), (-1, True), ((1, 2), False), ((2, 1), True)):
        want = REDUCTIONS[name](x.astype(np.float64), axis=axis, keepdims=keepdims)
        want = want.reshape(64, 1) if want.ndim == 1 else want
        got = run(lambda a, axis=axis, keepdims=keepdims: getattr(nl, name)(a, axis, keepdims=keepdims), x)
        close(got, want, dtype, factor=4)


def test_prod_var_all():
    x = sample(0.8, 1.2, shape=(64, 6, 50))
    close(run(lambda a: nl.prod(a, 2), x), np.prod(x.astype(np.float64), axis=2), factor=8)
    close(run(lambda a: nl.var(a, 2), x), np.var(x.astype(np.float64), axis=2, keepdims=True))
    close(run(lambda a: nl.var(a, (1, 2)), x), np.var(x.astype(np.float64), axis=(1, 2), keepdims=True))
    x[::2, 1, 3] = 0
    assert np.array_equal(run(lambda a: nl.all(a, 2), x), np.all(x, axis=2).astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_softmax(dtype):
    x = sample(-30, 30, dtype, (64, 6, 50))
    wide = x.astype(np.float64)
    for axis in (-1, (1, 2)):
        powers = np.exp(wide - wide.max(axis=axis, keepdims=True))
        close(run(lambda a, axis=axis: nl.softmax(a, axis), x), powers / powers.sum(axis=axis, keepdims=True), dtype)


def test_rms_norm():
    x, w = sample(-4, 4), sample(0.5, 2)
    wide = x.astype(np.float64)
    for epsilon in (1e-6, 0.5):
        want = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + epsilon) * w
        close(run(lambda a, b, e=epsilon: nl.rms_norm(a, b, 1, SHAPE[1], e), x, w), want)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_matmul_and_transpose(dtype):
    x, y = sample(-1, 1, dtype, (100, 90)), sample(-1, 1, dtype, (90, 300))
    want = x.astype(np.float64) @ y.astype(np.float64)
    close(run(nl.matmul, x, y), want, factor=8)
    close(run(lambda a, b: nl.matmul(a, b, transpose_x=True), x.T.copy(), y), want, factor=8)
    assert np.array_equal(run(nl.transpose, x), x.T)
    assert run(lambda a: nl.transpose(a, dtype=nl.float32), x).dtype == np.float32


BROADCASTS = {
    (1, 40): (128, 40), (1, 41): (70, 41), (1, 1): (33, 5), (64, 1): (64, 9), (8, 1, 6): (8, 4, 6), (2, 3): (2, 3),
}  # fmt: skip


@pytest.mark.parametrize("have, want", BROADCASTS.items())
def test_broadcast_to(have, want):
    x = sample(-4, 4, shape=have)
    assert np.array_equal(run(lambda a: nl.broadcast_to(a, want), x), np.broadcast_to(x, want))
    narrow = run(lambda a: nl.broadcast_to(a, want, dtype=nl.bfloat16), x)
    assert np.array_equal(narrow, np.broadcast_to(x, want).astype(ml_dtypes.bfloat16))


def test_broadcast_to_what_does_not_fit():
    for shape in ((96, 161), (97, 160), (96, 160, 1)):
        with pytest.raises(NkiValidationError, match="cannot be broadcast") as caught:
            run(lambda a, shape=shape: nl.broadcast_to(a, shape), sample(-4, 4))
        assert caught.value.code == "E0203"


def test_expand_dims_and_predicates():
    x = sample(-4, 4)
    assert run(lambda a: nl.copy(nl.expand_dims(a, 1)), x).shape == (SHAPE[0], 1, SHAPE[1])
    assert nl.is_hbm(nl.hbm) and nl.is_hbm(nl.shared_hbm) and not nl.is_hbm(nl.sbuf)
    assert nl.is_sbuf(nl.sbuf) and nl.is_psum(nl.psum) and nl.is_on_chip(nl.psum) and not nl.is_on_chip(nl.hbm)


def test_load_transposed():
    x = sample(-4, 4, "bfloat16", (30, 50))

    @nki.jit
    def kernel(a):
        out = nl.ndarray((50, 30), a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(a))
        return out

    assert np.array_equal(kernel(x), x.T)


def test_creation():
    def made(a):
        corner = a[0:4, 0:6]
        blank = nl.empty_like(corner, dtype=nl.int8)
        assert blank.shape == (4, 6) and blank.dtype is nl.int8 and blank.buffer is nl.sbuf
        out = nl.ndarray((4, 4, 6), nl.float32)
        tiles = (nl.zeros((4, 6), nl.float32), nl.ones((4, 6), nl.float32), nl.full((4, 6), 2.5, nl.float32),
                 nl.zeros_like(corner))  # fmt: skip
        for i, tile in enumerate(tiles):
            nisa.tensor_copy(out[:, i], tile)
        return out

    want = np.broadcast_to(np.array([0, 1, 2.5, 0], np.float32)[None, :, None], (4, 4, 6))
    assert np.array_equal(run(made, sample(-4, 4)), want)


def test_gather_flattened():
    x = sample(-4, 4)
    rows = RNG.integers(0, SHAPE[1], (SHAPE[0], 64), dtype=np.uint32)
    assert np.array_equal(run(nl.gather_flattened, x, rows), np.take_along_axis(x, rows.astype(np.int64), axis=1))


def test_random_numbers():
    def draw(seed):
        nl.random_seed(seed)
        return nl.rand((128, 256), nl.float32)

    seed = np.full((1, 1), 5, np.int32)
    first, again, other = run(draw, seed), run(draw, seed), run(draw, seed + 1)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.min() >= 0 and first.max() < 1
    assert abs(first.mean() - 0.5) < 0.01  # five standard deviations of the mean of 32768 draws are 0.008
    kept = run(lambda a: nl.dropout(a, 0.25), np.ones((128, 256), np.float32))
    assert set(np.unique(kept)) == {0.0, 1.0}
    assert abs(kept.mean() - 0.75) < 0.02


def test_a_function_stands_for_its_operation():
    assert nl.add.alu_name == "add" and nl.exp.act_name == "exp"
    assert (nl.abs.alu_name, nl.abs.act_name) == ("abs", "abs")
    with pytest.raises(RanvierError):
        run(lambda a: nl.add(1.0, 2.0), sample(0, 1))
