"""Random graphs whose results can be compared: every value's range is known, and whether it is exact.

Operations that jump (comparisons, rounding, order) are only applied to exact values: a difference in the last place
before a jump is a difference of one after it. A value is exact if it is a multiple of a power of two, small enough
for its dtype to hold it and every sum it is part of.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ranvier import dtypes as dt
from ranvier.dtypes import DType
from ranvier.graph import (
    ArgReduce,
    Attention,
    BatchNorm,
    Conv,
    Graph,
    GraphBuilder,
    GroupNorm,
    LogSoftmax,
    Pool,
    Reverse,
    Rope,
    ScatterAlong,
    Silu,
    Sort,
    TakeAlong,
    TensorType,
    TopK,
    Value,
)

EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 64, 100, 127, 128, 129, 200, 300, 513)
MOST_ELEMENTS = 1 << 16
LARGEST = 64.0
MOST_PRODUCTS = 100
_SIGNIFICANT = {"float32": 24, "bfloat16": 8, "float16": 11}


@dataclass(frozen=True)
class Known:
    """What is known of a value: the largest magnitude, and the power of two it is a multiple of (None: not exact)."""

    bound: float
    grid: int | None = None
    nonzero: bool = False


@dataclass(frozen=True)
class Case:
    """A graph with arrays for its inputs and parameters."""

    graph: Graph
    inputs: list[np.ndarray]
    params: dict[str, np.ndarray]


class Maker:
    """Builds one random graph. `r` makes the choices (hypothesis can shrink them), `seed` the data."""

    def __init__(self, r: random.Random, dtype: DType, seed: int = 0):
        self.r, self.dtype = r, dtype
        self.data = np.random.default_rng(seed)
        self.b = GraphBuilder("random")
        self.values: list[Value] = []
        self.known: dict[Value, Known] = {}
        self.inputs: list[np.ndarray] = []
        self.params: dict[str, np.ndarray] = {}

    # -- shapes and sources
    def extent(self) -> int:
        return self.r.choice(EXTENTS)

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        found: list[int] = []
        for _ in range(self.r.randint(low, high)):
            n = self.extent()
            found.append(n if math.prod(found) * n <= MOST_ELEMENTS else self.r.choice((1, 2, 3)))
        self.r.shuffle(found)
        return tuple(found) if math.prod(found) <= MOST_ELEMENTS else tuple(min(n, 17) for n in found)

    def part_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to `shape`."""
        cut = self.r.choice((0, 0, 1, 2, len(shape)))
        return tuple(1 if self.r.random() < 0.3 else n for n in shape[min(cut, len(shape)) :])

    def fresh(self, shape: tuple[int, ...], dtype: DType, high: int = 3) -> Value:
        """A new input, parameter or literal; floats are quarters from -2 to 2."""
        if dtype.is_float:
            array, known = self.data.integers(-8, 9, shape) / 4, Known(2.0, 2)
        elif dtype is dt.bool_:
            array, known = self.data.random(shape) < 0.6, Known(1, 0)
        else:
            low = 0 if dtype.kind == "uint" else -high
            array, known = self.data.integers(low, high + 1, shape), Known(high, 0)
        array = np.asarray(array).astype(dtype.np)
        kind, choice = TensorType(shape, dtype), self.r.random()
        if choice < 0.7:
            value = self.b.input(kind, f"x{len(self.inputs)}")
            self.inputs.append(array)
        elif choice < 0.9 and dtype.is_float:
            key = f"p{len(self.params)}"
            value = self.b.param(key, kind)
            self.params[key] = array
        elif array.nbytes < 4096 and self.dtype is not dt.bfloat16:  # literals are computed with early
            value = self.b.constant(array)
        else:
            value = self.b.input(kind, f"x{len(self.inputs)}")
            self.inputs.append(array)
        return self.keep(value, known)

    def keep(self, value: Value, known: Known) -> Value:
        if known.grid is not None and value.dtype.is_float:
            digits = _SIGNIFICANT[value.dtype.name]
            if known.bound * 2.0**known.grid > 2.0**digits:
                known = Known(known.bound)
        if known.bound > LARGEST and value.dtype.is_float:
            self.known[value] = known
            shrunk = self.b.clamp(value, -2.0, 2.0)
            known = Known(2.0, known.grid)
            self.known[shrunk] = known
            value = shrunk
        self.known[value] = known
        self.values.append(value)
        return value

    def pick(self, test: Callable[[Value], bool], shape: Callable[[], tuple[int, ...]], dtype: DType) -> Value:
        """A value for which `test` holds; if there is none, and sometimes anyway, a new one of `shape` and `dtype`."""
        fitting = [v for v in self.values if test(v)]
        if fitting and self.r.random() < 0.85:
            return self.r.choice(fitting[-6:])
        return self.fresh(shape(), dtype)

    def floats(self, low: int = 0, exact: bool = False) -> Value:
        def fits(v: Value) -> bool:
            return v.dtype is self.dtype and len(v.shape) >= low and (not exact or self.known[v].grid is not None)

        return self.pick(fits, lambda: self.shape(low), self.dtype)

    def partner(self, x: Value, exact: bool = False) -> Value:
        """A second operand for `x`: itself, a value of one of its parts' shapes, or a new one."""
        if self.r.random() < 0.1:
            return x
        shape = self.part_of(x.shape)
        fitting = [
            v for v in self.values
            if v.dtype is x.dtype and v.shape in (shape, x.shape) and (not exact or self.known[v].grid is not None)
        ]  # fmt: skip
        return self.r.choice(fitting) if fitting and self.r.random() < 0.6 else self.fresh(shape, x.dtype)

    def positive(self, x: Value) -> Value:
        return self.b.add(self.b.unary("abs", x), 0.5)

    def build(self) -> Case:
        made = [v for v in self.values if v in self.b_results()]
        r = self.r
        outputs = r.sample(made[-6:], min(len(made), r.randint(1, 3))) if made else []
        if r.random() < 0.05 or not outputs:
            outputs.append(r.choice(self.values))  # perhaps an input, perhaps one value twice
        return Case(self.b.build(outputs), self.inputs, self.params)

    def b_results(self) -> set[Value]:
        return {v for node in self.b.nodes for v in node.outputs}


