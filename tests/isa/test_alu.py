"""The table of ALU operations."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier.errors import NkiValidationError, RanvierError
from ranvier.isa.alu import ALU, alu, bits
from ranvier.target.features import FEATURES

FLOATS = st.floats(-1e6, 1e6, width=32)
# Results in float64 of what the operations compute in float32.
ARITHMETIC = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": max,
    "minimum": min,
    "equal": lambda a, b: float(a == b),
    "not_equal": lambda a, b: float(a != b),
    "greater": lambda a, b: float(a > b),
    "greater_equal": lambda a, b: float(a >= b),
    "less": lambda a, b: float(a < b),
    "less_equal": lambda a, b: float(a <= b),
    "logical_and": lambda a, b: float(bool(a) and bool(b)),
    "logical_or": lambda a, b: float(bool(a) or bool(b)),
    "logical_xor": lambda a, b: float(bool(a) != bool(b)),
    "abs_max": lambda a, b: a if abs(a) > abs(b) else b,
    "abs_min": lambda a, b: a if abs(a) < abs(b) else b,
}
UNARY = {"abs": abs, "square": lambda a: a * a, "relu": lambda a: max(a, 0.0), "bypass": lambda a: a}
POSITIVE_UNARY = {"reciprocal": lambda a: 1 / a, "rsqrt": lambda a: a**-0.5}
BITWISE = {
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "left_shift": lambda a, b: (a << (b % 40)),
    "right_shift": lambda a, b: a >> (b % 40),
}


def f32(*values):
    return np.array(values, np.float32)


def test_every_operation_is_tested_here():
    assert {*ARITHMETIC, *UNARY, *POSITIVE_UNARY, *BITWISE, "invert", "power"} == set(ALU)


@pytest.mark.parametrize("name", ARITHMETIC)
@given(a=FLOATS, b=FLOATS)
@settings(max_examples=30, deadline=None)
def test_binary(name, a, b):
    result = ALU[name](f32(a), f32(b))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result[0], ARITHMETIC[name](a, b), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("name", UNARY)
@given(a=FLOATS)
@settings(max_examples=20, deadline=None)
def test_unary(name, a):
    assert ALU[name].unary
    np.testing.assert_allclose(ALU[name](f32(a))[0], UNARY[name](a), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("name", POSITIVE_UNARY)
@given(a=st.floats(2.0**-60, 2.0**60, width=32))
@settings(max_examples=20, deadline=None)
def test_unary_of_positive(name, a):
    np.testing.assert_allclose(ALU[name](f32(a))[0], POSITIVE_UNARY[name](a), rtol=1e-6)


@given(a=st.floats(0.125, 64, width=32), b=st.floats(-4, 4, width=32))
@settings(max_examples=20, deadline=None)
def test_power(a, b):
    np.testing.assert_allclose(ALU["power"](f32(a), f32(b))[0], a**b, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32])
@pytest.mark.parametrize("name", BITWISE)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_bitwise_works_on_bits(name, dtype, data):
    info = np.iinfo(dtype)
    a, b = data.draw(st.integers(info.min, info.max)), data.draw(st.integers(0, info.max))
    if "shift" in name:
        b %= 40
    mask = (1 << info.bits) - 1
    operand = np.array([b], np.uint8) if "shift" in name else bits(b, np.dtype(dtype))
    result = ALU[name](np.array([a], dtype), operand)
    assert result.dtype == dtype
    expected = 0 if "shift" in name and b >= info.bits else BITWISE[name](a & mask, b) & mask
    assert int(result[0]) & mask == expected


def test_right_shift_is_logical():
    assert ALU["right_shift"](np.array([-1], np.int32), np.array([28], np.int32))[0] == 15


@given(a=st.integers(-(2**31), 2**31 - 1))
@settings(max_examples=10, deadline=None)
def test_invert(a):
    assert ALU["invert"](np.array([a], np.int32))[0] == ~a


@pytest.mark.parametrize("name, expected", [("abs_max", 3.0), ("abs_min", 3.0)])
def test_ties_of_signed_extremes_take_the_second(name, expected):
    assert ALU[name](f32(-3.0), f32(3.0))[0] == expected
    assert ALU["abs_max"](f32(-5.0), f32(3.0))[0] == -5.0


REDUCING = {
    "add", "subtract", "multiply", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and",
    "logical_or", "logical_xor",
}  # fmt: skip


def test_what_reduces():
    assert {op.name for op in ALU.values() if op.reduces} == REDUCING


@pytest.mark.parametrize("name", sorted(REDUCING - {"subtract"}))
def test_identity_changes_nothing(name):
    op = ALU[name]
    values = f32(0, 1, 0, 1) if op.kind == "logical" else f32(-3, 2, 7, 0)
    if op.is_bitwise:
        values = np.array([0, 1, 5, -2], np.int32)
    start = np.array([op.identity], values.dtype)
    assert (op(start, values) == values).all()


@pytest.mark.parametrize("name", sorted(REDUCING))
def test_reduce_is_a_left_fold(name):
    op = ALU[name]
    rng = np.random.default_rng(1)
    values = rng.integers(0, 4, (3, 5)).astype(np.int32 if op.is_bitwise else np.float32)
    fold = values[:, 0]
    for column in values.T[1:]:
        fold = op(fold, column)
    np.testing.assert_allclose(op.reduce(values, (1,))[:, 0].astype(np.float64), fold, rtol=1e-6)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "minimum"])
def test_accumulate_is_the_recurrence(name):
    op = ALU[name]
    values = np.random.default_rng(2).uniform(-2, 2, (4, 9)).astype(np.float32)
    before, expected = values[:, 0].astype(np.float64), [values[:, 0]]
    for column in values.T[1:]:
        before = ALU[name].fn(column.astype(np.float64), before)
        expected.append(before)
    np.testing.assert_allclose(op.accumulate(values, 1), np.stack(expected, 1), rtol=1e-5, atol=1e-5)


def test_reduction_that_is_not_legal_is_refused():
    with pytest.raises(RanvierError) as caught:
        ALU["less"].reduce(f32(1, 2), (0,))
    assert caught.value.code == "E0902"


def test_apply_reverses_and_ignores_the_operand_of_unary_operations():
    assert ALU["subtract"].apply(f32(2.0), 5.0, reverse=True)[0] == 3.0
    assert ALU["subtract"].apply(f32(2.0), 5.0)[0] == -3.0
    assert ALU["abs"].apply(f32(-2.0), None, reverse=True)[0] == 2.0
    assert ALU["bitwise_and"].apply(np.array([-1], np.int8), 0xF0)[0] == -16


def test_infinity_and_nan_are_results_without_warnings():
    with np.errstate(all="raise"):
        assert ALU["reciprocal"](f32(0.0))[0] == np.inf
        assert ALU["multiply"](f32(3e38), f32(3e38))[0] == np.inf
        assert np.isnan(ALU["rsqrt"](f32(-1.0))[0])


@pytest.mark.parametrize("what", ["add", np.add, ALU["add"]])
def test_lookup(what):
    assert alu(what) is ALU["add"]


def test_lookup_of_the_unknown():
    with pytest.raises(NkiValidationError) as caught:
        alu("divide")
    assert caught.value.code == "E0309" and "'divide'" in str(caught.value)


def test_rows_are_complete():
    for op in ALU.values():
        assert set(op.engines) <= {"vector", "gpsimd", "scalar"} and op.engines
        assert op.feature is None or op.feature in FEATURES
        assert op.kind in ("arithmetic", "compare", "logical", "bitwise")
        assert pickle.loads(pickle.dumps(op)) is op
    assert {op.name for op in ALU.values() if "gpsimd" in op.engines} == {"add", "multiply", "power", "rsqrt", "bypass"}
    assert all(op.engines == ("vector",) for op in ALU.values() if op.is_bitwise)
