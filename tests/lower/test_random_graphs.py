"""Random graphs, compiled: every stage against its reference, the program against the kernel to the last bit."""

from __future__ import annotations

import random

import pytest
from helpers.agreement import require_agreement
from helpers.random_graphs import STEPS, random_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ranvier import dtypes as dt

JUMPING = ("jumping_unary", "jumping_binary", "comparison", "select", "casting", "ordering", "large_integer", "integer")
CONTINUOUS = tuple(name for name in STEPS if name not in JUMPING)


def agree(r: random.Random, given_dtype: dt.DType, dtype: str, chip: str, only: tuple[str, ...] = ()) -> None:
    case = random_case(r, given_dtype, 6, only)
    require_agreement(case.graph, case.inputs, case.params, dtype, chip)


SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
cheap = settings(max_examples=30, deadline=None, suppress_health_check=SLOW, database=None)
Randoms = st.randoms(use_true_random=False)


@cheap
@given(Randoms)
def test_float32(r):
    agree(r, dt.float32, "float32", "trn2")


@cheap
@given(Randoms)
def test_bfloat16(r):
    agree(r, dt.bfloat16, "bfloat16", "trn2")


@cheap
@given(Randoms)
def test_float32_computed_in_bfloat16(r):
    agree(r, dt.float32, "bfloat16", "trn2", CONTINUOUS)


@settings(cheap, max_examples=10)
@pytest.mark.parametrize("chip", ["trn1", "trn3"])
@given(Randoms)
def test_other_generations(chip, r):
    agree(r, dt.float32, "float32", chip)


@pytest.mark.parametrize("family", STEPS)
def test_each_family_of_operations(family):
    for seed in range(3):
        agree(random.Random(seed), dt.float32, "float32", "trn2", (family,))
