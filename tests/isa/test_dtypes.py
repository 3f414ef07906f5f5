"""Casts: saturation, rounding, NaN and the legacy float8, by values worked out by hand."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranvier import dtypes as dt
from ranvier.errors import RanvierError

INTEGERS = [d for d in dt.DTYPES.values() if d.is_integer and d.itemsize <= 4]
FLOATS = [d for d in dt.DTYPES.values() if d.is_float and d.on_device]


def cast(values, to):
    return dt.cast(np.asarray(values), to)


@pytest.mark.parametrize("to", INTEGERS, ids=str)
def test_floats_round_to_even_and_saturate(to):
    info = np.iinfo(to.np)
    given_, wanted = [0.5, 1.5, 2.5, np.nan, 1e30, -1e30, np.inf, -np.inf], [0, 2, 2, 0, info.max, info.min]
    assert cast(np.float32(given_), to).tolist() == [*wanted, info.max, info.min]


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(INTEGERS))
def test_integers_are_exact_or_saturate(number, to):
    info = np.iinfo(to.np)
    assert int(cast(np.int64(number), to)) == max(info.min, min(info.max, number))


@pytest.mark.parametrize("to", FLOATS, ids=str)
def test_a_store_rounds_once_to_nearest_even(to):
    values = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    stored = cast(values, to)
    assert stored.dtype == to.np
    spacing = 2.0 ** (np.floor(np.log2(np.abs(values))) - ml_dtypes.finfo(to.np).nmant)
    least = float(ml_dtypes.finfo(to.np).smallest_subnormal)
    assert (np.abs(stored.astype(np.float64) - values) <= np.maximum(spacing, least) / 2).all()


def test_values_beyond_the_legacy_float8_are_nan():
    stored = cast(np.float32([240, 250, -1e6, np.inf]), dt.float8_e4m3).astype(np.float32)
    assert stored[0] == 240 and np.isnan(stored[2:]).all()
    assert np.isinf(cast(np.float32([1e6]), dt.float8_e5m2).astype(np.float32)).all()


def test_wide_types_are_read_through_float32_except_into_float64():
    exact = np.float64([2**24 + 1])
    assert cast(exact, dt.bfloat16).astype(np.float64) == 2**24
    assert cast(np.int64([2**24 + 1]), dt.float64) == 2**24 + 1
    assert cast(np.int64([2**24 + 1]), dt.float32) == 2**24


def test_anything_but_zero_is_true():
    assert cast(np.float32([0, -0.0, 1e-30, np.nan]), dt.bool_).tolist() == [False, False, True, True]


def test_poison_is_nan_in_every_float():
    for to in FLOATS:
        assert np.isnan(np.full(to.itemsize, dt.POISON_BYTE, np.uint8).view(to.np).astype(np.float32)).all(), to


def test_names_find_dtypes_and_equal_them():
    assert dt.dtype("bool_") is dt.bool_ and dt.dtype(np.float16) is dt.float16 and dt.bfloat16 == "bfloat16"
    with pytest.raises(RanvierError, match="E0305"):
        dt.dtype("float80")
