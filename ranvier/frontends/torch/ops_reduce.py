"""Rules for reductions, scans and ordering: sum, mean, max, var, norm, argmax, cumsum, topk, sort."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ranvier import dtypes
from ranvier import graph as g
from ranvier.frontends.torch.rules import Context, RuleTable, axes_of, axis_of, rank
from ranvier.graph import Value

REDUCE = RuleTable()
rule = REDUCE.rule

Axes = Sequence[int] | int | None


def _reduce(ctx: Context, kind: str, x: Value, dim: Axes, keepdim: bool) -> Value:
    axes = axes_of(x, dim)
    if not axes:
        return x
    return ctx.emit(g.Reduce(kind, axes, keepdim), x)


def _cast_first(kind: str):
    def apply(ctx: Context, x: Value, dim: Axes = None, keepdim: bool = False, dtype=None) -> Value:
        return _reduce(ctx, kind, ctx.cast(x, ctx.dtype), dim, keepdim)

    return apply


def _truth(kind: str):
    def apply(ctx: Context, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
        return ctx.cast(_reduce(ctx, kind, ctx.cast(x, dtypes.bool_), dim, keepdim), ctx.dtype)

    return apply


for _name, _kind in {"sum.default": "sum", "sum.dim_IntList": "sum", "mean.default": "mean", "mean.dim": "mean",
                     "amax.default": "max", "amin.default": "min", "max.default": "max", "min.default": "min",
                     "prod.default": "prod", "prod.dim_int": "prod"}.items():
    REDUCE.add(_name, _cast_first(_kind), kind=_kind)
for _name in ("default", "dim", "dims"):
    REDUCE.add(f"any.{_name}", _truth("any"), kind="any")
    REDUCE.add(f"all.{_name}", _truth("all"), kind="all")


def _with_index(kind: str):
    def apply(ctx: Context, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        if rank(x) == 0:
            return x, ctx.emit(g.Full((), 0, dtypes.int64))
        index = ctx.emit(g.ArgReduce(f"arg{kind}", axis_of(x, dim), keepdim), x)
        return _reduce(ctx, kind, x, dim, keepdim), index

    return apply


def _arg(kind: str):
    def apply(ctx: Context, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        if dim is None:
            flat = ctx.reshape(x, (math.prod(x.type.shape),))
            return ctx.reshape(ctx.emit(g.ArgReduce(kind, 0, False), flat), ctx.shape)
        return ctx.emit(g.ArgReduce(kind, axis_of(x, dim), keepdim), x)

    return apply


for _kind in ("max", "min"):
    REDUCE.add(f"{_kind}.dim", _with_index(_kind), kind=_kind)
    REDUCE.add(f"arg{_kind}.default", _arg(f"arg{_kind}"), kind=f"arg{_kind}")


@rule("count_nonzero.default", "count_nonzero.dim_IntList")
def count_nonzero(ctx: Context, x: Value, dim: Axes = None) -> Value:
    return _reduce(ctx, "sum", ctx.cast(ctx.cast(x, dtypes.bool_), ctx.dtype), dim, False)


@rule("logsumexp.default")
def logsumexp(ctx: Context, x: Value, dim: Axes, keepdim: bool = False) -> Value:
    x = ctx.cast(x, ctx.dtype)
    top = _reduce(ctx, "max", x, dim, True)
    # Where everything is infinite the maximum is, and subtracting it would give NaN.
    top = ctx.emit(g.Select(), ctx.unary("isinf", top), ctx.scalar(0.0, ctx.dtype), top)
    total = _reduce(ctx, "sum", ctx.unary("exp", ctx.binary("sub", x, top)), dim, True)
    return ctx.reshape(ctx.binary("add", ctx.unary("log", total), top), ctx.shape)


def _variance(ctx: Context, x: Value, dim: Axes, correction: float, keepdim: bool) -> tuple[Value, Value]:
    """Variance (around the mean, in two passes, which cannot cancel) and mean."""
    axes = axes_of(x, dim)
    count = math.prod(x.type.shape[a] for a in axes)
    mean = _reduce(ctx, "mean", x, axes, True)
    square = ctx.unary("square", ctx.binary("sub", x, mean))
    total = _reduce(ctx, "sum", square, axes, keepdim)
    freedom = max(0.0, count - correction)
    scale = 1 / freedom if freedom else math.inf
    variance = ctx.binary("mul", total, scale)
    if not keepdim:
        mean = ctx.reshape(mean, tuple(n for a, n in enumerate(x.type.shape) if a not in axes))
    return variance, mean


def _correction(correction: float | None, unbiased: bool) -> float:
    if correction is None:
        return 1.0 if unbiased else 0.0
    return float(correction)


@rule("var.correction", "var.dim", "var.default")
def var(ctx: Context, x: Value, dim: Axes = None, correction: float | None = None, keepdim: bool = False,
        unbiased: bool = True) -> Value:
    return _variance(ctx, x, dim, _correction(correction, unbiased), keepdim)[0]


@rule("std.correction", "std.dim", "std.default")
def std(ctx: Context, x: Value, dim: Axes = None, correction: float | None = None, keepdim: bool = False,
        unbiased: bool = True) -> Value:
    return ctx.unary("sqrt", _variance(ctx, x, dim, _correction(correction, unbiased), keepdim)[0])


@rule("var_mean.correction", "var_mean.dim")
def var_mean(ctx: Context, x: Value, dim: Axes = None, correction: float | None = None, keepdim: bool = False,
             unbiased: bool = True) -> tuple[Value, Value]:
    return _variance(ctx, x, dim, _correction(correction, unbiased), keepdim)


@rule("linalg_vector_norm.default", "norm.ScalarOpt_dim", "norm.Scalar", "norm.ScalarOpt_dim_dtype")
def vector_norm(ctx: Context, x: Value, ord: float | None = None, dim: Axes = None, keepdim: bool = False, dtype=None,
                p: float | None = None) -> Value:
    order = float(next((v for v in (ord, p) if v is not None), 2))
    x = ctx.cast(x, ctx.dtype)
    if order == 2:
        return ctx.unary("sqrt", _reduce(ctx, "sum", ctx.unary("square", x), dim, keepdim))
    size = ctx.unary("abs", x)
    if math.isinf(order):
        return _reduce(ctx, "max" if order > 0 else "min", size, dim, keepdim)
    if order == 1:
        return _reduce(ctx, "sum", size, dim, keepdim)
    if order == 0:
        return _reduce(ctx, "sum", ctx.cast(ctx.cast(x, dtypes.bool_), ctx.dtype), dim, keepdim)
    total = _reduce(ctx, "sum", ctx.binary("pow", size, order), dim, keepdim)
    return ctx.binary("pow", total, 1 / order)


@rule("cumsum.default")
def cumsum(ctx: Context, x: Value, dim: int, dtype=None) -> Value:
    x = ctx.cast(x, ctx.dtype)
    return ctx.emit(g.CumSum(axis_of(x, dim)), x) if rank(x) else x


@rule("topk.default", note="of equal values the first is taken")
def topk(ctx: Context, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True):
    return ctx.emit(g.TopK(k, axis_of(x, dim), largest), x)


@rule("sort.default", "sort.stable", note="always stable")
def sort(ctx: Context, x: Value, dim: int = -1, descending: bool = False, stable: bool | None = None):
    return ctx.emit(g.Sort(axis_of(x, dim), descending), x)


@rule("argsort.default", "argsort.stable", note="always stable")
def argsort(ctx: Context, x: Value, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Value:
    return sort(ctx, x, dim, descending)[1]
