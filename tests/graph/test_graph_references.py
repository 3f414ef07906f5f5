"""Operations against torch and the standard library, in float64, to 1e-12."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.graph_samples import one_op_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from ranvier import dtypes
from ranvier.graph import (
    ArgReduce,
    Attention,
    BatchNorm,
    Clamp,
    Conv,
    CumSum,
    Gelu,
    GroupNorm,
    LayerNorm,
    Linear,
    LogSoftmax,
    Pool,
    RmsNorm,
    ScatterAlong,
    Silu,
    Softmax,
    Sort,
    Take,
    TakeAlong,
    TensorType,
    TopK,
    Unary,
)
from ranvier.isa.act import erf

torch.set_num_threads(1)


def run(op, *arrays):
    """The results of `op`, in float64."""
    graph = one_op_graph(op, [TensorType(a.shape, dtypes.dtype(a.dtype)) for a in arrays])
    return graph.evaluate(arrays)


def close(op, expected, *tensors):
    results = run(op, *(t.numpy() for t in tensors))
    expected = expected if isinstance(expected, tuple) else (expected,)
    for result, reference in zip(results, expected, strict=True):
        assert result.dtype == reference.numpy().dtype
        np.testing.assert_allclose(result, reference.numpy(), rtol=1e-12, atol=1e-12)


@pytest.fixture
def x():
    return torch.from_numpy(np.random.default_rng(0).normal(size=(2, 6, 5, 7)))


def random(*shape, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@settings(max_examples=200, deadline=None)
@given(st.floats(-8, 8))
def test_erf(x):
    assert erf(np.asarray(x)) == pytest.approx(math.erf(x), rel=4e-16, abs=0)


def test_erf_at_the_edges():
    edges = np.array([0.0, -0.0, 1.0, -1.0, np.nextafter(1, 2), 6.0, 30.0, np.inf, -np.inf, np.nan, 5e-324])
    np.testing.assert_allclose(erf(edges), [math.erf(e) for e in edges], rtol=4e-16)
    assert np.signbit(erf(np.array(-0.0)))
    assert erf(edges.astype(np.float32)).dtype == np.float32


UNARY_REFERENCES = {
    "neg": torch.neg, "abs": torch.abs, "exp": torch.exp, "log": torch.log, "log1p": torch.log1p,
    "expm1": torch.expm1, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal,
    "square": torch.square, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf, "sin": torch.sin,
    "cos": torch.cos, "relu": torch.relu, "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil,
    "round": torch.round, "trunc": torch.trunc, "isnan": torch.isnan, "isinf": torch.isinf,
}  # fmt: skip


@pytest.mark.parametrize("kind", UNARY_REFERENCES)
def test_unary(kind, x):
    special = torch.tensor([0.5, 1.5, -2.5, float("inf"), float("nan"), 1e-9, -700.0], dtype=torch.float64)
    for operand in (x, special):
        if kind == "sign":
            operand = operand[~operand.isnan()]
        close(Unary(kind), UNARY_REFERENCES[kind](operand), operand)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions(x, groups, transposed):
    shape = (6, 4 // groups, 3, 2) if transposed else (4, 6 // groups, 3, 2)
    weight, bias = random(*shape), random(4)
    stride, padding, dilation = (2, 1), (1, 2), (1, 2)
    pairs = tuple((p, p) for p in padding)
    if transposed:
        reference = F.conv_transpose2d(x, weight, bias, stride, padding, (1, 0), groups, dilation)
        close(Conv(stride, pairs, dilation, groups, True, (1, 0)), reference, x, weight, bias)
    else:
        reference = F.conv2d(x, weight, bias, stride, padding, dilation, groups)
        close(Conv(stride, pairs, dilation, groups), reference, x, weight, bias)
        assert Conv(stride, pairs, dilation, groups).flops(
            [TensorType(tuple(t.shape), dtypes.float64) for t in (x, weight)],
            [TensorType(tuple(reference.shape), dtypes.float64)],
        ) == 2 * reference.numel() * (6 // groups) * 6


def test_convolution_of_one_and_three_axes(x):
    line, weight = x.reshape(2, 6, 35), random(4, 6, 3)
    close(Conv((1,), ((1, 1),), (1,), 1), F.conv1d(line, weight, padding=1), line, weight)
    volume, kernel = x.reshape(2, 6, 5, 7, 1), random(3, 6, 2, 2, 1)
    close(Conv((1,) * 3, ((0, 0),) * 3, (1,) * 3, 1), F.conv3d(volume, kernel), volume, kernel)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_pooling(x, ceil_mode, stride):
    for count in (False, True):
        reference = F.avg_pool2d(x, 3, stride, 1, ceil_mode, count)
        op = Pool("avg", (3, 3), (stride,) * 2, ((1, 1), (1, 1)), ceil_mode, count)
        close(op, reference, x)
    reference = F.max_pool2d(x, 3, stride, 1, ceil_mode=ceil_mode)
    close(Pool("max", (3, 3), (stride,) * 2, ((1, 1), (1, 1)), ceil_mode), reference, x)


def test_norms(x):
    weight, bias = random(7), random(7, seed=2)
    close(LayerNorm((3,), 1e-5), F.layer_norm(x, (7,), weight, bias, 1e-5), x, weight, bias)
    close(LayerNorm((2, 3), 1e-5, False, False), F.layer_norm(x, (5, 7)), x)
    close(RmsNorm(1e-6), F.rms_norm(x, (7,), weight, 1e-6), x, weight)
    weight, bias, mean, variance = random(6), random(6, seed=2), random(6, seed=3), random(6, seed=4).abs()
    close(GroupNorm(3, 1e-5), F.group_norm(x, 3, weight, bias), x, weight, bias)
    reference = F.batch_norm(x, mean, variance, weight, bias)
    close(BatchNorm(1e-5), reference, x, weight, bias, mean, variance)


def test_activations(x):
    close(Softmax(1), x.softmax(1), x)
    close(LogSoftmax(2), x.log_softmax(2), x)
    close(Gelu(), F.gelu(x), x)
    close(Gelu("tanh"), F.gelu(x, approximate="tanh"), x)
    close(Silu(), F.silu(x), x)
    close(Linear(), F.linear(x, random(3, 7), random(3)), x, random(3, 7), random(3))
    close(Clamp(-0.5, None), x.clamp(min=-0.5), x)


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "float", "empty row"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention(mask, kv_heads):
    q, k, v = random(2, 4, 5, 8), random(2, kv_heads, 6, 8, seed=2), random(2, kv_heads, 6, 3, seed=3)
    keep = random(2, 1, 5, 6, seed=4) > -0.5
    if mask == "empty row":
        keep[0, 0, 2] = False
    masks = {"bool": (keep,), "empty row": (keep,), "float": (random(4, 5, 6, seed=5),)}.get(mask, ())
    group = 4 // kv_heads
    reference = F.scaled_dot_product_attention(
        q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), *masks, is_causal=mask == "causal"
    )
    close(Attention(8**-0.5, mask == "causal", bool(masks)), reference, q, k, v, *masks)


def test_indexing(x):
    indices = torch.tensor([[2, 0], [1, 1]])
    close(Take(1), x[:, indices], x, indices)
    along = torch.randint(0, 5, (2, 4, 3, 7), generator=torch.Generator().manual_seed(0))
    close(TakeAlong(2), x.gather(2, along), x, along)
    updates = random(2, 4, 3, 7)
    close(ScatterAlong(2, "add"), x.scatter_add(2, along, updates), x, along, updates)
    unique = torch.arange(3).reshape(1, 1, 3, 1).expand(2, 4, 3, 7).contiguous()
    close(ScatterAlong(2), x.scatter(2, unique, updates), x, unique, updates)


def test_order(x):
    ties = (x * 2).round()
    close(Sort(2), tuple(ties.sort(dim=2, stable=True)), ties)
    close(Sort(2, True), tuple(ties.sort(dim=2, descending=True, stable=True)), ties)
    close(TopK(3, 3), tuple(x.topk(3, 3)), x)
    close(TopK(2, 1, False), tuple(x.topk(2, 1, largest=False)), x)
    close(ArgReduce("argmax", 3, False), x.argmax(3), x)
    close(ArgReduce("argmin", 1, True), x.argmin(1, keepdim=True), x)
    close(CumSum(2), x.cumsum(2), x)