# -- element-wise


SMOOTH = (
    "tanh", "sigmoid", "erf", "sin", "cos", "exp", "gelu", "gelu_tanh", "silu", "log", "sqrt", "rsqrt", "reciprocal",
    "expm1", "log1p",
)  # fmt: skip
INTEGER = (
    "add", "sub", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor", "abs", "neg", "relu",
    "square", "clamp", "left_shift", "right_shift", "floor_div", "mod", "fmod", "bitwise_not", "sign",
)  # fmt: skip


def smooth(m: Maker) -> None:
    x = m.floats()
    kind = m.r.choice(SMOOTH)
    b = m.b
    if kind in ("exp", "expm1"):
        x = b.clamp(x, -3.0, 3.0)
    if kind in ("log", "sqrt", "rsqrt", "reciprocal", "log1p"):
        x = m.positive(x)
    if kind == "gelu":
        y = b.gelu(x)
    elif kind == "gelu_tanh":
        y = b.gelu(x, "tanh")
    elif kind == "silu":
        y = b.emit(Silu(), x)
    else:
        y = b.unary(kind, x)
    m.keep(y, Known(max(21.0, m.known.get(x, Known(21.0)).bound)))


def linear_unary(m: Maker) -> None:
    x = m.floats()
    k = m.known[x]
    kind = m.r.choice(("neg", "abs", "relu", "square", "clamp"))
    if kind == "square":
        m.keep(m.b.square(x), Known(k.bound**2, None if k.grid is None else 2 * k.grid))
    elif kind == "clamp":
        low, high = m.r.choice(((None, 1.0), (-0.5, None), (-1.0, 1.5), (0.0, 6.0)))
        m.keep(m.b.clamp(x, low, high), Known(max(k.bound, 6.0), None if k.grid is None else max(1, k.grid)))
    else:
        m.keep(m.b.unary(kind, x), k)


def jumping_unary(m: Maker) -> None:
    x = m.floats(exact=True)
    kind = m.r.choice(("floor", "ceil", "round", "trunc", "sign"))
    m.keep(m.b.unary(kind, x), Known(m.known[x].bound + 1, 0))


