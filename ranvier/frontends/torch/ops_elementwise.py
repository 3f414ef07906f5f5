"""Rules for elementwise operators: arithmetic, comparison, selection, activations."""

from __future__ import annotations

import math

import torch

from ranvier import dtypes
from ranvier import graph as g
from ranvier.frontends.torch.rules import Context, Refused, RuleTable, rank
from ranvier.frontends.torch.tensors import to_torch_dtype
from ranvier.graph import Value

ELEMENTWISE = RuleTable()
rule = ELEMENTWISE.rule

Number = float | int | bool

# ATen name -> kind of `Unary`. The result has the dtype torch computes in, so integers become floats where it does.
_UNARY = {
    "abs": "abs", "neg": "neg", "exp": "exp", "log": "log", "log1p": "log1p", "expm1": "expm1", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "reciprocal": "reciprocal", "square": "square", "tanh": "tanh", "sigmoid": "sigmoid",
    "erf": "erf", "sin": "sin", "cos": "cos", "relu": "relu", "sign": "sign", "sgn": "sign", "floor": "floor",
    "ceil": "ceil", "round": "round", "trunc": "trunc", "bitwise_not": "bitwise_not", "absolute": "abs",
    "negative": "neg", "special_erf": "erf", "special_expm1": "expm1", "fix": "trunc",
}
# Predicates look at the operand as it is.
_PREDICATES = {"logical_not": "logical_not", "isnan": "isnan", "isinf": "isinf"}
_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
# Operators whose operands are cast to the dtype of the result.
_BINARY = {
    "mul.Tensor": "mul", "mul.Scalar": "mul", "div.Tensor": "div", "div.Scalar": "div", "true_divide.Tensor": "div",
    "maximum": "maximum", "minimum": "minimum", "max.other": "maximum", "min.other": "minimum",
    "remainder.Tensor": "mod", "remainder.Scalar": "mod", "fmod.Tensor": "fmod", "fmod.Scalar": "fmod",
    "floor_divide": "floor_div", "floor_divide.Scalar": "floor_div", "atan2": "atan2",
    "bitwise_and.Tensor": "bitwise_and", "bitwise_and.Scalar": "bitwise_and", "bitwise_or.Tensor": "bitwise_or",
    "bitwise_or.Scalar": "bitwise_or", "bitwise_xor.Tensor": "bitwise_xor", "bitwise_xor.Scalar": "bitwise_xor",
    "__and__.Tensor": "bitwise_and", "__and__.Scalar": "bitwise_and", "__or__.Tensor": "bitwise_or",
    "__or__.Scalar": "bitwise_or", "__xor__.Tensor": "bitwise_xor", "__xor__.Scalar": "bitwise_xor",
    "bitwise_left_shift.Tensor": "left_shift", "bitwise_right_shift.Tensor": "right_shift",
    "bitwise_left_shift.Tensor_Scalar": "left_shift", "bitwise_right_shift.Tensor_Scalar": "right_shift",
    "__lshift__.Scalar": "left_shift", "__rshift__.Scalar": "right_shift",
}
_LOGICAL = {"logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor"}


def _overload(name: str) -> str:
    return name if "." in name else f"{name}.default"


def _unary(kind: str):
    def apply(ctx: Context, x: Value) -> Value:
        if kind == "bitwise_not" and ctx.dtype is dtypes.bool_:
            return ctx.unary("logical_not", x)
        if x.type.dtype.is_integer and kind in ("floor", "ceil", "round", "trunc"):
            return x
        return ctx.unary(kind, ctx.cast(x, ctx.dtype))

    return apply


def _predicate(kind: str):
    def apply(ctx: Context, x: Value) -> Value:
        if kind != "logical_not" and not x.type.dtype.is_float:
            return ctx.emit(g.Full(x.type.shape, False, dtypes.bool_))
        return ctx.unary(kind, x if kind != "logical_not" else ctx.cast(x, dtypes.bool_))

    return apply


# On truth values these mean the logical operators, which more is known about.
_OF_TRUTH = {"mul": "logical_and", "bitwise_and": "logical_and", "bitwise_or": "logical_or",
             "bitwise_xor": "logical_xor"}


def _binary(kind: str):
    def apply(ctx: Context, x: Value, other: Value | Number) -> Value:
        chosen = _OF_TRUTH.get(kind, kind) if ctx.dtype is dtypes.bool_ else kind
        return ctx.emit(g.Binary(chosen), ctx.operand(x, ctx.dtype), ctx.operand(other, ctx.dtype))

    return apply


