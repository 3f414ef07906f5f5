"""Reductions, normalizations and products of `nki.language`, made of instructions.

`axis` names the last free axes of a tile; results are new SBUF tiles. Intermediate values are float32.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from ranvier import dtypes as dt
from ranvier.nki import isa as nisa
from ranvier.nki.calls import public
from ranvier.nki.create import copy as copy_tile
from ranvier.nki.create import new, region, sbuf, tensor_argument
from ranvier.nki.elementwise import cast_to, combine, is_column, scalar_op
from ranvier.nki.tensor import MemoryRegion, NkiTensor, fail


def _axes(x: NkiTensor, axis: object) -> tuple[int, ...]:
    """`axis` as sorted positions: the last free axes of x. Raises E0103 otherwise."""
    given: tuple[Any, ...] = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if builtins.all(isinstance(a, int) and -x.ndim <= a < x.ndim for a in given):
        found = tuple(sorted({a % x.ndim for a in given}))
        if found and found[0] > 0 and found == tuple(range(found[0], x.ndim)):
            return found
    raise fail("E0103", f"axis is {axis}; it takes the last free axes of x, which has shape {x.shape}", argument="axis")


def _kept(x: NkiTensor, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if i in axes else size for i, size in enumerate(x.shape))


def _dropped(x: NkiTensor, axes: tuple[int, ...]) -> tuple[int, ...]:
    left = tuple(size for i, size in enumerate(x.shape) if i not in axes)
    return left if len(left) > 1 else (*left, 1)


def reduce(
    op: str, x: NkiTensor, axes: tuple[int, ...], dtype: object, keepdims: bool = True, negate: bool = False
) -> NkiTensor:
    """x reduced over `axes` with an ALU operation, as a new tile."""
    tile = new(_kept(x, axes) if keepdims else _dropped(x, axes), dtype)
    nisa.tensor_reduce(dst=tile, op=op, data=x, axis=axes, negate=negate, keepdims=keepdims)
    return tile


def _reduction(name: str, op: str, doc: str) -> Callable[..., NkiTensor]:
    def fn(x, axis, dtype=None, keepdims=False) -> NkiTensor:
        axes = _axes(tensor_argument("x", x), axis)
        return reduce(op, x, axes, dtype or x.dtype, keepdims)

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"{doc} of x over `axis`, its last free axes, as a new SBUF tile; `keepdims` keeps them with size 1."
    return public(fn)


sum = _reduction("sum", "add", "Sum")
max = _reduction("max", "maximum", "Maximum")
min = _reduction("min", "minimum", "Minimum")
prod = _reduction("prod", "multiply", "Product")


@public
def all(x, axis, dtype=None) -> NkiTensor:
    """1 where all elements of x over `axis`, its last free axes, are non-zero, else 0, as a new SBUF tile."""
    axes = _axes(tensor_argument("x", x), axis)
    return reduce("logical_and", x, axes, dtype or x.dtype, keepdims=False)


@public
def mean(x, axis, dtype=None, keepdims=False) -> NkiTensor:
    """Mean of x over `axis`, its last free axes, as a new SBUF tile; `keepdims` keeps them with size 1."""
    axes = _axes(tensor_argument("x", x), axis)
    total = reduce("add", x, axes, dt.float32, keepdims)
    return scalar_op(total, dtype or x.dtype, "multiply", 1.0 / math.prod(x.shape[a] for a in axes))


@public
def var(x, axis, dtype=None, keepdims=False) -> NkiTensor:
    """Variance (divided by the number of elements) of x over `axis`, its last free axes, as a new SBUF tile.

    As in NKI, the axes are always kept with size 1, whatever `keepdims` says. Two passes: mean, then spread.
    """
    axes = _axes(tensor_argument("x", x), axis)
    scale = 1.0 / math.prod(x.shape[a] for a in axes)
    middle = scalar_op(reduce("add", x, axes, dt.float32), dt.float32, "multiply", scale)
    centred = with_statistic("subtract", x, middle, dt.float32)
    squares = combine("multiply", centred, centred)
    return scalar_op(reduce("add", squares, axes, dt.float32), dtype or x.dtype, "multiply", scale)


def with_statistic(op: str, x: NkiTensor, statistic: NkiTensor, dtype: object) -> NkiTensor:
    """x op statistic, where `statistic` has the shape of x with some of its last axes of size 1."""
    if is_column(statistic):
        return combine(op, x, statistic, dtype)
    for dim, size in enumerate(x.shape):
        if statistic.shape[dim] != size:
            statistic = statistic.broadcast(dim, size)
    return combine(op, x, statistic, dtype)


@public
def softmax(x, axis=-1, dtype=None) -> NkiTensor:
    """exp(x) over its sum along `axis`, the last free axes, as a new SBUF tile; the maximum is taken off first."""
    axes = _axes(tensor_argument("x", x), axis)
    peak = reduce("maximum", x, axes, dt.float32, negate=True)
    if is_column(peak):
        powers, total = new(x.shape, dt.float32), new(peak.shape, dt.float32)
        nisa.activation_reduce(dst=powers, op="exp", data=x, reduce_op="add", reduce_res=total, bias=peak)
    else:
        shifted = with_statistic("add", x, peak, dt.float32)
        powers = new(x.shape, dt.float32)
        nisa.activation(dst=powers, op="exp", data=shifted)
        total = reduce("add", powers, axes, dt.float32)
    inverse = new(total.shape, dt.float32)
    nisa.reciprocal(dst=inverse, data=total)
    return with_statistic("multiply", powers, inverse, dtype or x.dtype)


@public
def rms_norm(x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None) -> NkiTensor:
    """x / sqrt(sum of squares over `axis` / n + epsilon) * w, as a new SBUF tile; w has the shape of x, or [P, 1].

    Values between are `compute_dtype`, float32 if it is not given.
    """
    axes = _axes(tensor_argument("x", x), axis)
    tensor_argument("w", w)
    between = compute_dtype or dt.float32
    squares = combine("multiply", x, x, between)
    total = reduce("add", squares, axes, dt.float32)
    scale = scalar_op(total, dt.float32, "multiply", 1.0 / n, "add", epsilon)
    inverse = scalar_op(scale, dt.float32, "rsqrt", None)
    return combine("multiply", with_statistic("multiply", x, inverse, between), w, dtype or x.dtype)


# Products, transposes, gathers, random numbers ------------------------------------------------------------------------


@public
def transpose(x, dtype=None) -> NkiTensor:
    """The transpose [N, M] of a 2-D SBUF tile [M, N], by the tensor engine: in PSUM, or in SBUF for another `dtype`."""
    if tensor_argument("x", x).ndim != 2:
        raise fail("E0304", f"x has shape {x.shape}; transpose takes a 2-D tile", argument="x")
    turned = new((x.shape[1], x.shape[0]), x.dtype, MemoryRegion.psum)
    nisa.nc_transpose(dst=turned, data=x, engine=nisa.engine.tensor)
    return turned if dtype is None else cast_to(turned, dtype)


@public
def matmul(x, y, transpose_x=False) -> NkiTensor:
    """x @ y in PSUM (float32), for SBUF tiles x [M, K] and y [K, N]; with `transpose_x` x comes as [K, M].

    K and M are at most 128, N at most 512. Without `transpose_x` the tensor engine transposes x first.
    """
    tensor_argument("x", x)
    tensor_argument("y", y)
    stationary = x if transpose_x else copy_tile(transpose(x))
    product = new((stationary.access.free_elements, *y.shape[1:]), dt.float32, MemoryRegion.psum)
    nisa.nc_matmul(dst=product, stationary=stationary, moving=y)
    return product


@public
def gather_flattened(data, indices, axis=0, dtype=None) -> NkiTensor:
    """Elements of `data` by position in its flattened free axes, in each partition, as a new SBUF tile.

    `indices` is a uint32 tile; the result has its shape. `axis` is 0.
    """
    tensor_argument("data", data)
    tensor_argument("indices", indices)
    if axis != 0:
        raise fail("E0104", f"gather_flattened with axis {axis}", argument="axis", fix="leave axis 0")
    tile = new(indices.shape, data.dtype)
    nisa.nc_n_gather(dst=tile, data=data, indices=indices)
    return tile if dtype is None else cast_to(tile, dtype)


@public
def dropout(x, rate, dtype=None) -> NkiTensor:
    """x with elements set to 0 at random, each with probability `rate` (a number or [P, 1]), as a new SBUF tile."""
    tile = new(tensor_argument("x", x).shape, x.dtype)
    nisa.dropout(dst=tile, data=x, prob=rate)
    return tile if dtype is None else cast_to(tile, dtype)


@public
def rand(shape, dtype, buffer=sbuf, name="") -> NkiTensor:
    """A new tensor of random values, uniform in [0, 1): 24 random bits each."""
    place = region(buffer)
    if not place.space.on_chip:
        raise fail("E0104", "rand in HBM", argument="buffer", fix="make a tile on chip and store it")
    bits = new(shape, dt.uint32)
    nisa.rng(dst=bits)
    nisa.tensor_scalar(dst=bits, data=bits, op0="right_shift", operand0=8)
    tile = new(shape, dtype, place, name)
    nisa.tensor_scalar(dst=tile, data=bits, op0="multiply", operand0=2.0**-24)
    return tile


@public
def random_seed(seed) -> None:
    """Seed the random numbers of the vector engine with a 32-bit value in a [1, 1] tile."""
    nisa.set_rng_seed(src_seeds=tensor_argument("seed", seed))