def float_binary(m: Maker) -> None:
    kind = m.r.choice(("add", "sub", "mul", "maximum", "minimum", "div", "add", "mul", "pow"))
    x = m.floats()
    y = m.partner(x)
    if m.r.random() < 0.2:
        y = m.b.full((), m.r.choice((0.5, -1.0, 2.0, 3.0, 0.25)), m.dtype)
        m.known[y] = Known(3.0, 2)
    if m.r.random() < 0.5 and kind != "pow":  # a power of a number would be computed early, and rounded
        x, y = y, x
    k, n = m.known[x], m.known[y]
    grid = None if k.grid is None or n.grid is None else max(k.grid, n.grid)
    if kind == "div":
        m.keep(m.b.div(x, m.positive(y)), Known(2 * k.bound))
    elif kind == "pow":
        power = m.r.choice((0.5, -0.5, 1.5, 2.0, 3.0, -1.0, 4.0))
        m.keep(m.b.pow(m.b.clamp(m.positive(x), None, 2.0), power), Known(16.0))
    elif kind == "mul":
        both = None if k.grid is None or n.grid is None else k.grid + n.grid
        m.keep(m.b.mul(x, y), Known(k.bound * n.bound, both))
    else:
        m.keep(m.b.binary(kind, x, y), Known(k.bound + n.bound, grid))


def jumping_binary(m: Maker) -> None:
    kind = m.r.choice(("mod", "fmod", "floor_div", "atan2"))
    x = m.floats(exact=True)
    y = m.partner(x, exact=True)
    if kind == "atan2":
        m.keep(m.b.binary(kind, x, m.b.add(m.b.unary("abs", y), 0.25)), Known(3.2))
        return
    y = m.b.select(m.b.compare("eq", y, 0.0), 1.5, y)
    bound = m.known[x].bound * 4 if kind == "floor_div" else m.known[x].bound + 8
    m.keep(m.b.binary(kind, x, y), Known(bound, None if kind != "floor_div" else 0))


def integer(m: Maker) -> None:
    dtype = m.r.choice((dt.int32, dt.int32, dt.int64, dt.uint8, dt.int8))
    x = m.pick(lambda v: v.dtype is dtype, m.shape, dtype)
    kind = m.r.choice(INTEGER)
    known = Known(2**31 if dtype.itemsize > 2 else 2**7, 0)
    if kind == "clamp":
        y = m.b.clamp(x, m.r.choice((None, 0, 1)), m.r.choice((None, 2, 3.5)))
    elif kind in ("abs", "neg", "relu", "square", "bitwise_not", "sign"):
        if kind == "neg" and dtype.kind == "uint":
            return
        y = m.b.unary(kind, x)
    else:
        other = m.partner(x)
        if kind.endswith("shift"):
            other = m.b.clamp(other, 0, 3)
        if kind in ("floor_div", "mod", "fmod"):
            other = m.b.clamp(other, 1, 100)
        y = m.b.binary(kind, x, other)
    m.keep(y, known)


def large_integer(m: Maker) -> None:
    m.fresh(m.shape(0, 3), dt.int32, high=2 ** m.r.choice((10, 20, 23, 25, 29)))
    integer(m)


def comparison(m: Maker) -> None:
    dtype = m.r.choice((m.dtype, m.dtype, dt.int32, dt.bool_))
    x = m.pick(lambda v: v.dtype is dtype and m.known[v].grid is not None, m.shape, dtype)
    y = m.partner(x, exact=True)
    if m.r.random() < 0.3 and dtype is not dt.bool_:
        y = m.b.full((), m.r.choice((0, 1, -1)), dtype)
    if m.r.random() < 0.5:
        x, y = y, x
    kind = m.r.choice(("eq", "ne", "lt", "le", "gt", "ge"))
    m.keep(m.b.compare(kind, x, y), Known(1, 0))


def logical(m: Maker) -> None:
    x = m.pick(lambda v: v.dtype is dt.bool_, m.shape, dt.bool_)
    kind = m.r.choice(("logical_not", "bitwise_not", "logical_and", "logical_or", "logical_xor", "bitwise_and",
                       "bitwise_or", "bitwise_xor", "maximum"))  # fmt: skip
    y = m.b.unary(kind, x) if kind.endswith("not") else m.b.binary(kind, x, m.partner(x))
    m.keep(y, Known(1, 0))