def _logical(kind: str):
    def apply(ctx: Context, x: Value, other: Value) -> Value:
        return ctx.emit(g.Binary(kind), ctx.cast(x, dtypes.bool_), ctx.cast(other, dtypes.bool_))

    return apply


def _compare(kind: str):
    def apply(ctx: Context, x: Value, other: Value | Number) -> Value:
        dtype = ctx.promoted(x, other)
        return ctx.emit(g.Compare(kind), ctx.operand(x, dtype), ctx.operand(other, dtype))

    return apply


for _name, _kind in _UNARY.items():
    ELEMENTWISE.add(_overload(_name), _unary(_kind), kind=_kind)
for _name, _kind in _PREDICATES.items():
    ELEMENTWISE.add(_overload(_name), _predicate(_kind), kind=_kind)
for _name, _kind in _BINARY.items():
    ELEMENTWISE.add(_overload(_name), _binary(_kind), kind=_kind)
for _name, _kind in _LOGICAL.items():
    ELEMENTWISE.add(_overload(_name), _logical(_kind), kind=_kind)
for _name, _kind in _COMPARE.items():
    ELEMENTWISE.add(f"{_name}.Tensor", _compare(_kind), kind=_kind)
    ELEMENTWISE.add(f"{_name}.Scalar", _compare(_kind), kind=_kind)


def _sum_kind(ctx: Context, kind: str, x: Value | Number, other: Value | Number, alpha: Number) -> Value:
    left, right = ctx.operand(x, ctx.dtype), ctx.operand(other, ctx.dtype)
    if alpha != 1:
        right = ctx.binary("mul", right, alpha)
    if ctx.dtype is dtypes.bool_ and kind == "add":
        return ctx.emit(g.Binary("logical_or"), left, right)
    return ctx.emit(g.Binary(kind), left, right)


@rule("add.Tensor", "add.Scalar")
def add(ctx: Context, x: Value, other: Value | Number, alpha: Number = 1) -> Value:
    return _sum_kind(ctx, "add", x, other, alpha)


@rule("sub.Tensor", "sub.Scalar", "subtract.Tensor")
def sub(ctx: Context, x: Value, other: Value | Number, alpha: Number = 1) -> Value:
    return _sum_kind(ctx, "sub", x, other, alpha)


@rule("rsub.Tensor", "rsub.Scalar")
def rsub(ctx: Context, x: Value, other: Value | Number, alpha: Number = 1) -> Value:
    return _sum_kind(ctx, "sub", other, x, alpha)


@rule("div.Tensor_mode", "div.Scalar_mode")
def div_mode(ctx: Context, x: Value, other: Value | Number, rounding_mode: str | None) -> Value:
    left, right = ctx.operand(x, ctx.dtype), ctx.operand(other, ctx.dtype)
    if rounding_mode == "floor":
        return ctx.emit(g.Binary("floor_div"), left, right)
    if rounding_mode is None:
        return ctx.emit(g.Binary("div"), left, right)
    if ctx.dtype.is_float:
        return ctx.unary("trunc", ctx.emit(g.Binary("div"), left, right))
    # Integers: floor of the magnitudes, then the sign, is truncation and stays exact.
    quotient = ctx.emit(g.Binary("floor_div"), ctx.unary("abs", left), ctx.unary("abs", right))
    return ctx.emit(g.Binary("mul"), quotient, ctx.emit(g.Binary("mul"), ctx.unary("sign", left),
                                                        ctx.unary("sign", right)))


