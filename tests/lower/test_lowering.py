"""Lowered graphs against the reference evaluation in float64, in float32 and bfloat16, on odd sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from helpers.models import Model

from ranvier import dtypes as dt
from ranvier import target
from ranvier.compiler.graph.assign_layouts import assign_layouts
from ranvier.compiler.graph.fuse import fuse
from ranvier.compiler.graph.hoist_parameters import derived_key, hoist_parameters
from ranvier.compiler.graph.rewrite_for_core import rewrite_for_core
from ranvier.compiler.kernel.pipeline import lower_kernel
from ranvier.compiler.lower.lower import lower
from ranvier.graph import (
    Attention,
    BatchNorm,
    Conv,
    GroupNorm,
    LogSoftmax,
    Pool,
    Rope,
    Value,
)
from ranvier.ir.kernel import verify_kernel
from ranvier.sim.interpreter import Interpreter, run_kernel

TARGET = target.get("trn2")


def check(model: Model, result: Value, tolerance: float) -> None:
    """Kernel in order and scheduled program agree to the bit, and with float64 to `tolerance` of the largest value."""
    graph = model.b.build([result])
    body, prologue = hoist_parameters(rewrite_for_core(graph))
    groups = fuse(body)
    kernel = lower(body, groups, assign_layouts(body, groups), TARGET)
    verify_kernel(kernel, TARGET)
    params = dict(model.params)
    if prologue is not None:
        derived = prologue.evaluate([], model.params)
        params |= {derived_key(i): array for i, array in enumerate(derived)}
    inputs = [a.view(np.uint8) if a.dtype == bool else a for a in model.inputs]
    (got,) = run_kernel(kernel, TARGET, inputs, params)
    (want,) = graph.evaluate(model.inputs, model.params, precision="float64")
    want = np.asarray(want, dtype=np.float64)
    error = np.abs(got.astype(np.float64).reshape(want.shape) - want).max() / np.abs(want).max()
    assert error <= tolerance
    (scheduled,) = Interpreter(lower_kernel(kernel, TARGET), TARGET).run(inputs, params)
    np.testing.assert_array_equal(scheduled, got)


def mlp(m: Model) -> Value:
    x = m.input(2, 130, 96)
    hidden = m.b.gelu(m.b.linear(x, m.param(200, 96), m.param(200)))
    return m.b.add(m.b.linear(hidden, m.param(96, 200), m.param(96)), x)


def gated(m: Model) -> Value:
    x = m.input(33, 64)
    gate = m.b.silu(m.b.linear(x, m.param(72, 64)))
    return m.b.linear(m.b.mul(gate, m.b.linear(x, m.param(72, 64))), m.param(64, 72))


def elementwise(m: Model) -> Value:
    b = m.b
    x, y, z = m.input(5, 7, 33), m.input(7, 1), m.input(33, low=0.5, high=2.0)
    h = b.div(b.add(b.mul(x, y), z), b.add(b.exp(x), 1.0))
    h = b.select(b.compare("gt", h, 0.5), h, b.sub(0.0, y))
    h = b.add(b.mul(b.unary("sin", b.mul(h, 5.0)), b.tanh(x)), b.unary("floor", b.mul(x, 2.5)))
    h = b.add(b.clamp(h, -1.0, 1.0), b.sqrt(b.pow(x, 2.0)))
    return b.mul(h, b.pow(z, 3.0))


def pooled(m: Model) -> Value:
    b = m.b
    x = m.input(4, 50, 96)
    weight = b.reshape(b.cast(m.flags(4, 50), m.dtype), (4, 50, 1))
    mean = b.div(b.sum(b.mul(x, weight), 1), b.clamp(b.sum(weight, 1), 1e-9))
    return b.div(mean, b.clamp(b.sqrt(b.sum(b.mul(mean, mean), 1, True)), 1e-12))


def embedding(m: Model) -> Value:
    return m.b.add(m.b.take(m.param(500, 64), m.indices(2, 70, below=500)), m.param(70, 64))


def batched_matmul(m: Model) -> Value:
    return m.b.softmax(m.b.mul(m.b.matmul(m.input(2, 3, 40, 50), m.input(1, 3, 50, 60)), 0.3))


def log_probabilities(m: Model) -> Value:
    return m.b.emit(LogSoftmax(axis=1), m.b.linear(m.input(9, 40), m.param(1000, 40)))


def wide_linear(m: Model) -> Value:
    return m.b.mul(m.b.linear(m.input(40, 64), m.param(20000, 64)), 2.0)


def batch_norm(m: Model, x: Value) -> Value:
    c = x.shape[1]
    return m.b.emit(BatchNorm(1e-5), x, m.param(c, scale=1.0), m.param(c), m.param(c), m.param(c, low=0.5))


def conv(m: Model, x: Value, out: int, kernel: int, stride: int, padding: int, groups: int = 1) -> Value:
    op = Conv((stride, stride), ((padding, padding), (padding, padding)), (1, 1), groups)
    return m.b.emit(op, x, m.param(out, x.shape[1] // groups, kernel, kernel))


def residual_cnn(m: Model) -> Value:
    b = m.b
    h = b.relu(batch_norm(m, conv(m, m.input(2, 3, 32, 32), 16, 7, 2, 3)))
    h = b.emit(Pool("max", (3, 3), (2, 2), ((1, 1), (1, 1))), h)
    h = b.relu(b.add(batch_norm(m, conv(m, h, 16, 3, 1, 1)), h))
    short = batch_norm(m, conv(m, h, 160, 1, 2, 0))
    h = b.relu(b.add(batch_norm(m, conv(m, h, 160, 3, 2, 1)), short))
    return b.linear(b.mean(h, (2, 3)), m.param(10, 160), m.param(10))


def depthwise(m: Model) -> Value:
    h = m.b.silu(conv(m, m.input(1, 20, 9, 11), 20, 3, 1, 1, groups=20))
    return m.b.emit(Pool("avg", (2, 2), (2, 2), ((0, 1), (1, 0)), False, False), h)


def group_norm(m: Model) -> Value:
    x = m.input(2, 12, 5, 6)
    return m.b.emit(GroupNorm(3, 1e-5), x, m.param(12, scale=1.0), m.param(12))


def patches(m: Model) -> Value:
    b = m.b
    h = conv(m, m.input(2, 3, 32, 32), 48, 8, 8, 0)
    h = b.transpose(b.reshape(h, (2, 48, 16)), (0, 2, 1))
    h = b.concat([b.broadcast(m.param(1, 1, 48), (2, 1, 48)), h], 1)
    h = b.layer_norm(b.add(h, m.param(1, 17, 48)), m.param(48, scale=1.0), m.param(48), 1e-5)
    return b.reshape(b.slice_axis(h, 1, 0, 1), (2, 48))


def padded(m: Model) -> Value:
    return m.b.mul(m.b.pad(m.input(3, 5, 7), (1, 0, 2), (0, 2, 1), 0.5), 3.0)


CASES: list[Callable[[Model], Value]] = [
    mlp, gated, elementwise, pooled, embedding, batched_matmul, log_probabilities, wide_linear, residual_cnn, depthwise,
    group_norm, patches, padded,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_float32(case):
    model = Model()
    check(model, case(model), 5e-6)


# Not `elementwise`: its steps (floor, select) turn a rounding into a difference of one.
@pytest.mark.parametrize("case", [c for c in CASES if c is not elementwise], ids=lambda c: c.__name__)
def test_bfloat16(case):
    model = Model(dt.bfloat16)
    check(model, case(model), 4e-2)


def heads(m: Model, x: Value, count: int) -> Value:
    batch, length, size = x.shape
    return m.b.transpose(m.b.reshape(x, (batch, length, count, size // count)), (0, 2, 1, 3))


ATTENTION = [
    # batch, length, size, heads, key heads, mask, causal, rope
    (2, 128, 128, 4, 4, "row", False, False),
    (2, 17, 96, 4, 4, None, False, False),
    (1, 300, 520, 8, 8, "row", False, False),
    (2, 64, 128, 4, 2, None, True, True),
    (1, 200, 96, 4, 4, "full", False, False),
    (2, 130, 256, 2, 1, None, True, True),
    (1, 1, 96, 12, 12, "row", False, False),
    (1, 600, 128, 2, 2, "row", False, False),
]


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16], ids=str)
@pytest.mark.parametrize("batch,length,size,count,key_count,mask,causal,rope", ATTENTION)
def test_attention(batch, length, size, count, key_count, mask, causal, rope, dtype):
    m = Model(dtype)
    b, x = m.b, m.input(batch, length, size)
    d = size // count
    query, key, value = (
        heads(m, b.linear(x, m.param(n * d, size), m.param(n * d)), n) for n in (count, key_count, key_count)
    )
    if rope:
        cos, sin = m.param(1, 1, length, d, scale=1.0), m.param(1, 1, length, d, scale=1.0)
        query, key = b.emit(Rope(), query, cos, sin), b.emit(Rope(), key, cos, sin)
    extra = []
    if mask == "row":
        extra = [m.flags(batch, 1, 1, length)]
    elif mask == "full":
        extra = [m.input(batch, 1, length, length)]
    op = Attention(scale=d**-0.5, causal=causal, has_mask=bool(extra))
    result = b.emit(op, query, key, value, *extra)
    merged = b.reshape(b.transpose(result, (0, 2, 1, 3)), x.shape)
    check(m, b.add(b.linear(merged, m.param(size, size)), x), 5e-6 if dtype is dt.float32 else 4e-2)


@pytest.mark.parametrize("length,size", [(40, 24), (150, 160)])
def test_attention_on_heads_that_are_not_split_from_rows(length, size):
    m = Model()
    query, key, value = (m.input(2, 3, length, size) for _ in range(3))
    check(m, m.b.emit(Attention(scale=0.2), query, key, value), 5e-6)


@pytest.mark.parametrize("full", [False, True])
def test_a_query_without_any_key_gives_zeros(full):
    m = Model()
    query, key, value = (m.input(2, 3, 40, 24) for _ in range(3))
    mask = m.flags(2, 1, 40 if full else 1, 40)
    m.inputs[-1][1] = False
    m.inputs[-1][0, :, -1, 5:] = True
    result = m.b.emit(Attention(scale=0.2, has_mask=True), query, key, value, mask)
    check(m, result, 5e-6)
