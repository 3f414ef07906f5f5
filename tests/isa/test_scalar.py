"""Activation functions against float64, the reduce registers, and times against published numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isa_tools import TRN1, TRN2, TRN3, Tiles, read, run
from scipy import special

from ranvier import dtypes as dt
from ranvier.errors import RanvierError
from ranvier.isa.act import ACT, act
from ranvier.isa.alu import alu
from ranvier.isa.enums import ReduceCmd
from ranvier.isa.scalar import Activate2, Activation, ActivationReduce
from ranvier.sim.machine import Memory
from ranvier.target.spec import Engine


def _softplus(x):
    return np.logaddexp(x, 0)


def _phi(x):
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


EXACT = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "relu": lambda x: np.maximum(x, 0),
    "abs": np.abs,
    "sign": np.sign,
    "exp": np.exp,
    "log": np.log,
    "softplus": _softplus,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "gelu": lambda x: x * special.ndtr(x),
    "gelu_dx": lambda x: special.ndtr(x) + x * _phi(x),
    "gelu_apprx_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_apprx_sigmoid": lambda x: x * special.expit(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: special.expit(1.702 * x) * (1 + 1.702 * x * special.expit(-1.702 * x)),
    "silu": lambda x: x * special.expit(x),
    "silu_dx": lambda x: special.expit(x) * (1 + x * special.expit(-x)),
    "erf": special.erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sin": np.sin,
    "arctan": np.arctan,
}
POSITIVE = ("log", "sqrt", "rsqrt", "reciprocal")


def test_every_function_has_a_reference():
    assert set(EXACT) == {name for name, fn in ACT.items() if not fn.parametric}


@pytest.mark.parametrize("name", sorted(EXACT))
def test_functions_against_float64(name):
    low, high = ACT[name].domain
    x = np.linspace(max(low, 1e-3 if name in POSITIVE else -8.0), min(high, 8.0), 1024, dtype=np.float32).reshape(
        8, 128
    )
    tiles = Tiles()
    inst = Activation(dst=tiles("sbuf", x.shape, "float32"), op=act(name), data=tiles.holding(x))
    exact = EXACT[name](x.astype(np.float64))
    # Inputs of up to 8 in float32: a few ulps of the result, and of intermediate values of about 8.
    np.testing.assert_allclose(run(inst, tiles), exact, rtol=2e-6, atol=2e-6)


@given(
    st.integers(1, 128), st.integers(1, 64), st.sampled_from(("float32", "bfloat16", "float16", "int32", "uint8")),
    st.sampled_from(("float32", "bfloat16", "int16")), st.booleans(), st.booleans(), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_scale_and_bias_come_before_the_function(p, f, source, to, vector_scale, vector_bias, seed):
    rng, tiles = np.random.default_rng(seed), Tiles()
    data = dt.cast(rng.uniform(0, 40, (p, f)).astype(np.float32), dt.dtype(source))
    scale = rng.uniform(-2, 2, (p, 1)).astype(np.float32) if vector_scale else 0.75
    bias = rng.uniform(-9, 9, (p, 1)).astype(np.float32) if vector_bias else -1.25
    inst = Activation(
        dst=tiles("sbuf", (p, f), to), op=act("relu"), data=tiles.holding(data),
        scale=tiles.holding(scale) if vector_scale else scale, bias=tiles.holding(bias) if vector_bias else bias,
    )  # fmt: skip
    exact = np.maximum(data.astype(np.float64) * scale + bias, 0)
    got = run(inst, tiles).astype(np.float64)
    half_step = {"float32": 0, "bfloat16": 2.0**-8, "int16": 0}[to]
    assert np.abs(got - exact).max() <= (0.5 if to == "int16" else 0) + half_step * 128 + 2e-5


@given(st.integers(1, 128), st.integers(1, 300), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_activation_reduce_sums_what_it_computes(p, f, seed):
    rng, tiles, memory = np.random.default_rng(seed), Tiles(), Memory({})
    data = rng.normal(size=(p, f)).astype(np.float32)
    res = tiles("sbuf", (p, 1), "float32")
    inst = ActivationReduce(
        dst=tiles("sbuf", (p, f), "bfloat16"),
        op=act("exp"),
        data=tiles.holding(data),
        reduce_op=alu("add"),
        reduce_res=res,
    )
    run(inst, tiles, memory=memory)
    exact = np.exp(data.astype(np.float64)).sum(axis=1, keepdims=True)  # of the results before they are rounded to dst
    np.testing.assert_allclose(read(memory, res), exact, rtol=1e-5)


def test_the_registers_last_from_one_instruction_to_the_next():
    tiles, memory = Tiles(), Memory({})
    data = tiles.holding(np.full((4, 8), 0.5, np.float32))
    res = tiles("sbuf", (4, 1), "float32")

    def step(cmd, keep=False):
        inst = Activation(
            dst=tiles("sbuf", (4, 8), "float32"), op=act("copy"), data=data, reduce_op=alu("add"), reduce_cmd=cmd,
            reduce_res=res if keep else None,
        )  # fmt: skip
        run(inst, tiles, memory=memory)

    step(ReduceCmd.reset)
    step(ReduceCmd.reduce)
    step(ReduceCmd.idle)
    step(ReduceCmd.reduce, keep=True)
    assert (read(memory, res) == 8).all()
    step(ReduceCmd.reset_reduce, keep=True)
    assert (read(memory, res) == 4).all()
    step(ReduceCmd.reset, keep=True)
    assert (read(memory, res) == 0).all()


def test_registers_that_nothing_has_set_hold_nothing():
    tiles, memory = Tiles(), Memory({})
    res = tiles("sbuf", (4, 1), "float32")
    inst = Activation(
        dst=tiles("sbuf", (4, 8), "float32"), op=act("copy"), data=tiles.holding(np.ones((4, 8), np.float32)),
        reduce_op=alu("add"), reduce_cmd=ReduceCmd.reduce, reduce_res=res,
    )  # fmt: skip
    run(inst, tiles, memory=memory)
    assert np.isnan(read(memory, res)).all()


def test_a_reduction_that_overwrites_part_of_dst_survives():
    tiles, memory = Tiles(), Memory({})
    dst = tiles("sbuf", (4, 8), "float32")
    first = type(dst)(dst.buffer, 0, ((1, 4), (1, 1)), dst.dtype)
    inst = ActivationReduce(
        dst=dst, op=act("copy"), data=tiles.holding(np.ones((4, 8), np.float32)), reduce_op=alu("add"), reduce_res=first
    )
    run(inst, tiles, memory=memory)
    assert (read(memory, dst)[:, 0] == 8).all() and (read(memory, dst)[:, 1:] == 1).all()


@pytest.mark.parametrize("name", ["add", "maximum", "minimum", "abs_max", "abs_min"])
def test_activate2_reduces(name):
    rng, tiles, memory = np.random.default_rng(3), Tiles(), Memory({})
    data = rng.normal(size=(16, 40)).astype(np.float32)
    res = tiles("sbuf", (16, 1), "float32")
    inst = Activate2(
        dst=tiles("sbuf", data.shape, "float32"), op=act("copy"), data=tiles.holding(data), imm0=2.0, imm1=0.5,
        op0=alu("multiply"), op1=alu("subtract"), reduce_op=alu(name), reduce_res=res,
        reduce_cmd=ReduceCmd.reset_reduce,
    )  # fmt: skip
    got = run(inst, tiles, TRN3, memory)
    exact = data.astype(np.float64) * 2 - 0.5
    np.testing.assert_allclose(got, exact, rtol=1e-6, atol=1e-6)
    order = np.argsort(np.abs(exact), axis=1)
    by_size = {"abs_max": order[:, -1:], "abs_min": order[:, :1]}
    plain = {"add": np.sum, "maximum": np.max, "minimum": np.min}
    if name in plain:
        expected = plain[name](exact, axis=1, keepdims=True)
    else:
        expected = np.take_along_axis(exact, by_size[name], axis=1)
    np.testing.assert_allclose(read(memory, res), expected, rtol=1e-5, atol=1e-5)


def test_activate2_reverses_and_has_a_slope():
    tiles = Tiles()
    data = np.array([[1.0, 2.0, 5.0]], np.float32)
    inst = Activate2(
        dst=tiles("sbuf", (1, 3), "float32"), op=act("prelu"), data=tiles.holding(data), imm0=3.0, imm1=0.0,
        op0=alu("subtract"), op1=alu("bypass"), reverse0=True, relu_param=0.25,
    )  # fmt: skip
    assert run(inst, tiles, TRN3).tolist() == [[2.0, 1.0, -0.5]]
    with pytest.raises(RanvierError) as failure:
        run(inst, tiles, TRN2)
    assert failure.value.code == "E0307"


def _activation_ns(target, partitions, columns, space="sbuf", op="exp", **attributes):
    tiles = Tiles()
    inst = Activation(
        dst=tiles("sbuf", (partitions, columns), "float32"), op=act(op),
        data=tiles(space, (partitions, columns), "float32"), **attributes,
    )  # fmt: skip
    return inst.cost(target, Engine.SCALAR)


@pytest.mark.parametrize(
    ("target", "partitions", "columns", "expected_ns"),
    [(TRN2, 4, 4096, 3712), (TRN2, 128, 128, 401), (TRN1, 128, 1, 159)],
)
def test_activation_times_are_the_published_ones(target, partitions, columns, expected_ns):
    assert _activation_ns(target, partitions, columns).latency.ns == pytest.approx(expected_ns, rel=0.05)


def test_a_reduction_costs_what_the_traces_show():
    cost = _activation_ns(TRN2, 128, 16384, op="square", reduce_op=alu("add"), reduce_cmd=ReduceCmd.reset_reduce)
    assert cost.latency.ns == pytest.approx(15286, rel=0.05)


def test_tables_and_strides_show_in_the_cost():
    assert _activation_ns(TRN2, 128, 64).table == ACT["exp"].table
    assert _activation_ns(TRN2, 128, 64, op="relu").table is None
    tiles = Tiles()
    wide = tiles("sbuf", (128, 8192), "float32", slice(0, 8192, 8))
    strided = Activation(dst=tiles("sbuf", (128, 1024), "float32"), op=act("relu"), data=wide)
    plain = _activation_ns(TRN2, 128, 1024, op="relu")
    assert strided.cost(TRN2, Engine.SCALAR).busy.ns - plain.busy.ns == pytest.approx(1024 / 1.2, rel=1e-6)