@rule("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(ctx: Context, x: Value | Number, exponent: Value | Number) -> Value:
    base = ctx.operand(x, ctx.dtype)
    if isinstance(exponent, int | float) and ctx.dtype.is_float:
        simple = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(exponent)
        if simple:
            return ctx.unary(simple, base)
        if exponent == 1:
            return base
    return ctx.emit(g.Binary("pow"), base, ctx.operand(exponent, ctx.dtype))


@rule("lerp.Scalar", "lerp.Tensor")
def lerp(ctx: Context, x: Value, end: Value, weight: Value | Number) -> Value:
    step = ctx.binary("mul", ctx.binary("sub", end, x), weight)
    return ctx.binary("add", x, step)


@rule("addcmul.default")
def addcmul(ctx: Context, x: Value, tensor1: Value, tensor2: Value, value: Number = 1) -> Value:
    product = ctx.binary("mul", ctx.cast(tensor1, ctx.dtype), ctx.cast(tensor2, ctx.dtype))
    return _sum_kind(ctx, "add", x, product, value)


@rule("addcdiv.default")
def addcdiv(ctx: Context, x: Value, tensor1: Value, tensor2: Value, value: Number = 1) -> Value:
    quotient = ctx.binary("div", ctx.cast(tensor1, ctx.dtype), ctx.cast(tensor2, ctx.dtype))
    return _sum_kind(ctx, "add", x, quotient, value)


@rule("clamp.default", "clamp_min.default", "clamp_max.default", "clip.default")
def clamp(ctx: Context, x: Value, min: Number | None = None, max: Number | None = None) -> Value:
    x = ctx.cast(x, ctx.dtype)
    low, high = (v if v is None or ctx.dtype.is_integer else float(v) for v in (min, max))
    return ctx.emit(g.Clamp(low, high), x)


@rule("clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor")
def clamp_tensor(ctx: Context, x: Value, min: Value | None = None, max: Value | None = None) -> Value:
    x = ctx.cast(x, ctx.dtype)
    if min is not None:
        x = ctx.emit(g.Binary("maximum"), x, ctx.cast(min, ctx.dtype))
    return x if max is None else ctx.emit(g.Binary("minimum"), x, ctx.cast(max, ctx.dtype))


@rule("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(ctx: Context, condition: Value, x: Value | Number, other: Value | Number) -> Value:
    keep = ctx.cast(condition, dtypes.bool_)
    return ctx.emit(g.Select(), keep, ctx.operand(x, ctx.dtype), ctx.operand(other, ctx.dtype))


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(ctx: Context, x: Value, mask: Value, value: Value | Number) -> Value:
    return ctx.emit(g.Select(), mask, ctx.operand(value, ctx.dtype), x)


@rule("isfinite.default")
def isfinite(ctx: Context, x: Value) -> Value:
    if not x.type.dtype.is_float:
        return ctx.emit(g.Full(x.type.shape, True, dtypes.bool_))
    return ctx.unary("logical_not", ctx.emit(g.Binary("logical_or"), ctx.unary("isnan", x), ctx.unary("isinf", x)))


@rule("nan_to_num.default")
def nan_to_num(ctx: Context, x: Value, nan: float | None, posinf: float | None, neginf: float | None) -> Value:
    if not x.type.dtype.is_float:
        return x
    largest = torch.finfo(to_torch_dtype(ctx.dtype)).max
    zero = ctx.scalar(0.0, ctx.dtype)
    is_inf, positive = ctx.unary("isinf", x), ctx.emit(g.Compare("gt"), x, zero)
    infinity = ctx.emit(g.Select(), positive, ctx.scalar(largest if posinf is None else posinf, ctx.dtype),
                        ctx.scalar(-largest if neginf is None else neginf, ctx.dtype))
    finite = ctx.emit(g.Select(), is_inf, infinity, x)
    return ctx.emit(g.Select(), ctx.unary("isnan", x), ctx.scalar(nan or 0.0, ctx.dtype), finite)


# Functions that are one step away from a graph operation -------------------------------------------------------------


def _scaled(kind: str, before: float = 1.0, after: float = 1.0):
    def apply(ctx: Context, x: Value) -> Value:
        x = ctx.cast(x, ctx.dtype)
        if before != 1.0:
            x = ctx.binary("mul", x, before)
        x = ctx.unary(kind, x)
        return x if after == 1.0 else ctx.binary("mul", x, after)

    return apply


ELEMENTWISE.add("exp2.default", _scaled("exp", before=math.log(2)), kind="exp")
ELEMENTWISE.add("log2.default", _scaled("log", after=1 / math.log(2)), kind="log")
ELEMENTWISE.add("log10.default", _scaled("log", after=1 / math.log(10)), kind="log")


@rule("tan.default")
def tan(ctx: Context, x: Value) -> Value:
    x = ctx.cast(x, ctx.dtype)
    return ctx.binary("div", ctx.unary("sin", x), ctx.unary("cos", x))


@rule("erfc.default")
def erfc(ctx: Context, x: Value) -> Value:
    x = ctx.cast(x, ctx.dtype)
    return ctx.emit(g.Binary("sub"), ctx.scalar(1.0, ctx.dtype), ctx.unary("erf", x))


# Activations ---------------------------------------------------------------------------------------------------------


@rule("gelu.default")
def gelu(ctx: Context, x: Value, approximate: str = "none") -> Value:
    return ctx.emit(g.Gelu(approximate), x)


@rule("silu.default")
def silu(ctx: Context, x: Value) -> Value:
    return ctx.emit(g.Silu(), x)


@rule("relu6.default")
def relu6(ctx: Context, x: Value) -> Value:
    return ctx.emit(g.Clamp(0.0, 6.0), x)


@rule("hardtanh.default")
def hardtanh(ctx: Context, x: Value, min_val: Number = -1, max_val: Number = 1) -> Value:
    return ctx.emit(g.Clamp(float(min_val), float(max_val)), x)


@rule("hardsigmoid.default")
def hardsigmoid(ctx: Context, x: Value) -> Value:
    return ctx.binary("div", ctx.emit(g.Clamp(0.0, 6.0), ctx.binary("add", x, 3.0)), 6.0)


@rule("hardswish.default")
def hardswish(ctx: Context, x: Value) -> Value:
    return ctx.binary("mul", x, hardsigmoid(ctx, x))


@rule("leaky_relu.default")
def leaky_relu(ctx: Context, x: Value, negative_slope: Number = 0.01) -> Value:
    positive = ctx.emit(g.Compare("gt"), x, ctx.scalar(0.0, ctx.dtype))
    return ctx.emit(g.Select(), positive, x, ctx.binary("mul", x, negative_slope))


@rule("prelu.default", "_prelu_kernel.default")
def prelu(ctx: Context, x: Value, weight: Value) -> Value:
    if rank(weight) == 1 and rank(x) > 1:
        weight = ctx.reshape(weight, (1, weight.type.shape[0], *(1,) * (rank(x) - 2)))
    positive = ctx.emit(g.Compare("gt"), x, ctx.scalar(0.0, ctx.dtype))
    return ctx.emit(g.Select(), positive, x, ctx.binary("mul", x, weight))


@rule("elu.default")
def elu(ctx: Context, x: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Value:
    positive = ctx.emit(g.Compare("gt"), x, ctx.scalar(0.0, ctx.dtype))
    inner = x if input_scale == 1 else ctx.binary("mul", x, input_scale)
    negative = ctx.unary("expm1", ctx.emit(g.Clamp(None, 0.0), inner))
    if alpha * scale != 1:
        negative = ctx.binary("mul", negative, alpha * scale)
    return ctx.emit(g.Select(), positive, x if scale == 1 else ctx.binary("mul", x, scale), negative)


@rule("softplus.default")
def softplus(ctx: Context, x: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    scaled = x if beta == 1 else ctx.binary("mul", x, beta)
    linear = ctx.emit(g.Compare("gt"), scaled, ctx.scalar(float(threshold), ctx.dtype))
    curve = ctx.unary("log1p", ctx.unary("exp", ctx.emit(g.Clamp(None, float(threshold)), scaled)))
    return ctx.emit(g.Select(), linear, x, curve if beta == 1 else ctx.binary("div", curve, beta))


@rule("log_sigmoid.default", note="min(x, 0) - log1p(exp(-|x|)), which does not overflow")
def log_sigmoid(ctx: Context, x: Value) -> Value:
    tail = ctx.unary("log1p", ctx.unary("exp", ctx.unary("neg", ctx.unary("abs", x))))
    return ctx.binary("sub", ctx.emit(g.Clamp(None, 0.0), x), tail)


@rule("mish.default")
def mish(ctx: Context, x: Value) -> Value:
    return ctx.binary("mul", x, ctx.unary("tanh", softplus(ctx, x)))


@rule("glu.default")
def glu(ctx: Context, x: Value, dim: int = -1) -> Value:
    axis = dim % rank(x)
    half = x.type.shape[axis] // 2
    gate = ctx.unary("sigmoid", ctx.slice(x, axis, half, 2 * half))
    return ctx.binary("mul", ctx.slice(x, axis, 0, half), gate)


@rule("dropout.default", "native_dropout.default", "feature_dropout.default", note="the identity in inference")
def dropout(ctx: Context, input: Value, p: float, train: bool | None):
    if train and p:
        raise Refused(f"with p={p} in training mode: call model.eval() first")
    return (input, ctx.emit(g.Full(input.type.shape, True, dtypes.bool_))) if isinstance(ctx.result, tuple) else input
