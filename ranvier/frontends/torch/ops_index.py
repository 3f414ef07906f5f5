"""Rules for operators that create tensors and that pick elements by index."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from ranvier import dtypes
from ranvier import graph as g
from ranvier.frontends.torch.rules import Context, Refused, RuleTable, axis_of, rank
from ranvier.frontends.torch.tensors import to_numpy, to_torch_dtype
from ranvier.graph import Value

INDEX = RuleTable()
rule = INDEX.rule


# Creation ------------------------------------------------------------------------------------------------------------


@rule("full.default", "full_like.default", "new_full.default", "scalar_tensor.default", "fill.Scalar", "fill.Tensor")
def full(ctx: Context, x: Value | None = None, fill_value=None, value=None, s=None, dtype=None, size=None) -> Value:
    given = next(v for v in (fill_value, value, s) if v is not None)
    if isinstance(given, Value):
        return ctx.broadcast(ctx.cast(given, ctx.dtype), ctx.shape)
    return ctx.emit(g.Full(ctx.shape, given, ctx.dtype))


@rule("zeros.default", "zeros_like.default", "new_zeros.default", "zero.default")
def zeros(ctx: Context, x: Value | None = None, dtype=None, size=None) -> Value:
    return ctx.emit(g.Full(ctx.shape, 0, ctx.dtype))


@rule("empty.memory_format", "empty_like.default", "new_empty.default", "empty_strided.default",
      "empty_permuted.default", note="filled with zeros")
def empty(ctx: Context, x: Value | None = None, dtype=None, size=None, stride=None, physical_layout=None) -> Value:
    return ctx.emit(g.Full(ctx.shape, 0, ctx.dtype))


@rule("ones.default", "ones_like.default", "new_ones.default")
def ones(ctx: Context, x: Value | None = None, dtype=None, size=None) -> Value:
    return ctx.emit(g.Full(ctx.shape, 1, ctx.dtype))


def _table(ctx: Context, tensor: torch.Tensor) -> Value:
    if tensor.numel() * tensor.element_size() > g.CONSTANT_LIMIT_BYTES:
        raise Refused(f"with {tensor.numel()} elements, more than fit in a constant of {g.CONSTANT_LIMIT_BYTES} bytes")
    return ctx.builder.constant(to_numpy(tensor))


@rule("arange.default", "arange.start", "arange.start_step")
def arange(ctx: Context, end, start=0, step=1, dtype=None) -> Value:
    if ctx.dtype.is_float:
        return _table(ctx, torch.arange(start, end, step, dtype=to_torch_dtype(ctx.dtype)))
    counted = ctx.emit(g.Iota(ctx.shape, 0, ctx.dtype))
    if step != 1:
        counted = ctx.binary("mul", counted, step)
    return ctx.binary("add", counted, start) if start else counted


@rule("linspace.default")
def linspace(ctx: Context, start, end, steps: int, dtype=None) -> Value:
    return _table(ctx, torch.linspace(start, end, steps, dtype=to_torch_dtype(ctx.dtype)))


@rule("eye.default", "eye.m")
def eye(ctx: Context, n: int, m: int | None = None, dtype=None) -> Value:
    rows, columns = (ctx.emit(g.Iota(ctx.shape, axis, dtypes.int64)) for axis in (0, 1))
    return ctx.cast(ctx.emit(g.Compare("eq"), rows, columns), ctx.dtype)


def _triangle(ctx: Context, x: Value, diagonal: int, kind: str) -> Value:
    shape = x.type.shape[-2:]
    rows, columns = (ctx.emit(g.Iota(shape, axis, dtypes.int64)) for axis in (0, 1))
    if diagonal:
        rows = ctx.binary("add", rows, diagonal)
    return ctx.emit(g.Select(), ctx.emit(g.Compare(kind), rows, columns), x, ctx.scalar(0, ctx.dtype))


@rule("tril.default")
def tril(ctx: Context, x: Value, diagonal: int = 0) -> Value:
    return _triangle(ctx, x, diagonal, "ge")


@rule("triu.default")
def triu(ctx: Context, x: Value, diagonal: int = 0) -> Value:
    return _triangle(ctx, x, diagonal, "le")


@rule("one_hot.default")
def one_hot(ctx: Context, x: Value, num_classes: int = -1) -> Value:
    if num_classes < 0:
        raise Refused("without num_classes, which would depend on the data")
    classes = ctx.emit(g.Iota((num_classes,), 0, x.type.dtype))
    return ctx.cast(ctx.emit(g.Compare("eq"), ctx.reshape(x, (*x.type.shape, 1)), classes), ctx.dtype)


@rule("copy.default")
def copy(ctx: Context, x: Value, src: Value) -> Value:
    return ctx.broadcast(ctx.cast(src, ctx.dtype), ctx.shape)


# Indexing ------------------------------------------------------------------------------------------------------------


def _taken(ctx: Context, x: Value, axis: int, index: Value) -> Value:
    """Slices of `x` along `axis` at `index`: a gather, unless the places are known and follow on each other."""
    before, after = x.type.shape[:axis], x.type.shape[axis + 1 :]
    shape = (*before, *index.type.shape, *after)
    made = ctx.known.node(index)
    if made is not None and isinstance(made.op, g.Broadcast):  # look up once, then repeat
        few = ctx.reshape(made.inputs[0], (1,) * (rank(index) - rank(made.inputs[0])) + made.inputs[0].type.shape)
        return ctx.broadcast(_taken(ctx, x, axis, few), shape)
    places = ctx.known.array(index)
    if places is not None and places.size and places.min() >= 0 and places.max() < x.type.shape[axis]:
        first, count = int(places.flat[0]), places.size
        if (places.ravel() == first + np.arange(count)).all():
            return ctx.reshape(ctx.slice(x, axis, first, first + count), shape)
        if (places == first).all():
            one = ctx.slice(x, axis, first, first + 1)
            return ctx.broadcast(ctx.reshape(one, (*before, *(1,) * rank(index), *after)), shape)
    return ctx.emit(g.Take(axis), x, index)


@rule("embedding.default")
def embedding(ctx: Context, weight: Value, indices: Value) -> Value:
    return _taken(ctx, weight, 0, indices)


@rule("index_select.default")
def index_select(ctx: Context, x: Value, dim: int, index: Value) -> Value:
    if not rank(x):
        return x
    return _taken(ctx, x, axis_of(x, dim), ctx.reshape(index, (math.prod(index.type.shape),)))


def _counted_from_start(ctx: Context, index: Value, size: int) -> Value:
    """`index` with negative values, which count from the end, turned into places."""
    known = ctx.known.array(index)
    if index.type.dtype.kind == "uint" or (known is not None and (known >= 0).all()):
        return index
    negative = ctx.emit(g.Compare("lt"), index, ctx.scalar(0, index.type.dtype))
    return ctx.emit(g.Select(), negative, ctx.binary("add", index, size), index)


@rule("index.Tensor", "_unsafe_index.Tensor", note="integer indices on any axes; boolean masks are data-dependent")
def index(ctx: Context, x: Value, indices: Sequence[Value | None]) -> Value:
    axes = [a for a, i in enumerate(indices) if i is not None]
    picks = [i for i in indices if i is not None]
    if any(i.type.dtype.kind == "bool" for i in picks):
        raise Refused("with a boolean mask, whose result has a data-dependent shape: use torch.where")
    if not axes:
        return x
    if axes != list(range(axes[0], axes[0] + len(axes))):  # torch then puts the indexed axes first
        x = ctx.transpose(x, (*axes, *(a for a in range(rank(x)) if a not in axes)))
        axes = list(range(len(axes)))
    picks = [_counted_from_start(ctx, pick, x.type.shape[a]) for a, pick in zip(axes, picks, strict=True)]
    blocked = _block(ctx, x, axes[0], picks)
    if blocked is not None:
        return blocked
    shape = x.type.shape
    sizes = [shape[a] for a in axes]
    merged = ctx.reshape(x, (*shape[: axes[0]], math.prod(sizes), *shape[axes[-1] + 1 :]))
    return _taken(ctx, merged, axes[0], _place(ctx, picks, sizes))


def _place(ctx: Context, picks: Sequence[Value], sizes: Sequence[int]) -> Value:
    """One index into axes of `sizes` joined to one, from an index into each."""
    place = picks[0]
    for pick, size in zip(picks[1:], sizes[1:], strict=True):
        place = ctx.binary("mul", ctx.cast(place, dtypes.int64), size)
        place = ctx.binary("add", place, ctx.cast(pick, dtypes.int64))
    return place


def _block(ctx: Context, x: Value, first: int, picks: Sequence[Value]) -> Value | None:
    """``x[..., picks]``, from axis `first` on, as slices if each pick counts along an axis of its own; None if not."""
    width = max(rank(pick) for pick in picks)
    along: list[int] = []  # for each pick the axis of the picks' common shape that it counts along
    for number, pick in enumerate(picks):
        places, size = ctx.known.array(pick), x.type.shape[first + number]
        if places is None or not places.size or places.min() < 0 or places.max() >= size:
            return None
        long = [width - rank(pick) + a for a, n in enumerate(places.shape) if n > 1]
        start = int(places.flat[0])
        if len(long) > 1 or (places.ravel() != start + np.arange(places.size)).any():
            return None
        x = ctx.slice(x, first + number, start, start + places.size)
        along += long or [-1]
    counted = [a for a in along if a >= 0]
    if len(set(counted)) != len(counted):
        return None
    order = sorted(range(len(picks)), key=lambda i: along[i])
    perm = [*range(first), *(first + i for i in order), *range(first + len(picks), rank(x))]
    return ctx.reshape(ctx.transpose(x, perm), ctx.shape)


@rule("gather.default")
def gather(ctx: Context, x: Value, dim: int, index: Value) -> Value:
    if not rank(x):
        return x
    return ctx.emit(g.TakeAlong(axis_of(x, dim)), x, index)


def _scatter(ctx: Context, kind: str, x: Value, dim: int, index: Value, src: Value) -> Value:
    for a, size in enumerate(index.type.shape):  # torch reads only the part of src that the index covers
        src = ctx.slice(src, a, 0, size)
    return ctx.emit(g.ScatterAlong(axis_of(x, dim), kind), x, index, src)


@rule("scatter.src")
def scatter(ctx: Context, x: Value, dim: int, index: Value, src: Value) -> Value:
    return _scatter(ctx, "set", x, dim, index, src)


@rule("scatter_add.default")
def scatter_add(ctx: Context, x: Value, dim: int, index: Value, src: Value) -> Value:
    return _scatter(ctx, "add", x, dim, index, src)


@rule("scatter.value")
def scatter_value(ctx: Context, x: Value, dim: int, index: Value, value: float | int) -> Value:
    return _scatter(ctx, "set", x, dim, index, ctx.emit(g.Full(index.type.shape, value, x.type.dtype)))


@rule("index_put.default", "_unsafe_index_put.default", note="integer indices, or one boolean mask and a single value")
def index_put(ctx: Context, x: Value, indices: Sequence[Value | None], values: Value,
              accumulate: bool = False) -> Value:
    axes = [a for a, i in enumerate(indices) if i is not None]
    picks = [i for i in indices if i is not None]
    values = ctx.cast(values, ctx.dtype)
    if any(pick.type.dtype.kind == "bool" for pick in picks):
        if accumulate or len(indices) > 1 or math.prod(values.type.shape) != 1:
            raise Refused("with a boolean mask, in a form other than x[mask] = value")
        mask = ctx.reshape(picks[0], (*picks[0].type.shape, *(1,) * (rank(x) - rank(picks[0]))))
        return ctx.emit(g.Select(), mask, ctx.reshape(values, ()), x)
    sizes = [x.type.shape[a] for a in axes]
    place = _place(ctx, [_counted_from_start(ctx, p, n) for p, n in zip(picks, sizes, strict=True)], sizes)
    rest = [a for a in range(rank(x)) if a not in axes]
    # The rows that are written come first: x as [places, rest], values as [picked, rest].
    moved = ctx.transpose(x, (*axes, *rest))
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    rest_shape, picked = [x.type.shape[a] for a in rest], place.type.shape
    values = ctx.broadcast(values, (*rest_shape[:first], *picked, *rest_shape[first:]))
    values = ctx.transpose(values, (*range(first, first + len(picked)), *range(first),
                                    *range(first + len(picked), rank(values))))
    count, width = math.prod(picked), math.prod(rest_shape)
    rows = ctx.broadcast(ctx.reshape(place, (count, 1)), (count, width))
    flat = ctx.reshape(moved, (math.prod(sizes), width))
    op = g.ScatterAlong(0, "add" if accumulate else "set")
    written = ctx.emit(op, flat, rows, ctx.reshape(values, (count, width)))
    back = sorted(range(rank(x)), key=(*axes, *rest).__getitem__)
    return ctx.transpose(ctx.reshape(written, moved.type.shape), back)


def _along(ctx: Context, x: Value, axis: int, index: Value) -> Value:
    """A list of places along `axis`, repeated to the shape of `x`."""
    column = (*(1,) * axis, math.prod(index.type.shape), *(1,) * (rank(x) - axis - 1))
    return ctx.broadcast(ctx.reshape(index, column), x.type.shape)


@rule("index_copy.default")
def index_copy(ctx: Context, x: Value, dim: int, index: Value, source: Value) -> Value:
    axis = axis_of(x, dim)
    return ctx.emit(g.ScatterAlong(axis, "set"), x, _along(ctx, source, axis, index), source)


@rule("index_add.default")
def index_add(ctx: Context, x: Value, dim: int, index: Value, source: Value, alpha: float = 1) -> Value:
    axis = axis_of(x, dim)
    source = source if alpha == 1 else ctx.binary("mul", source, alpha)
    return ctx.emit(g.ScatterAlong(axis, "add"), x, _along(ctx, source, axis, index), source)


# Resampling: each output coordinate is a fixed mixture of input coordinates ------------------------------------------


def resample(ctx: Context, x: Value, axis: int, weights: np.ndarray) -> Value:
    """`x` with `axis` of size n replaced by one of size m: the products with `weights`, an array of shape [n, m]."""
    exact = np.float64 if ctx.dtype is dtypes.float64 else np.float32
    matrix = ctx.cast(_table(ctx, torch.from_numpy(weights.astype(exact))), ctx.dtype)
    last = rank(x) - 1
    perm = list(range(rank(x)))
    perm[axis], perm[last] = perm[last], perm[axis]
    return ctx.transpose(ctx.emit(g.MatMul(), ctx.transpose(x, perm), matrix), perm)


def _source_coordinates(size: int, out: int, scale: float | None, align_corners: bool) -> np.ndarray:
    if align_corners:
        return np.arange(out) * ((size - 1) / (out - 1) if out > 1 else 0.0)
    step = 1 / scale if scale else size / out
    return np.maximum((np.arange(out) + 0.5) * step - 0.5, 0.0)


def _upsampled_axes(ctx: Context, scales: Sequence[float | None] | None) -> list[tuple[int, int, float | None]]:
    spatial = len(ctx.shape) - 2
    scales = list(scales) if scales else [None] * spatial
    return [(2 + i, ctx.shape[2 + i], scales[i]) for i in range(spatial)]


@rule("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest2d.default", "upsample_nearest1d.default")
def upsample_nearest(ctx: Context, input: Value | None = None, x: Value | None = None, output_size=None,
                     scale_factors=None, scales_h=None, scales_w=None, scales=None) -> Value:
    value = input if input is not None else x
    assert value is not None
    given = scale_factors or ([scales_h, scales_w] if len(ctx.shape) == 4 else [scales])
    for axis, out, scale in _upsampled_axes(ctx, given):
        size = value.type.shape[axis]
        if out == size:
            continue
        if out % size == 0:
            before, after = value.type.shape[:axis], value.type.shape[axis + 1 :]
            wide = ctx.broadcast(ctx.reshape(value, (*before, size, 1, *after)), (*before, size, out // size, *after))
            value = ctx.reshape(wide, (*before, out, *after))
        else:
            step = np.float32(1 / scale if scale else size / out)  # torch computes the places in float32
            places = np.minimum(np.floor(np.arange(out, dtype=np.float32) * step), size - 1)
            value = ctx.emit(g.Take(axis), value, ctx.builder.constant(places.astype(np.int64)))
    return value


@rule("upsample_bilinear2d.vec", "upsample_bilinear2d.default", "upsample_linear1d.vec")
def upsample_linear(ctx: Context, align_corners: bool, input: Value | None = None, x: Value | None = None,
                    output_size=None, scale_factors=None, scales_h=None, scales_w=None) -> Value:
    value = input if input is not None else x
    assert value is not None
    given = scale_factors or ([scales_h, scales_w] if len(ctx.shape) == 4 else None)
    for axis, out, scale in _upsampled_axes(ctx, given):
        size = value.type.shape[axis]
        if out == size:
            continue
        places = _source_coordinates(size, out, scale, align_corners)
        low = np.minimum(places.astype(np.int64), size - 1)
        fraction = places - low
        weights = np.zeros((size, out))
        weights[low, np.arange(out)] += 1 - fraction
        weights[np.minimum(low + 1, size - 1), np.arange(out)] += fraction
        value = resample(ctx, value, axis, weights)
    return value
