"""Rules for matrix products, convolution, pooling, normalization and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from ranvier import dtypes
from ranvier import graph as g
from ranvier.dtypes import DType
from ranvier.frontends.torch.ops_index import resample
from ranvier.frontends.torch.rules import Context, Refused, RuleTable, Unavailable, axis_of, rank
from ranvier.frontends.torch.tensors import to_torch_dtype
from ranvier.graph import Value

NN = RuleTable()
rule = NN.rule

_BACKWARD_ONLY = Unavailable("is saved for the backward pass, which is not compiled")


# Products ------------------------------------------------------------------------------------------------------------


@rule("linear.default")
def linear(ctx: Context, input: Value, weight: Value, bias: Value | None = None) -> Value:
    operands = (input, weight) if bias is None else (input, weight, bias)
    if rank(weight) == 1:  # one output feature, without an axis of its own
        product = ctx.emit(g.MatMul(), input, ctx.reshape(weight, (*weight.type.shape, 1)))
        product = ctx.reshape(product, ctx.shape)
        return product if bias is None else ctx.binary("add", product, bias)
    return ctx.emit(g.Linear(), *operands)


@rule("matmul.default", "mm.default", "bmm.default", "mv.default", "dot.default", "linalg_matmul.default")
def matmul(ctx: Context, x: Value, other: Value | None = None, mat2: Value | None = None, vec: Value | None = None,
           tensor: Value | None = None) -> Value:
    right = next(v for v in (other, mat2, vec, tensor) if v is not None)
    if rank(x) == 1:
        x = ctx.reshape(x, (1, *x.type.shape))
    if rank(right) == 1:
        right = ctx.reshape(right, (*right.type.shape, 1))
    return ctx.reshape(ctx.emit(g.MatMul(), x, right), ctx.shape)


@rule("addmm.default", "baddbmm.default", "addmv.default")
def addmm(ctx: Context, x: Value, mat1: Value | None = None, mat2: Value | None = None, batch1: Value | None = None,
          batch2: Value | None = None, mat: Value | None = None, vec: Value | None = None, beta: float = 1,
          alpha: float = 1) -> Value:
    left, right = (next(v for v in pair if v is not None) for pair in ((mat1, batch1, mat), (mat2, batch2, vec)))
    product = matmul(ctx, left, right)
    if alpha != 1:
        product = ctx.binary("mul", product, alpha)
    if beta == 0:
        return product
    return ctx.binary("add", product, x if beta == 1 else ctx.binary("mul", x, beta))


@rule("outer.default", "ger.default")
def outer(ctx: Context, x: Value, vec2: Value) -> Value:
    column, row = ctx.reshape(x, (*x.type.shape, 1)), ctx.reshape(vec2, (1, *vec2.type.shape))
    return ctx.emit(g.Binary("mul"), ctx.cast(column, ctx.dtype), ctx.cast(row, ctx.dtype))


# Convolution and pooling ---------------------------------------------------------------------------------------------


def _spread(values: Sequence[int] | int, count: int) -> tuple[int, ...]:
    """One value for each spatial axis; torch lets one stand for all."""
    values = (values,) if isinstance(values, int) else tuple(values)
    return values * count if len(values) == 1 else values


def _batched(ctx: Context, x: Value, spatial: int) -> Value:
    """`x` with a batch axis; what is computed from it goes through `ctx.reshape(..., ctx.shape)`."""
    return ctx.reshape(x, (1, *x.type.shape)) if rank(x) == spatial + 1 else x


@rule("conv1d.default", "conv2d.default", "conv3d.default", "conv1d.padding", "conv2d.padding", "conv3d.padding",
      "convolution.default")
def convolution(ctx: Context, input: Value, weight: Value, bias: Value | None = None, stride=1, padding=0, dilation=1,
                groups: int = 1, transposed: bool = False, output_padding=0) -> Value:
    spatial = rank(weight) - 2
    stride, dilation, extra = (_spread(v, spatial) for v in (stride, dilation, output_padding))
    kernel = weight.type.shape[2:]
    if padding == "same":
        whole = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        pads = tuple((n // 2, n - n // 2) for n in whole)
    elif padding == "valid":
        pads = ((0, 0),) * spatial
    else:
        pads = tuple((n, n) for n in _spread(padding, spatial))
    op = g.Conv(stride, pads, dilation, groups, transposed, extra if transposed else ())
    operands = (_batched(ctx, input, spatial), weight) + (() if bias is None else (bias,))
    return ctx.reshape(ctx.emit(op, *operands), ctx.shape)


@rule("conv_transpose1d.default", "conv_transpose2d.input")
def conv_transpose(ctx: Context, input: Value, weight: Value, bias: Value | None = None, stride=1, padding=0,
                   output_padding=0, groups: int = 1, dilation=1) -> Value:
    return convolution(ctx, input, weight, bias, stride, padding, dilation, groups, True, output_padding)


def _pool(ctx: Context, kind: str, x: Value, spatial: int, kernel_size, stride, padding, ceil_mode: bool = False,
          count_include_pad: bool = True, dilation=1) -> Value:
    kernel = _spread(kernel_size, spatial)
    stride = _spread(stride, spatial) if stride else kernel
    pads = _spread(padding, spatial)
    op = g.Pool(kind, kernel, stride, tuple((n, n) for n in pads), ceil_mode, count_include_pad,
                _spread(dilation, spatial))
    return ctx.reshape(ctx.emit(op, _batched(ctx, x, spatial)), ctx.shape)


def _max_pool(spatial: int):
    def apply(ctx: Context, x: Value, kernel_size, stride=(), padding=0, dilation=1, ceil_mode: bool = False):
        pooled = _pool(ctx, "max", x, spatial, kernel_size, stride, padding, ceil_mode, dilation=dilation)
        several = isinstance(ctx.result, list | tuple)
        return (pooled, Unavailable("(the indices of the maxima) is not computed")) if several else pooled

    return apply


def _avg_pool(spatial: int):
    def apply(ctx: Context, x: Value, kernel_size, stride=(), padding=0, ceil_mode: bool = False,
              count_include_pad: bool = True) -> Value:
        return _pool(ctx, "avg", x, spatial, kernel_size, stride, padding, ceil_mode, count_include_pad)

    return apply


for _n in (1, 2, 3):
    NN.add(f"max_pool{_n}d.default", _max_pool(_n))
    NN.add(f"max_pool{_n}d_with_indices.default", _max_pool(_n), note="without the indices")
    NN.add(f"avg_pool{_n}d.default", _avg_pool(_n))


@rule("adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default", "_adaptive_avg_pool2d.default")
def adaptive_avg_pool(ctx: Context, x: Value, output_size) -> Value:
    spatial = 1 if isinstance(output_size, int) else len(output_size)
    first = rank(x) - spatial
    sizes, outs = x.type.shape[first:], ctx.shape[first:]
    if all(n == 1 for n in outs):
        return ctx.emit(g.Reduce("mean", tuple(range(first, rank(x))), True), x)
    if all(size % out == 0 for size, out in zip(sizes, outs, strict=True)):
        kernel = tuple(size // out for size, out in zip(sizes, outs, strict=True))
        return _pool(ctx, "avg", x, spatial, kernel, kernel, 0)
    for axis, (size, out) in enumerate(zip(sizes, outs, strict=True), start=first):
        weights = np.zeros((size, out))
        for i in range(out):
            low, high = i * size // out, -((-(i + 1) * size) // out)
            weights[low:high, i] = 1 / (high - low)
        x = resample(ctx, x, axis, weights)
    return x


@rule("adaptive_max_pool1d.default", "adaptive_max_pool2d.default", note="sizes that divide; without the indices")
def adaptive_max_pool(ctx: Context, x: Value, output_size) -> tuple[Value, Unavailable]:
    spatial = len(output_size)
    sizes, outs = x.type.shape[-spatial:], ctx.shape[-spatial:]
    if any(size % out for size, out in zip(sizes, outs, strict=True)):
        raise Refused(f"from {sizes} to {outs}: the sizes must divide")
    kernel = tuple(size // out for size, out in zip(sizes, outs, strict=True))
    pooled = _pool(ctx, "max", x, spatial, kernel, kernel, 0)
    return pooled, Unavailable("(the indices of the maxima) is not computed")


# Normalization -------------------------------------------------------------------------------------------------------


def _affine(ctx: Context, weight: Value | None, bias: Value | None, channels: int, dtype: DType) -> tuple[Value, Value]:
    """Weight and bias for each channel; 1 and 0 where there is none."""
    return (ctx.emit(g.Full((channels,), 1, dtype)) if weight is None else weight,
            ctx.emit(g.Full((channels,), 0, dtype)) if bias is None else bias)


def _normalized(ctx: Context, op: g.Op, x: Value, *affine: Value) -> Value:
    """`op` on `x`; where weights have another dtype (float32 beside bfloat16) all of it in float32."""
    if all(v.type.dtype is x.type.dtype for v in affine):
        return ctx.emit(op, x, *affine)
    wide = (ctx.cast(v, dtypes.float32) for v in (x, *affine))
    return ctx.cast(ctx.emit(op, *wide), x.type.dtype)


@rule("batch_norm.default", "_native_batch_norm_legit_no_training.default", "native_batch_norm.default",
      "_batch_norm_no_update.default")
def batch_norm(ctx: Context, input: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
               running_var: Value | None, eps: float, training: bool = False):
    if training or running_mean is None or running_var is None:
        raise Refused("with the statistics of the batch: call model.eval() first")
    dtype = running_mean.type.dtype
    affine = _affine(ctx, weight, bias, input.type.shape[1], dtype)
    result = _normalized(ctx, g.BatchNorm(eps), input, *affine, running_mean, running_var)
    if not isinstance(ctx.result, list | tuple):
        return result
    return (result, *(_BACKWARD_ONLY for _ in ctx.result[1:]))


@rule("layer_norm.default", "native_layer_norm.default")
def layer_norm(ctx: Context, input: Value, normalized_shape: Sequence[int], weight: Value | None = None,
               bias: Value | None = None, eps: float = 1e-5):
    axes = tuple(range(rank(input) - len(normalized_shape), rank(input)))
    op = g.LayerNorm(axes, eps, has_weight=weight is not None, has_bias=bias is not None)
    result = _normalized(ctx, op, input, *(v for v in (weight, bias) if v is not None))
    return (result, _BACKWARD_ONLY, _BACKWARD_ONLY) if isinstance(ctx.result, list | tuple) else result


@rule("rms_norm.default", "_fused_rms_norm.default")
def rms_norm(ctx: Context, input: Value, normalized_shape: Sequence[int], weight: Value | None = None,
             eps: float | None = None):
    size = math.prod(normalized_shape)
    if eps is None:
        eps = torch.finfo(to_torch_dtype(input.type.dtype)).eps
    flat = ctx.reshape(input, (*input.type.shape[: rank(input) - len(normalized_shape)], size))
    affine = () if weight is None else (ctx.reshape(weight, (size,)),)
    result = ctx.reshape(_normalized(ctx, g.RmsNorm(eps), flat, *affine), input.type.shape)
    return (result, _BACKWARD_ONLY) if isinstance(ctx.result, list | tuple) else result


def _group_norm(ctx: Context, x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float) -> Value:
    if weight is None and bias is None:
        return ctx.emit(g.GroupNorm(groups, eps), x)
    return _normalized(ctx, g.GroupNorm(groups, eps), x, *_affine(ctx, weight, bias, x.type.shape[1], x.type.dtype))


@rule("group_norm.default")
def group_norm(ctx: Context, input: Value, num_groups: int, weight: Value | None = None, bias: Value | None = None,
               eps: float = 1e-5) -> Value:
    return _group_norm(ctx, input, num_groups, weight, bias, eps)


@rule("native_group_norm.default")
def native_group_norm(ctx: Context, input: Value, weight: Value | None, bias: Value | None, N: int, C: int, HxW: int,
                      group: int, eps: float):
    return _group_norm(ctx, input, group, weight, bias, eps), _BACKWARD_ONLY, _BACKWARD_ONLY


@rule("instance_norm.default")
def instance_norm(ctx: Context, input: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
                  running_var: Value | None, use_input_stats: bool, eps: float) -> Value:
    if not use_input_stats:
        return batch_norm(ctx, input, weight, bias, running_mean, running_var, eps)
    return _group_norm(ctx, input, input.type.shape[1], weight, bias, eps)


# Softmax and attention -----------------------------------------------------------------------------------------------


@rule("softmax.int", "_softmax.default", "_safe_softmax.default")
def softmax(ctx: Context, x: Value, dim: int, dtype=None, half_to_float: bool = False) -> Value:
    return ctx.emit(g.Softmax(axis_of(x, dim)), ctx.cast(x, ctx.dtype))


@rule("log_softmax.int", "_log_softmax.default")
def log_softmax(ctx: Context, x: Value, dim: int, dtype=None, half_to_float: bool = False) -> Value:
    return ctx.emit(g.LogSoftmax(axis_of(x, dim)), ctx.cast(x, ctx.dtype))


@rule("scaled_dot_product_attention.default", "_scaled_dot_product_flash_attention_for_cpu.default",
      "_scaled_dot_product_attention_math.default")
def attention(ctx: Context, query: Value, key: Value, value: Value, attn_mask: Value | None = None,
              dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
              dropout_mask: Value | None = None):
    if dropout_p:
        raise Refused(f"with dropout_p={dropout_p}: call model.eval() first")
    several = isinstance(ctx.result, list | tuple)
    lead = ctx.shape[:-2]
    scale = scale if scale is not None else 1 / math.sqrt(query.type.shape[-1])
    q, k, v = (_four_axes(ctx, t) for t in (query, key, value))
    operands = [q, k, v]
    if attn_mask is not None:
        operands.append(_mask(ctx, attn_mask, lead, q, k))
    result = ctx.emit(g.Attention(scale=scale, causal=is_causal, has_mask=attn_mask is not None), *operands)
    result = ctx.reshape(result, ctx.shape)
    return (result, *(_BACKWARD_ONLY for _ in ctx.result[1:])) if several else result


def _four_axes(ctx: Context, x: Value) -> Value:
    """`x` as [batch, heads, sequence, features]: leading axes beyond two are joined, missing ones added."""
    *lead, rows, columns = x.type.shape
    if len(lead) <= 2:
        return ctx.reshape(x, ((1,) * (2 - len(lead))) + tuple(x.type.shape))
    return ctx.reshape(x, (math.prod(lead[:-1]), lead[-1], rows, columns))


def _mask(ctx: Context, mask: Value, lead: Sequence[int], q: Value, k: Value) -> Value:
    """The mask with axes that broadcast against [batch, heads, queries, keys]."""
    if mask.type.dtype.kind != "bool":
        mask = ctx.cast(mask, q.type.dtype)
    if rank(mask) <= 4 and len(lead) <= 2:
        return mask
    whole = (*lead, q.type.shape[2], k.type.shape[2])
    return _four_axes(ctx, ctx.broadcast(mask, whole))