def select(m: Maker) -> None:
    x = m.pick(lambda v: True, m.shape, m.dtype)
    y = m.partner(x)
    condition = m.fresh(m.part_of(x.shape), dt.bool_)
    found = [v for v in m.values if v.dtype is dt.bool_ and v.shape == x.shape]
    condition = m.r.choice(found) if found and m.r.random() < 0.5 else condition
    if m.r.random() < 0.5:
        x, y = y, x
    if m.r.random() < 0.2:
        y = m.b.full((), 1, x.dtype)
        m.known[y] = Known(1, 0)
    k, n = m.known[x], m.known[y]
    grid = None if k.grid is None or n.grid is None else max(k.grid, n.grid)
    m.keep(m.b.select(condition, x, y), Known(max(k.bound, n.bound), grid))


def casting(m: Maker) -> None:
    x = m.pick(lambda v: m.known[v].grid is not None, m.shape, m.dtype)
    to = m.r.choice((m.dtype, m.dtype, dt.int32, dt.bool_, dt.uint8, dt.int8, dt.float32, dt.bfloat16))
    known = m.known[x]
    if to is dt.bool_:
        known = Known(1, 0)
    elif to.is_integer:
        known = Known(min(known.bound + 1, 2.0 ** (8 * to.itemsize)), 0)
    elif known.bound * 2.0 ** (known.grid or 0) > 2.0 ** _SIGNIFICANT[to.name]:
        known = Known(known.bound)
    m.keep(m.b.cast(x, to), known)


# -- movement


def moving(m: Maker) -> None:
    x = m.pick(lambda v: True, m.shape, m.dtype)
    r, b, shape = m.r, m.b, x.shape
    rank = len(shape)
    kind = r.choice(("transpose", "transpose", "reshape", "reshape", "slice", "broadcast", "concat", "pad", "reverse"))
    known = m.known[x]
    if kind == "transpose":
        y = b.transpose(x, r.sample(range(rank), rank))
    elif kind == "reshape":
        y = b.reshape(x, regrouped(r, shape))
    elif kind == "broadcast":
        front = tuple(r.choice((1, 2, 3)) for _ in range(r.randint(0, 2)))
        to = tuple(r.choice((1, 2, 5)) if n == 1 else n for n in shape)
        y = b.broadcast(x, (*front, *to) if math.prod((*front, *to)) <= MOST_ELEMENTS else shape)
    elif kind == "slice" and shape:
        starts = [r.randint(0, n - 1) for n in shape]
        limits = [r.randint(s + 1, n) for s, n in zip(starts, shape, strict=True)]
        y = b.slice(x, starts, limits, [r.choice((1, 1, 2, 3)) for _ in shape])
    elif kind == "reverse" and shape:
        y = b.emit(Reverse(tuple(sorted(r.sample(range(rank), r.randint(1, rank))))), x)
    elif kind == "pad" and shape and x.type.elements < MOST_ELEMENTS // 8:
        low, high = ([r.choice((0, 0, 1, 2)) for _ in shape] for _ in range(2))
        y = b.pad(x, low, high, r.choice((0, 1)))
    elif kind == "concat" and shape and x.type.elements < MOST_ELEMENTS // 2:
        axis = r.randrange(rank)
        fitting = [v for v in m.values if v.dtype is x.dtype and v.shape == shape]
        parts = [x, r.choice(fitting), *([x] if r.random() < 0.2 else [])]
        grids = [m.known[v].grid for v in parts]
        known = Known(max(m.known[v].bound for v in parts), None if None in grids else max(g or 0 for g in grids))
        y = b.concat(parts, axis)
    else:
        return
    m.keep(y, Known(max(known.bound, 1), known.grid))


