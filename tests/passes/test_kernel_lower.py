"""The whole way from a kernel to a program: what it computes stays, in every order that the semaphores allow."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_programs import random_inputs, random_kernel, tiny_target

from ranvier import config
from ranvier.compiler.kernel import pipeline
from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.compiler.kernel.synchronize import synchronize
from ranvier.errors import InternalError
from ranvier.ir.text import parse_program, print_program
from ranvier.sim.interpreter import Interpreter, run_kernel


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32), length=st.sampled_from((10, 40, 100)), sbuf=st.sampled_from((768, 1024, 2048, 65536)),
    name=st.sampled_from(("trn1", "trn2", "trn3")),
)
def test_programs_compute_what_kernels_mean(seed, length, sbuf, name):
    target = tiny_target(sbuf, name)
    kernel = random_kernel(seed, target, length)
    program = lower_kernel(kernel, target)
    inputs = random_inputs(kernel, seed)
    expected = run_kernel(kernel, target, inputs)
    for order, dma in ((seed, "early"), (seed + 1, "late")):
        for want, got in zip(expected, Interpreter(program, target, seed=order, dma=dma).run(inputs), strict=True):
            np.testing.assert_array_equal(got, want)


def test_a_broken_pass_is_caught_unless_checks_are_off(monkeypatch):
    def lose_waits(*arguments):
        return dataclasses.replace(synchronize(*arguments), waits={})

    monkeypatch.setattr(pipeline, "synchronize", lose_waits)
    target = tiny_target()
    kernel = random_kernel(3, target, 20)
    with pytest.raises(InternalError) as caught:
        lower_kernel(kernel, target)
    assert "after emit: E0402" in str(caught.value)
    with config.override(verify=False):
        lower_kernel(kernel, target)
    assert lower_kernel(kernel, target, verify=False).semaphores


def test_passes_are_observed_in_order():
    seen = []
    target = tiny_target()
    program = lower_kernel(random_kernel(3, target, 20), target, observe=lambda name, made: seen.append((name, made)))
    names = ["legalize", "place", "find_dependencies", "schedule", "synchronize", "emit"]
    assert [name for name, _ in seen] == names and seen[-1][1] is program


def test_equal_kernels_give_equal_programs():
    target = tiny_target()
    one, other = (lower_kernel(random_kernel(11, target, 60), target) for _ in range(2))
    assert print_program(one) == print_program(other)
    assert parse_program(print_program(one)) == one
