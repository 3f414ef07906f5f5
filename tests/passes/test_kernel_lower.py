"""The whole way from a kernel to a program: what it computes stays, in every order that the semaphores allow."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_programs import random_inputs, random_kernel, tiny_target

from ranvier.compiler.kernel.pipeline import lower_kernel
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