def regrouped(r: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Another shape of as many elements: neighbours joined, extents split."""
    found: list[int] = []
    for n in shape:
        if found and r.random() < 0.4:
            found[-1] *= n
        elif n > 1 and r.random() < 0.4:
            factor = r.choice([d for d in range(2, n + 1) if n % d == 0])
            found += [factor, n // factor]
        elif n > 1 or r.random() < 0.7:
            found.append(n)
        if r.random() < 0.1:
            found.append(1)
    rest = math.prod(shape) // math.prod(found)
    return tuple(found) if rest == 1 else (*found, rest)


# -- reductions and rows


def reduction(m: Maker) -> None:
    r = m.r
    x = m.floats(1)
    rank, known = len(x.shape), m.known[x]
    axes = sorted(r.sample(range(rank), r.randint(1, rank)))
    kind = r.choice(("sum", "mean", "max", "min", "prod"))
    count = math.prod(x.shape[a] for a in axes)
    if kind == "prod":
        x = m.b.clamp(m.positive(x), 0.5, 1.0) if count > 4 else x
        known = Known(16.0)
    elif kind == "mean":
        known = Known(known.bound)
    elif kind == "sum":
        x = m.b.mul(x, 1 / 64) if count * known.bound > LARGEST else x
        known = Known(min(known.bound * count, 1e4), None)
    m.keep(m.b.reduce(kind, x, axes, r.random() < 0.5), known)


def other_reduction(m: Maker) -> None:
    dtype = m.r.choice((dt.bool_, dt.int32))
    x = m.pick(lambda v: v.dtype is dtype and len(v.shape) > 0, lambda: m.shape(1), dtype)
    rank = len(x.shape)
    axes = sorted(m.r.sample(range(rank), m.r.randint(1, rank)))
    if dtype is dt.bool_:
        m.keep(m.b.reduce(m.r.choice(("any", "all")), x, axes, m.r.random() < 0.5), Known(1, 0))
    else:
        m.keep(m.b.reduce(m.r.choice(("sum", "max", "min")), x, axes, m.r.random() < 0.5), Known(2**31, 0))


def row_function(m: Maker) -> None:
    x = m.floats(1)
    kind = m.r.choice(("softmax", "log_softmax", "layer_norm", "rms_norm", "cumsum"))
    axis = m.r.choice((len(x.shape) - 1, m.r.randrange(len(x.shape))))
    b, size = m.b, x.shape[-1:]
    if kind == "softmax":
        y = b.softmax(x, axis)
    elif kind == "log_softmax":
        y = b.emit(LogSoftmax(axis), x)
    elif kind == "cumsum":
        if x.shape[axis] > 200:
            return
        y = b.cumsum(b.mul(x, 1 / 16), axis)
    elif kind == "rms_norm":
        y = b.rms_norm(x, m.fresh(size, m.dtype) if m.r.random() < 0.7 else None, 0.5)
    else:
        weight = m.fresh(size, m.dtype) if m.r.random() < 0.7 else None
        bias = m.fresh(size, m.dtype) if m.r.random() < 0.7 else None
        y = b.layer_norm(x, weight, bias, 0.5)
    m.keep(y, Known(60.0))


def product(m: Maker) -> None:
    r, b = m.r, m.b
    x = m.floats(2) if r.random() < 0.8 else m.floats(1)
    if math.prod(x.shape[:-2]) > MOST_PRODUCTS:
        x = b.reshape(x, (-1, x.shape[-1]))
    x = b.mul(x, 1 / 32)
    size = m.extent()
    if r.random() < 0.5 or len(x.shape) < 2:
        weight = m.fresh((size, *x.shape[-1:]), m.dtype)
        y = b.linear(x, weight, m.fresh((size,), m.dtype) if r.random() < 0.5 else None)
    else:
        batch = tuple(n if r.random() < 0.7 else 1 for n in x.shape[:-2])[r.choice((0, 0, len(x.shape) - 2)) :]
        other = m.fresh((*batch, x.shape[-1], size), m.dtype)
        y = b.matmul(x, other)
    if y.type.elements > 4 * MOST_ELEMENTS:
        return
    m.keep(y, Known(60.0))


def image(m: Maker) -> None:
    r, b = m.r, m.b
    spatial = r.choice((1, 2, 2))
    groups = r.choice((1, 1, 1, 2, 3))
    channels = groups * r.choice((1, 2, 5, 40))
    shape = (r.choice((1, 2)), channels, *(r.randint(5, 20) for _ in range(spatial)))
    found = [v for v in m.values if v.dtype is m.dtype and len(v.shape) in (3, 4) and min(v.shape[2:]) >= 5]
    x = r.choice(found) if found and r.random() < 0.4 else m.fresh(shape, m.dtype)
    channels, spatial = x.shape[1], len(x.shape) - 2
    groups = r.choice([g for g in (1, 1, 2, 3, channels) if channels % g == 0])
    kernel = tuple(r.randint(1, 4) for _ in range(spatial))
    if r.random() < 0.3:
        padding = tuple((r.randint(0, k // 2), r.randint(0, k // 2)) for k in kernel)
        op = Pool(r.choice(("max", "avg")), kernel, tuple(r.randint(1, 3) for _ in kernel), padding, r.random() < 0.5,
                  r.random() < 0.5)  # fmt: skip
        m.keep(b.emit(op, x), Known(m.known[x].bound))
        return
    x = b.mul(x, 1 / 16)
    out = groups * r.choice((1, 2, 9)) if groups < channels or r.random() < 0.5 else channels
    padding = tuple((r.randint(0, k - 1), r.randint(0, k - 1)) for k in kernel)
    stride, dilation = (tuple(r.choice((1, 1, 2)) for _ in kernel) for _ in range(2))
    transposed = r.random() < 0.2
    extra = tuple(r.randint(0, s - 1) for s in stride) if transposed else ()
    weight = (channels, out // groups) if transposed else (out, channels // groups)
    op = Conv(stride, padding, dilation, groups, transposed, extra)
    if min(op.output_spatial(x.shape[2:], kernel)) < 1:
        return
    bias = [m.fresh((out,), m.dtype)] if r.random() < 0.5 else []
    y = b.emit(op, x, m.fresh((*weight, *kernel), m.dtype), *bias)
    if r.random() < 0.3:
        y = b.emit(GroupNorm(r.choice([g for g in (1, 2, 3) if out % g == 0]), 0.5), y)
    elif r.random() < 0.3:
        extra_params = [m.fresh((out,), m.dtype) for _ in range(3)]
        y = b.emit(BatchNorm(1e-3), y, *extra_params, m.positive(m.fresh((out,), m.dtype)))
    m.keep(y, Known(60.0))


def rotary(m: Maker) -> None:
    x = m.pick(lambda v: v.dtype is m.dtype and len(v.shape) in (2, 3, 4) and v.shape[-1] % 2 == 0,
               lambda: (*m.shape(1, 3), 2 * m.r.choice((1, 3, 16, 33))), m.dtype)  # fmt: skip
    table = x.shape[m.r.randint(0, len(x.shape) - 2) :]
    cos, sin = m.fresh(table, m.dtype), m.fresh(table, m.dtype)
    m.keep(m.b.emit(Rope(m.r.random() < 0.4), x, cos, sin), Known(4 * m.known[x].bound))


def attending(m: Maker) -> None:
    r = m.r
    batch, kv, group = r.choice((1, 2)), r.choice((1, 2, 3)), r.choice((1, 1, 2))
    q_len, k_len = (r.choice((1, 3, 17, 64, 129)) for _ in range(2))
    size, dv = r.choice((1, 16, 32, 64, 100, 130)), r.choice((0, 0, 5, 64, 140))
    heads, dv = kv * group, dv or size
    if r.random() < 0.5:
        q = m.b.transpose(m.fresh((batch, q_len, heads, size), m.dtype), (0, 2, 1, 3))
        k = m.b.transpose(m.fresh((batch, k_len, kv, size), m.dtype), (0, 2, 1, 3))
        v = m.b.transpose(m.fresh((batch, k_len, kv, dv), m.dtype), (0, 2, 1, 3))
    else:
        q = m.fresh((batch, heads, q_len, size), m.dtype)
        k, v = m.fresh((batch, kv, k_len, size), m.dtype), m.fresh((batch, kv, k_len, dv), m.dtype)
    causal = r.random() < 0.3
    mask = []
    if r.random() < 0.5:
        mask = [m.fresh(m.part_of((batch, heads, q_len, k_len)), m.dtype)]
    y = m.b.emit(Attention(size**-0.5, causal, bool(mask)), q, k, v, *mask)
    if r.random() < 0.5:
        y = m.b.transpose(y, (0, 2, 1, 3))
    m.keep(y, Known(2.0))


# -- positions as data


def looking_up(m: Maker) -> None:
    r = m.r
    table = m.pick(lambda v: len(v.shape) >= 1, lambda: m.shape(1, 3), m.dtype)
    axis = r.choice((0, r.randrange(len(table.shape))))
    shape = m.shape(0, 2)
    rest = table.type.elements // table.shape[axis]
    if math.prod(shape) * rest > MOST_ELEMENTS:
        shape = (3,)
    m.keep(m.b.take(table, m_indices(m, shape, table.shape[axis]), axis), m.known[table])


def m_indices(m: Maker, shape: tuple[int, ...], below: int) -> Value:
    array = m.data.integers(0, below, shape).astype(np.int32)
    value = m.b.input(TensorType(shape, dt.int32), f"x{len(m.inputs)}")
    m.inputs.append(np.asarray(array))
    m.known[value] = Known(below, 0)
    return value


def along(m: Maker) -> None:
    r = m.r
    x = m.floats(1)
    axis = r.randrange(len(x.shape))
    count = r.choice((1, 3, 17))
    shape = tuple(count if i == axis else r.choice((n, n, max(1, n // 2))) for i, n in enumerate(x.shape))
    if math.prod(shape) > MOST_ELEMENTS:
        return
    if r.random() < 0.5:
        m.keep(m.b.emit(TakeAlong(axis), x, m_indices(m, shape, x.shape[axis])), m.known[x])
        return
    kind = r.choice(("set", "add"))
    shape = tuple(min(n, x.shape[axis]) if i == axis else n for i, n in enumerate(shape))
    order = np.argsort(m.data.random((*shape[:axis], x.shape[axis], *shape[axis + 1 :])), axis=axis)
    array = np.take(order, np.arange(shape[axis]), axis=axis).astype(np.int32)  # none twice
    index = m.b.input(TensorType(shape, dt.int32), f"x{len(m.inputs)}")
    m.inputs.append(array)
    m.known[index] = Known(x.shape[axis], 0)
    m.keep(m.b.emit(ScatterAlong(axis, kind), x, index, m.fresh(shape, m.dtype)), Known(m.known[x].bound + 2.0))


def ordering(m: Maker) -> None:
    r = m.r
    x = m.floats(1, exact=True)
    axis = r.choice((len(x.shape) - 1, r.randrange(len(x.shape))))
    known, size = m.known[x], x.shape[axis]
    kind = r.choice(("argmax", "argmin", "topk", "sort"))
    if kind == "topk":
        values, places = m.b.emit(TopK(r.randint(1, min(size, 20)), axis, r.random() < 0.7), x)
    elif kind == "sort" and size <= 64:
        values, places = m.b.emit(Sort(axis, r.random() < 0.5), x)
    else:
        kind = "argmin" if kind == "argmin" else "argmax"
        m.keep(m.b.emit(ArgReduce(kind, axis, r.random() < 0.5), x), Known(size, 0))
        return
    m.keep(values, known)
    m.keep(places, Known(size, 0))


STEPS: dict[str, tuple[Callable[[Maker], None], int]] = {
    f.__name__: (f, weight)
    for f, weight in (
        (smooth, 4), (linear_unary, 4), (jumping_unary, 2), (float_binary, 10), (jumping_binary, 1), (integer, 2),
        (large_integer, 1), (comparison, 3), (logical, 2), (select, 3), (casting, 3), (moving, 14), (reduction, 4),
        (other_reduction, 1), (row_function, 3), (product, 4), (image, 2), (rotary, 1), (attending, 1), (looking_up, 2),
        (along, 1), (ordering, 2),
    )
}  # fmt: skip


def random_case(r: random.Random, dtype: DType, steps: int = 6, only: tuple[str, ...] = (), seed: int = 0) -> Case:
    """A random graph of about `steps` operations (of the families `only`, if given), with data."""
    m = Maker(r, dtype, seed)
    m.fresh(m.shape(1), dtype)
    names = [name for name, (_, weight) in STEPS.items() for _ in range(weight) if not only or name in only]
    for _ in range(steps):
        STEPS[r.choice(names)][0](m)
    return m.build()
