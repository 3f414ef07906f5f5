"""Random operations and graphs for property tests: every class of the level, with shapes and attributes that fit."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from ranvier import dtypes
from ranvier.dtypes import DType
from ranvier.graph import (
    ArgReduce,
    Attention,
    BatchNorm,
    Binary,
    Broadcast,
    Cast,
    Clamp,
    Compare,
    Concat,
    Conv,
    CumSum,
    Full,
    Gelu,
    Graph,
    GraphBuilder,
    GroupNorm,
    Iota,
    LayerNorm,
    Linear,
    LogSoftmax,
    MatMul,
    Op,
    Pad,
    Pool,
    Reduce,
    Reshape,
    Reverse,
    RmsNorm,
    Rope,
    ScatterAlong,
    Select,
    Silu,
    Slice,
    Softmax,
    Sort,
    Take,
    TakeAlong,
    TensorType,
    TopK,
    Transpose,
    Unary,
    Value,
)
from ranvier.graph.elementwise import BINARY, COMPARE, UNARY
from ranvier.graph.reduce import REDUCE
from ranvier.loc import Loc

FLOATS = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
OF_KIND = {"float": FLOATS, "int": (dtypes.int32, dtypes.int64), "uint": (dtypes.uint8,), "bool": (dtypes.bool_,)}
Sample = tuple[Op, tuple[TensorType, ...]]


def shape(r: random.Random, low: int = 0, high: int = 4) -> tuple[int, ...]:
    return tuple(r.randint(1, 5) for _ in range(r.randint(low, high)))


def dtype_in(r: random.Random, domain) -> DType:
    return r.choice(OF_KIND[r.choice(sorted(domain))])


def broadcastable(r: random.Random, to: Sequence[int]) -> tuple[int, ...]:
    """A shape that broadcasts to `to`."""
    cut = r.randint(0, len(to))
    return tuple(1 if r.random() < 0.3 else n for n in to[cut:])


def _unary(r):
    kind = r.choice(sorted(UNARY))
    return Unary(kind), (TensorType(shape(r), dtype_in(r, UNARY[kind].domain)),)


def _binary(r, cls=Binary, table=BINARY):
    kind = r.choice(sorted(table))
    to, dtype = shape(r), dtype_in(r, table[kind].domain)
    return cls(kind), (TensorType(broadcastable(r, to), dtype), TensorType(to, dtype))


def _select(r):
    to, dtype = shape(r), dtype_in(r, OF_KIND)
    return Select(), (TensorType(broadcastable(r, to), dtypes.bool_), TensorType(to, dtype),
                      TensorType(broadcastable(r, to), dtype))


def _clamp(r):
    low = r.choice((None, -0.5, 0))
    return Clamp(low, r.choice((None, 0.25, 1.0))), (TensorType(shape(r), dtype_in(r, ("float", "int", "uint"))),)


def _reduce(r):
    kind, x = r.choice(sorted(REDUCE)), shape(r)
    axes = tuple(a for a in range(len(x)) if r.random() < 0.5)
    return Reduce(kind, axes, r.random() < 0.5), (TensorType(x, dtype_in(r, REDUCE[kind].domain)),)


def _along(make: Callable) -> Callable:
    """A sampler for operations along one axis of a number tensor."""

    def sample(r):
        x = shape(r, 1)
        return make(r, r.randrange(len(x)), x), (TensorType(x, dtype_in(r, ("float", "int"))),)

    return sample


def _matmul(r):
    batch, (m, k, n) = shape(r, 0, 2), (r.randint(1, 6) for _ in range(3))
    dtype = dtype_in(r, ("float", "int"))
    return MatMul(), (TensorType((*broadcastable(r, batch), m, k), dtype), TensorType((*batch, k, n), dtype))


def _conv(r):
    rank, groups, transposed = r.randint(1, 3), r.randint(1, 3), r.random() < 0.5
    channels, outs = groups * r.randint(1, 2), groups * r.randint(1, 2)
    kernel = tuple(r.randint(1, 3) for _ in range(rank))
    padding = tuple((r.randint(0, k - 1), r.randint(0, k - 1)) for k in kernel)
    stride, dilation = (tuple(r.randint(1, 2) for _ in range(rank)) for _ in range(2))
    spatial = tuple(r.randint(5, 7) for _ in range(rank))
    extra = tuple(r.randint(0, s - 1) for s in stride) if transposed else ()
    weight = (channels, outs // groups) if transposed else (outs, channels // groups)
    dtype = r.choice(FLOATS)
    bias = (TensorType((outs,), dtype),) if r.random() < 0.5 else ()
    x = TensorType((r.randint(1, 2), channels, *spatial), dtype)
    return Conv(stride, padding, dilation, groups, transposed, extra), (x, TensorType((*weight, *kernel), dtype), *bias)


def _pool(r):
    rank = r.randint(1, 2)
    kernel = tuple(r.randint(1, 3) for _ in range(rank))
    padding = tuple((k // 2, r.randint(0, k // 2)) for k in kernel)
    stride = tuple(r.randint(1, 3) for _ in range(rank))
    op = Pool(r.choice(("max", "avg")), kernel, stride, padding, r.random() < 0.5, r.random() < 0.5)
    return op, (TensorType((1, 2, *(r.randint(4, 7) for _ in range(rank))), r.choice(FLOATS)),)


def _reshape(r):
    x = shape(r)
    rest, to = math.prod(x), []
    while rest > 1:
        factor = r.choice([n for n in range(2, rest + 1) if rest % n == 0])
        to.append(factor)
        rest //= factor
    return Reshape(tuple(to)), (TensorType(x, dtype_in(r, OF_KIND)),)


def _transpose(r):
    x = shape(r)
    return Transpose(tuple(r.sample(range(len(x)), len(x)))), (TensorType(x, dtype_in(r, OF_KIND)),)


def _broadcast(r):
    to = shape(r)
    return Broadcast(to), (TensorType(broadcastable(r, to), dtype_in(r, OF_KIND)),)


def _slice(r):
    x = shape(r)
    starts = tuple(r.randint(0, n) for n in x)
    limits = tuple(r.randint(s, n) for s, n in zip(starts, x, strict=True))
    return Slice(starts, limits, tuple(r.randint(1, 3) for _ in x)), (TensorType(x, dtype_in(r, OF_KIND)),)


def _concat(r):
    x, dtype = shape(r, 1), dtype_in(r, OF_KIND)
    axis = r.randrange(len(x))
    parts = [(*x[:axis], r.randint(1, 3), *x[axis + 1 :]) for _ in range(r.randint(1, 3))]
    return Concat(axis), tuple(TensorType(p, dtype) for p in parts)


def _pad(r):
    x = shape(r)
    low, high = (tuple(r.randint(0, 2) for _ in x) for _ in range(2))
    return Pad(low, high, r.choice((0, 1))), (TensorType(x, dtype_in(r, OF_KIND)),)


def _take(r):
    x = shape(r, 1, 3)
    return Take(r.randrange(len(x))), (TensorType(x, dtype_in(r, OF_KIND)), TensorType(shape(r, 0, 2), dtypes.int32))


def _take_along(r):
    x = shape(r, 1, 3)
    axis = r.randrange(len(x))
    indices = tuple(r.randint(1, 4) if a == axis else r.randint(1, n) for a, n in enumerate(x))
    return TakeAlong(axis), (TensorType(x, dtype_in(r, OF_KIND)), TensorType(indices, dtypes.int64))


def _scatter_along(r):
    op, (x, indices) = _take_along(r)
    x = x.with_dtype(dtypes.float32)
    return ScatterAlong(op.axis, r.choice(("set", "add"))), (x, indices, x.with_shape(indices.shape))


def _float_of(make: Callable, low: int = 1) -> Callable:
    """A sampler for operations on one float tensor."""

    def sample(r):
        x = shape(r, low)
        return make(r, x), (TensorType(x, r.choice(FLOATS)),)

    return sample


def _layer_norm(r):
    x, dtype = shape(r, 1), r.choice(FLOATS)
    axes = tuple(range(r.randrange(len(x)), len(x)))
    op = LayerNorm(axes, 1e-5, r.random() < 0.5, r.random() < 0.5)
    inner = TensorType(x[axes[0] :], dtype)
    return op, (TensorType(x, dtype), *[inner] * (op.has_weight + op.has_bias))


def _rms_norm(r):
    x = TensorType(shape(r, 1), r.choice(FLOATS))
    return RmsNorm(1e-6), (x, *[x.with_shape(x.shape[-1:])] * r.randint(0, 1))


def _channels(r, make: Callable, counts: Sequence[int]) -> Sample:
    groups, dtype = r.randint(1, 3), r.choice(FLOATS)
    channels = groups * r.randint(1, 2)
    return make(groups), (TensorType((2, channels, *shape(r, 1, 2)), dtype),
                          *[TensorType((channels,), dtype)] * r.choice(counts))


def _linear(r):
    k, n, dtype = r.randint(1, 5), r.randint(1, 5), r.choice(FLOATS)
    bias = (TensorType((n,), dtype),) if r.random() < 0.5 else ()
    return Linear(), (TensorType((*shape(r, 0, 2), k), dtype), TensorType((n, k), dtype), *bias)


def _rope(r):
    x = TensorType((*shape(r, 0, 2), r.randint(1, 4), 2 * r.randint(1, 3)), r.choice(FLOATS))
    table = x.with_shape(x.shape[r.randint(0, x.rank - 2) :])
    return Rope(r.random() < 0.5), (x, table, table)


def _attention(r):
    batch, kv_heads, group, queries, keys, depth = (r.randint(1, 3) for _ in range(6))
    dtype = r.choice(FLOATS)
    q = TensorType((batch, kv_heads * group, queries, depth), dtype)
    k, v = (TensorType((batch, kv_heads, keys, n), dtype) for n in (depth, r.randint(1, 3)))
    masked = r.random() < 0.6
    scores = (batch, kv_heads * group, queries, keys)
    mask = (TensorType(broadcastable(r, scores), r.choice((dtype, dtypes.bool_))),) if masked else ()
    return Attention(0.5, r.random() < 0.5, masked), (q, k, v, *mask)


SAMPLERS: dict[type[Op], Callable[[random.Random], Sample]] = {
    Unary: _unary,
    Binary: _binary,
    Compare: lambda r: _binary(r, Compare, COMPARE),
    Select: _select,
    Cast: lambda r: (Cast(dtype_in(r, OF_KIND)), (TensorType(shape(r), dtype_in(r, OF_KIND)),)),
    Clamp: _clamp,
    Reduce: _reduce,
    ArgReduce: _along(lambda r, axis, x: ArgReduce(r.choice(("argmax", "argmin")), axis, r.random() < 0.5)),
    CumSum: _along(lambda r, axis, x: CumSum(axis)),
    MatMul: _matmul,
    Conv: _conv,
    Pool: _pool,
    Reshape: _reshape,
    Transpose: _transpose,
    Broadcast: _broadcast,
    Slice: _slice,
    Concat: _concat,
    Pad: _pad,
    Reverse: _along(lambda r, axis, x: Reverse((axis,))),
    Iota: lambda r: (Iota(s := shape(r, 1), r.randrange(len(s)), dtype_in(r, ("float", "int"))), ()),
    Full: lambda r: (Full(shape(r), r.choice((0, 1)), dtype_in(r, OF_KIND)), ()),
    Take: _take,
    TakeAlong: _take_along,
    ScatterAlong: _scatter_along,
    Sort: _along(lambda r, axis, x: Sort(axis, r.random() < 0.5)),
    TopK: _along(lambda r, axis, x: TopK(r.randint(1, x[axis]), axis, r.random() < 0.5)),
    Softmax: _float_of(lambda r, x: Softmax(r.randrange(len(x)))),
    LogSoftmax: _float_of(lambda r, x: LogSoftmax(r.randrange(len(x)))),
    LayerNorm: _layer_norm,
    RmsNorm: _rms_norm,
    GroupNorm: lambda r: _channels(r, lambda groups: GroupNorm(groups, 1e-5), (0, 1, 2)),
    BatchNorm: lambda r: _channels(r, lambda groups: BatchNorm(1e-5), (4,)),
    Gelu: _float_of(lambda r, x: Gelu(r.choice(("none", "tanh"))), 0),
    Silu: _float_of(lambda r, x: Silu(), 0),
    Linear: _linear,
    Rope: _rope,
    Attention: _attention,
}


def arrays_for(op: Op | None, types: Sequence[TensorType], seed: int) -> list[np.ndarray]:
    """Operands of `types` within the domain of `op` (None: any), of moderate size."""
    rng = np.random.default_rng(seed)
    result = []
    for position, t in enumerate(types):
        if t.dtype.is_float:
            array = rng.uniform(-2, 2, t.shape)
            if isinstance(op, BatchNorm) and position == 4:
                array = np.abs(array) + 0.1
            if isinstance(op, Unary) and op.kind in ("log", "sqrt", "rsqrt", "log1p"):
                array = np.abs(array) + 0.1
            if isinstance(op, Binary) and op.kind == "pow":
                array = np.abs(array) + 0.1
        elif t.dtype is dtypes.bool_:
            array = rng.random(t.shape) < 0.6
        else:
            high = types[0].shape[op.axis] if isinstance(op, Take | TakeAlong | ScatterAlong) and position == 1 else 5
            array = rng.integers(1 if isinstance(op, Binary) else 0, max(high, 1), t.shape)
        result.append(np.asarray(array).astype(t.dtype.np))
    return result


def sample(cls: type[Op], seed: int) -> tuple[Op, tuple[TensorType, ...], list[np.ndarray]]:
    """A random operation of `cls`, with types and operands."""
    op, types = SAMPLERS[cls](random.Random(seed))
    return op, types, arrays_for(op, types, seed)


def one_op_graph(op: Op, types: Sequence[TensorType]) -> Graph:
    """The graph of one operation on inputs of `types`."""
    b = GraphBuilder("one")
    node = b.emit_node(op, [b.input(t) for t in types])
    return b.build(node.outputs)


def random_graph(seed: int, length: int = 8) -> Graph:
    """A graph of `length` operations, on earlier values where one fits, otherwise on new inputs or parameters."""
    r = random.Random(seed)
    b = GraphBuilder(r.choice(("main", "odd name", "a.b")))
    values: list[Value] = []
    for i in range(length):
        op, types = SAMPLERS[r.choice(tuple(SAMPLERS))](r)
        operands = []
        for t in types:
            fitting = [v for v in values if v.type == t]
            if fitting:
                operands.append(r.choice(fitting))
                continue
            choice = r.random()
            if choice < 0.5:
                operands.append(b.input(t, f"x{len(b.inputs)}"))
            elif choice < 0.75:
                operands.append(b.param(f"layer.{len(b.params)}.weight", t))
            else:
                array = np.random.default_rng(seed + i).integers(0, 2, t.shape).astype(t.dtype.np)
                operands.append(b.constant(array, r.choice(("", "c", "%odd"))))
            values.append(operands[-1])
        place = r.choice((None, Loc('a "b".py', 3), Loc("m.py", 1, 2, 1, 9, "forward", "encoder.0"), Loc("m.py", 7, 1)))
        values += b.emit_node(op, operands, place, r.choice(("", "h", "y"))).outputs
    return b.build(r.sample(values, r.randint(1, min(3, len(values)))))
