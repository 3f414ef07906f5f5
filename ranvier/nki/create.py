"""Making and moving tensors: the part of `nki.language` that allocates, loads, stores and views."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from ranvier import dtypes as dt
from ranvier.isa.access import Space
from ranvier.nki import isa as nisa
from ranvier.nki.calls import public
from ranvier.nki.context import current
from ranvier.nki.tensor import DynamicSlice, MemoryRegion, NkiTensor, as_dtype, fail, shown

sbuf, psum = MemoryRegion.sbuf, MemoryRegion.psum
hbm = private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm


def region(buffer: object) -> MemoryRegion:
    """The region that `buffer` is. Raises E0103 for anything else."""
    if not isinstance(buffer, MemoryRegion):
        raise fail(
            "E0103",
            f"buffer is {buffer!r}; it is nl.sbuf, nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm",
            argument="buffer",
        )
    return buffer


def new(
    shape: Sequence[int], dtype: object, buffer: object = sbuf, name: str = "", address: object = None
) -> NkiTensor:
    """What `ndarray` does, for use inside this package."""
    place = region(buffer)
    return current().alloc(shape, dtype, place.space, name, address, shared=place is shared_hbm)


@public
def ndarray(shape, dtype, buffer=sbuf, name="", address=None) -> NkiTensor:
    """A new tensor without values in `buffer`.

    On chip dimension 0 is the partition dimension, of at most 128. `name` is for messages and profiles; names are made
    unique. Raises E0103 for a bad shape, E0202 when the tensor does not fit in its memory, E0305 for a bad dtype, and
    E0104 for an `address`: the compiler places tensors.
    """
    return new(shape, dtype, buffer, name, address)


@public
def full(shape, fill_value, dtype, buffer=sbuf, name="") -> NkiTensor:
    """A new tensor filled with `fill_value`. HBM tensors are filled through a tile on chip."""
    tensor = new(shape, dtype, buffer, name)
    fill(tensor, fill_value)
    return tensor


def fill(tensor: NkiTensor, value: float) -> None:
    """Write `value` to all elements of a new tensor."""
    if not isinstance(value, int | float | np.generic):
        raise fail("E0103", f"fill_value is {shown(value)}; it takes a number", argument="fill_value")
    if tensor.dtype.is_float:
        value = float(value)
    if tensor.on_chip:
        nisa.memset(dst=tensor, value=value)
        return
    flat = tensor.reshape((1, tensor.size))
    rows, width = _tiling(tensor.size)
    tile = new((rows, width), tensor.dtype)
    nisa.memset(dst=tile, value=value)
    step = rows * width
    for start in range(0, tensor.size - step + 1, step):
        nisa.dma_copy(dst=flat[0, start : start + step].reshape((rows, width)), src=tile)
    rest = tensor.size % step
    whole_rows = rest // width
    done = tensor.size - rest
    if whole_rows:
        nisa.dma_copy(dst=flat[0, done : done + whole_rows * width].reshape((whole_rows, width)), src=tile[:whole_rows])
        done += whole_rows * width
    if done < tensor.size:
        nisa.dma_copy(dst=flat[:, done : tensor.size], src=tile[:1, : tensor.size - done])


def _tiling(size: int) -> tuple[int, int]:
    """Partitions and elements per partition of a tile to fill `size` elements with."""
    limits = current().target.sbuf
    width = min(size, 512)
    return min(int(limits.partitions.value), max(1, size // width)), width


@public
def zeros(shape, dtype, buffer=sbuf, name="") -> NkiTensor:
    """A new tensor filled with zeros."""
    tensor = new(shape, dtype, buffer, name)
    fill(tensor, 0)
    return tensor


@public
def ones(shape, dtype, buffer=sbuf, name="") -> NkiTensor:
    """A new tensor filled with ones."""
    tensor = new(shape, dtype, buffer, name)
    fill(tensor, 1)
    return tensor


@public
def empty_like(x, dtype=None, buffer=None, name="") -> NkiTensor:
    """A new tensor without values, with the shape of `x`, and its dtype and memory where none is given."""
    tensor_argument("x", x)
    return new(x.shape, dtype or x.dtype, buffer or x.buffer, name)


@public
def zeros_like(x, dtype=None, buffer=None, name="") -> NkiTensor:
    """A new tensor of zeros, with the shape of `x`, and its dtype and memory where none is given."""
    tensor_argument("x", x)
    tensor = new(x.shape, dtype or x.dtype, buffer or x.buffer, name)
    fill(tensor, 0)
    return tensor


def tensor_argument(name: str, value: object) -> NkiTensor:
    """`value`, which must be a tensor. Raises E0103 that points at the argument `name`."""
    if not isinstance(value, NkiTensor):
        raise fail("E0103", f"{name} is {shown(value)}; it takes a tensor", argument=name)
    return value


# Movement -------------------------------------------------------------------------------------------------------------


@public
def load(src, dtype=None) -> NkiTensor:
    """A new SBUF tile with the values of the HBM tensor `src`, cast to `dtype` on the way if one is given."""
    tensor_argument("src", src)
    tile = new(_on_chip_shape(src), dtype or src.dtype)
    nisa.dma_copy(dst=tile, src=src)
    return tile


def _on_chip_shape(src: NkiTensor) -> tuple[int, ...]:
    if src.on_chip:
        raise fail(
            "E0301",
            f"src is in {src.buffer.value}; load reads HBM",
            argument="src",
            fix="use nl.copy for a copy of a tile",
        )
    return src.shape


@public
def load_transpose2d(src, dtype=None) -> NkiTensor:
    """A new SBUF tile [N, M] with the transpose of the HBM tensor `src` [M, N]. Slow: each element is a transfer."""
    tensor_argument("src", src)
    if src.on_chip or src.ndim != 2:
        raise fail(
            "E0301" if src.on_chip else "E0304",
            f"src is {src!r}; load_transpose2d reads a 2-D HBM tensor",
            argument="src",
        )
    turned = src.permute((1, 0))
    tile = new(turned.shape, dtype or src.dtype)
    nisa.dma_copy(dst=tile, src=turned)
    return tile


@public
def store(dst, value) -> None:
    """Write the SBUF tile `value` to the HBM tensor `dst`, of as many elements, casting to its dtype."""
    tensor_argument("dst", dst)
    tensor_argument("value", value)
    if dst.on_chip or value.buffer is not sbuf:
        name, tensor = ("dst", dst) if dst.on_chip else ("value", value)
        raise fail(
            "E0301",
            f"{name} is in {tensor.buffer.value}; store moves a tile in sbuf to HBM",
            argument=name,
            fix="copy it to SBUF first with nl.copy",
        )
    nisa.dma_copy(dst=dst, src=value)


@public
def copy(x, dtype=None) -> NkiTensor:
    """A new SBUF tile with the values of a tile in SBUF or PSUM; bit-exact when the dtype stays the same.

    The name also stands for the activation function that returns its input.
    """
    tensor_argument("x", x)
    tile = new(x.shape, dtype or x.dtype)
    nisa.tensor_copy(dst=tile, src=x)
    return tile


@public
def shared_constant(constant) -> NkiTensor:
    """An HBM tensor that holds an array, or the contents of a .npy file; equal constants share one tensor."""
    if isinstance(constant, (str, os.PathLike)):
        try:
            constant = np.load(constant, allow_pickle=False)
        except (OSError, ValueError) as failure:
            raise fail(
                "E0103", f"{os.fspath(constant)!r} cannot be read as an array: {failure}", argument="constant"
            ) from None
    if not isinstance(constant, np.ndarray):
        raise fail(
            "E0103", f"constant is {constant!r}; it takes an array or the path of a .npy file", argument="constant"
        )
    return current().constant("constant", constant, constant.dtype)


@public
def shared_identity_matrix(n, dtype=dt.uint8, dst=None) -> NkiTensor:
    """The n x n identity in SBUF, as a new tile or in `dst`; all identities of a size and dtype share one constant."""
    if dst is None:
        dst = new((n, n), dtype)
    tensor_argument("dst", dst)
    nisa.dma_copy(dst=dst, src=current().constant(f"identity{n}", np.eye(n, dtype=np.float32), dst.dtype))
    return dst


# Views ----------------------------------------------------------------------------------------------------------------


@public
def expand_dims(x, axis) -> NkiTensor:
    """A view of `x` with a new dimension of size 1 at position `axis`."""
    return tensor_argument("x", x).expand_dim(axis)


@public
def broadcast_to(x, shape, dtype=None) -> NkiTensor:
    """A new tile of `shape`, of the rank of `x`, along whose dimensions of size 1 the values of `x` repeat.

    `x` itself when it has that shape and dtype. One partition gets to the others by nc_stream_shuffle, 32 at a time.
    """
    shape, to = tuple(shape), as_dtype(dtype or tensor_argument("x", x).dtype)
    if shape == x.shape and to is x.dtype:
        return x
    if len(shape) != x.ndim or any(have not in (want, 1) for have, want in zip(x.shape, shape, strict=False)):
        raise fail("E0203", f"x of shape {x.shape} cannot be broadcast to {shape}", argument="shape")
    for dim in range(1, x.ndim):
        if x.shape[dim] != shape[dim]:
            x = x.broadcast(dim, shape[dim])
    tile = new(shape, to)
    if x.shape[0] == shape[0]:
        nisa.tensor_copy(dst=tile, src=x)
        return tile
    row = x if x.dtype is to else copy(x, dtype=to)
    group = int(current().target.limits.partition_quadrant.value)
    for start in range(0, shape[0], group):
        nisa.nc_stream_shuffle(dst=tile[start : min(start + group, shape[0])], src=row, shuffle_mask=(0,) * group)
    return tile


@public
def ds(start, size) -> DynamicSlice:
    """`size` elements from `start` on, for use in an index: x[:, nl.ds(i * 64, 64)]."""
    if isinstance(start, NkiTensor) or isinstance(size, NkiTensor):
        raise fail(
            "E0104",
            "nl.ds with a position that is read at run time",
            fix="use numbers that are known while the kernel is made",
        )
    try:
        return DynamicSlice(int(start.__index__()), int(size.__index__()))
    except AttributeError:
        raise fail("E0103", f"ds({start!r}, {size!r}) takes two integers") from None


@public
def is_hbm(buffer) -> bool:
    """Whether `buffer` is one of the HBM regions."""
    return region(buffer).space is Space.HBM


@public
def is_on_chip(buffer) -> bool:
    """Whether `buffer` is SBUF or PSUM."""
    return region(buffer).space.on_chip


@public
def is_psum(buffer) -> bool:
    """Whether `buffer` is PSUM."""
    return region(buffer) is psum


@public
def is_sbuf(buffer) -> bool:
    """Whether `buffer` is SBUF."""
    return region(buffer) is sbuf
