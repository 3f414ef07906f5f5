"""Tensors of the kernel language: immutable handles on access patterns, and the views that can be made of them.

A view never copies; it is another access pattern on the same buffer. Rules follow NKI (language guide, tensor values):
on chip the first dimension is the partition dimension, stays in front and has at least one other beside it.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ranvier import dtypes as dt
from ranvier.dtypes import DType
from ranvier.errors import RanvierError, error
from ranvier.isa.access import AccessPattern, Indirect, Space
from ranvier.loc import capture
from ranvier.nki.context import current, maybe_current
from ranvier.nki.refused import NoOperators
from ranvier.nki.views import Pair, infer, rescale, restride, row_major

NUMBERS = (int, float, np.number, np.bool_)
"""What counts as a number beside tensors."""
_HBM = Space.HBM


class MemoryRegion(enum.Enum):
    """The memories a tensor can be made in. `shared_hbm` outlives the kernel: results are returned in it."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    @property
    def space(self) -> Space:
        return Space.HBM if self.value.endswith("hbm") else Space(self.value)


@dataclass(frozen=True, slots=True)
class DynamicSlice:
    """`size` elements from `start` on: what `nl.ds` makes, for use in an index."""

    start: int
    size: int


def fail(code: str, message: str, **details: Any) -> RanvierError:
    """The error `code` at the user's line."""
    return error(code, message, where=capture(), **details)


def as_dtype(what: object) -> DType:
    """`ranvier.dtypes.dtype`, failing at the user's line; E0305 as well for dtypes that the core lacks."""
    try:
        made = dt.dtype(what)
    except RanvierError as failure:
        failure.where, failure.argument = capture(), "dtype"
        raise
    if not made.on_device:
        raise fail(
            "E0305", f"the core has no {made}", argument="dtype", fix=f"use {'int32' if made.is_integer else 'float32'}"
        )
    return made


def shown(value: object) -> str:
    """A wrong argument or result as messages name it: an array by its shape, a function by its name."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    name = getattr(value, "__name__", None)
    return repr(value) if name is None else f"the {type(value).__name__} {name}"


def _integers(what: str, values: object) -> tuple[int, ...]:
    try:
        return tuple(operator.index(value) for value in values)  # type: ignore[attr-defined]
    except TypeError:
        raise fail("E0203", f"{what} is {values!r}; it is made of integers") from None


@dataclass(frozen=True, slots=True, eq=False)
class NkiTensor(NoOperators):
    """A tensor in HBM, SBUF or PSUM, or a view of one. Made by `nl.ndarray` and by the methods below, which never copy.

    `access` is the access pattern that instructions take; `shared` marks HBM tensors that outlive the kernel.
    """

    access: AccessPattern
    shared: bool = False

    # -- what it is ----------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        return self.access.shape

    @property
    def dtype(self) -> DType:
        return self.access.dtype

    @property
    def ndim(self) -> int:
        return len(self.access.pattern)

    @property
    def size(self) -> int:
        """Elements."""
        return self.access.size

    @property
    def name(self) -> str:
        return self.access.buffer.name

    @property
    def on_chip(self) -> bool:
        return self.access.buffer.space is not _HBM

    @property
    def buffer(self) -> MemoryRegion:
        """The memory it lies in."""
        space = self.access.buffer.space
        if space is _HBM:
            return MemoryRegion.shared_hbm if self.shared else MemoryRegion.private_hbm
        return MemoryRegion(space.value)

    @property
    def _row(self) -> int:
        """Elements of this dtype in one partition of the whole buffer: the partition stride as NKI counts it."""
        return self.access.buffer.bytes_per_partition // self.access.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance of neighbours along each dimension, in elements; the partition stride is a whole partition."""
        strides = tuple(stride for stride, _ in self.access.pattern)
        return (self._row, *strides[1:]) if self.on_chip else strides

    @property
    def offset(self) -> int:
        """Elements from the start of the buffer to the first element, partitions counted as in `strides`."""
        return self.access.partition * self._row + self.access.offset if self.on_chip else self.access.offset

    def get_pattern(self) -> list[list[int]]:
        """The access pattern as [[stride, count], ...], as `ap` takes it."""
        return [[stride, count] for stride, count in zip(self.strides, self.shape, strict=True)]

    def is_contiguous(self) -> bool:
        """Whether the elements lie one after the other, in row-major order (on chip: within each partition)."""
        return self.access.is_contiguous

    def is_indirect(self) -> bool:
        """Whether the elements are chosen by an index that is read at run time."""
        return self.access.index is not None

    # -- indexing ------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> NkiTensor:
        """A part: integers, slices with positive step, `nl.ds`, Ellipsis; negative positions count from the end.

        An integer drops its dimension, except the partition dimension, which stays with size 1; at least one dimension
        (on chip: two) is left. Raises E0201 when the index reaches outside, E0203 for what is not an index.
        """
        ap = self.access
        pattern = ap.pattern
        if type(key) is not tuple:
            key = (key,)
        if len(key) != len(pattern) or key[0] is Ellipsis or key[-1] is Ellipsis:
            key = self._expand_key(key)
        on_chip = ap.buffer.space is not _HBM
        offset, partition = ap.offset, ap.partition
        pairs: list[Pair] = []
        for dim, (item, (stride, count)) in enumerate(zip(key, pattern, strict=True)):
            if type(item) is slice and item.step is None:  # the usual case, without the checks of the general one
                start = 0 if item.start is None else item.start
                stop = count if item.stop is None else item.stop
                if type(start) is int and type(stop) is int and 0 <= start < stop <= count:
                    length, step = stop - start, 1
                else:
                    start, length, step = self._resolve(item, dim, count)
            elif item is Ellipsis:
                return self[self._expand_key(key)]
            else:
                start, length, step = self._resolve(item, dim, count)
            if dim == 0 and (on_chip or ap.index is not None):
                start, length = self._lead(start, length or 1, step, count)
                partition += start
                pairs.append((stride, length))
                continue
            offset += start * stride
            if length is not None:
                pairs.append((stride * step, length))
        if len(pairs) <= on_chip:
            pairs.append((1, 1))
        return NkiTensor(AccessPattern(ap.buffer, offset, tuple(pairs), ap.dtype, partition, ap.index), self.shared)

    def _lead(self, start: int, length: int, step: int, count: int) -> tuple[int, int]:
        """Start and length along the partition dimension or an indirect one, where only some slices are possible."""
        if self.access.index is not None and (start, length, step) != (0, count, 1):
            raise fail(
                "E0203",
                "the dimension that a runtime index selects cannot be sliced",
                fix="slice the index tensor instead",
            )
        if step != 1 and length != 1:
            raise fail(
                "E0203",
                f"partitions of {self.name} are taken with step {step}; engines read neighbouring partitions only",
            )
        return start, length

    def _expand_key(self, key: tuple) -> tuple:
        dots = [i for i, item in enumerate(key) if item is Ellipsis]
        given = len(key) - len(dots)
        if len(dots) > 1 or given > self.ndim:
            what = "more than one Ellipsis" if len(dots) > 1 else f"{given} indices"
            raise fail("E0201", f"{self.name} has {self.ndim} dimensions, the index has {what}")
        at = dots[0] if dots else len(key)
        full = (slice(None),) * (self.ndim - given)
        return (*key[:at], *full, *key[at + len(dots) :])

    def _resolve(self, item: Any, dim: int, count: int) -> tuple[int, int | None, int]:
        """Start, length (None for an integer) and step of one index, checked against the `count` of its dimension."""
        if type(item) is slice:
            step = 1 if item.step is None else item.step
            start = 0 if item.start is None else item.start
            stop = count if item.stop is None else item.stop
            try:
                start, stop, step = operator.index(start), operator.index(stop), operator.index(step)
            except TypeError:
                raise self._bad_index(item, dim) from None
            if step < 1:
                raise fail("E0203", f"the step of a slice is at least 1; dimension {dim} of {self.name} got {step}")
            first = start + count if start < 0 else start
            last = stop + count if stop < 0 else stop
            if not 0 <= first < last <= count:
                why = "is empty" if 0 <= last <= first <= count else "reaches outside"
                raise fail("E0201", f"slice {start}:{stop} {why}: dimension {dim} of {self.name} has {count} elements")
            return first, -(-(last - first) // step), step
        if type(item) is DynamicSlice:
            if not (item.start >= 0 and item.size > 0 and item.start + item.size <= count):
                raise fail(
                    "E0201",
                    f"ds({item.start}, {item.size}) reaches outside: dimension {dim} of {self.name} has {count}",
                )
            return item.start, item.size, 1
        try:
            position = operator.index(item)
        except TypeError:
            raise self._bad_index(item, dim) from None
        if isinstance(item, bool):
            raise self._bad_index(item, dim)
        first = position + count if position < 0 else position
        if not 0 <= first < count:
            raise fail("E0201", f"index {item} reaches outside: dimension {dim} of {self.name} has {count} elements")
        return first, None, 1

    def _bad_index(self, item: Any, dim: int) -> RanvierError:
        if isinstance(item, NkiTensor) or (
            isinstance(item, slice) and any(isinstance(i, NkiTensor) for i in (item.start, item.stop))
        ):
            return fail(
                "E0104",
                f"dimension {dim} of {self.name} is indexed by a tensor",
                fix="use vector_select, which reads one row per partition",
            )
        hint = (
            "use expand_dim for a new dimension"
            if item is None
            else "an index is made of integers, slices, nl.ds and ..."
        )
        return fail("E0203", f"{item!r} is not an index (dimension {dim} of {self.name})", fix=hint)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise fail(
            "E0104", "tensors are not assigned to", fix="use nisa.tensor_copy, nl.store, or the dst of an instruction"
        )

    __iter__ = None

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        raise fail(
            "E0103", "the values of a tensor are not known while the kernel is made, so it cannot decide a branch"
        )

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """Elements start, start + step, ... before `end` along `dim`."""
        dim = self._dim(dim)
        return self[(slice(None),) * dim + (slice(start, end, step),)]

    def select(self, dim: int, index: int | NkiTensor) -> NkiTensor:
        """Element `index` along `dim`, which is dropped (kept with size 1 if it is the partition dimension)."""
        dim = self._dim(dim)
        if isinstance(index, NkiTensor):
            raise fail(
                "E0104",
                f"select by a tensor along dimension {dim} of {self.name}",
                fix="use an integer, or vector_select",
            )
        return self[(slice(None),) * dim + (index,)]

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Rows of an HBM tensor, one per partition: row vector_offset[p, 0] for partition p. `dim` is 0.

        `vector_offset` is an integer tensor [P, 1] in SBUF; dimension 0 of the result has size P and cannot be sliced.
        """
        if dim != 0 or self.on_chip or self.access.index is not None:
            raise fail(
                "E0203",
                f"vector_select works along dimension 0 of an HBM tensor without an index, not {dim} of {self!r}",
            )
        stride, bound = self.access.pattern[0]
        return self._indirect(
            vector_offset, stride, bound, self.access.offset, self.access.pattern[1:], self.access.dtype
        )

    def _indirect(
        self, index: NkiTensor, stride: int, bound: int, offset: int, inner: tuple[Pair, ...], dtype: DType
    ) -> NkiTensor:
        if (
            not isinstance(index, NkiTensor)
            or index.access.space is not Space.SBUF
            or index.access.free_elements != 1
            or not index.dtype.is_integer
        ):
            raise fail("E0203", f"the vector of indices is {index!r}; it must be an integer tensor (P, 1) in SBUF")
        pattern = ((stride, index.access.partitions), *inner)
        made = AccessPattern(self.access.buffer, offset, pattern, dtype, 0, Indirect(index.access, stride, bound))
        return NkiTensor(self._bounded(made), self.shared)

    # -- reshaping -----------------------------------------------------------------------------------------------------
    def _dim(self, dim: int, *, insert: bool = False, lead: bool = True) -> int:
        """`dim` as a position from the front; with `lead` False the partition dimension is refused."""
        size = self.ndim + insert
        if not isinstance(dim, (int, np.integer)) or not -size <= dim < size:
            raise fail("E0203", f"dimension {dim} of {self.name}, which has {self.ndim} dimensions")
        dim = int(dim) % size
        if dim == 0 and not lead and (self.on_chip or self.access.index is not None):
            raise fail("E0203", f"dimension 0 of {self.name} is the partition dimension; it stays as it is")
        return dim

    def _with(self, pairs: Sequence[Pair]) -> NkiTensor:
        ap = self.access
        return NkiTensor(
            AccessPattern(ap.buffer, ap.offset, tuple(pairs), ap.dtype, ap.partition, ap.index), self.shared
        )

    def permute(self, dims: Sequence[int]) -> NkiTensor:
        """Dimensions in the order `dims`; the partition dimension stays first."""
        dims = _integers("the order of dimensions", dims)
        if sorted(dims) != list(range(self.ndim)):
            raise fail("E0203", f"{tuple(dims)} is not an order of the {self.ndim} dimensions of {self.name}")
        if dims[0] != 0:
            self._dim(0, lead=False)
        return self._with([self.access.pattern[d] for d in dims])

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """`dim`, which has size 1, repeated `size` times (stride 0)."""
        dim, (size,) = self._dim(dim, lead=False), _integers("the size", (size,))
        if self.shape[dim] != 1 or size < 1:
            raise fail(
                "E0203",
                f"dimension {dim} of {self.name} has size {self.shape[dim]}; only size 1 can be broadcast (to {size})",
            )
        pairs = list(self.access.pattern)
        pairs[dim] = (0, size)
        return self._with(pairs)

    def expand_dim(self, dim: int) -> NkiTensor:
        """A new dimension of size 1 at position `dim`."""
        dim = self._dim(dim, insert=True, lead=False)
        pairs = list(self.access.pattern)
        pairs.insert(dim, (pairs[dim][0] * pairs[dim][1] if dim < len(pairs) else 1, 1))
        return self._with(pairs)

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Without `dim`, which has size 1. One dimension (on chip: two) is left at least."""
        dim = self._dim(dim, lead=False)
        if self.shape[dim] != 1:
            raise fail(
                "E0203", f"dimension {dim} of {self.name} has size {self.shape[dim]}; only size 1 can be squeezed"
            )
        if self.ndim <= 1 + self.on_chip:
            raise fail("E0203", f"{self.name} has {self.ndim} dimensions; none can be removed")
        return self._with(self.access.pattern[:dim] + self.access.pattern[dim + 1 :])

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        """`dim` split into `shape` (one -1 is worked out)."""
        dim = self._dim(dim)
        parts = infer(_integers("the shape", shape), self.shape[dim])
        if parts is None:
            raise fail(
                "E0203",
                f"dimension {dim} of {self.name} has size {self.shape[dim]}; {tuple(shape)} does not multiply to that",
            )
        if dim == 0 and parts == (self.shape[0],):
            return self
        self._dim(dim, lead=False)
        stride, _ = self.access.pattern[dim]
        split = tuple((s * stride, c) for s, c in row_major(parts))
        return self._with((*self.access.pattern[:dim], *split, *self.access.pattern[dim + 1 :]))

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Dimensions start_dim to end_dim (inclusive) merged into one; they must follow each other without a gap."""
        first, last = self._dim(start_dim, lead=False), self._dim(end_dim)
        group = self.access.pattern[first : last + 1]
        if first > last:
            raise fail("E0203", f"flatten_dims({start_dim}, {end_dim}): the first dimension comes after the last")
        merged = restride(group, (math.prod(count for _, count in group),))
        if merged is None:
            raise fail(
                "E0203",
                f"dimensions {first} to {last} of {self.name} have [stride, count] {list(group)}: merging needs a copy",
            )
        return self._with((*self.access.pattern[:first], *merged, *self.access.pattern[last + 1 :]))

    def reshape(self, shape: Sequence[int]) -> NkiTensor:
        """The same elements in the same order with another shape; the partition dimension stays as it is."""
        shape = _integers("the shape", shape)
        if math.prod(shape) != self.size or any(size < 1 for size in shape):
            raise fail(
                "E0203", f"{self.name} of shape {self.shape} has {self.size} elements, shape {shape} has another number"
            )
        lead = int(self.on_chip or self.access.index is not None)
        if lead and (shape[0] != self.shape[0] or len(shape) < 1 + self.on_chip):
            raise fail(
                "E0203",
                f"reshape of {self.name} from {self.shape} to {shape}: its partition dimension stays {self.shape[0]}, "
                f"beside another one",
            )
        made = restride(self.access.pattern[lead:], shape[lead:])
        if made is None:
            raise fail(
                "E0203",
                f"{self.name} with [stride, count] {self.get_pattern()} cannot take shape {shape} without a copy",
            )
        return self._with((*self.access.pattern[:lead], *made))

    def rearrange(
        self, src_pattern: Sequence, dst_pattern: Sequence, fixed_sizes: Mapping[str, int] | None = None
    ) -> NkiTensor:
        """Split, reorder and merge dimensions by name: `t.rearrange(("p", ("h", "w")), ("p", "w", "h"), {"h": 4})`."""
        sizes = dict(fixed_sizes or {})
        groups = [(g,) if isinstance(g, str) else tuple(g) for g in src_pattern]
        names = [name for group in groups for name in group]
        wanted = [(g,) if isinstance(g, str) else tuple(g) for g in dst_pattern]
        if (
            len(groups) != self.ndim
            or sorted(names) != sorted(n for g in wanted for n in g)
            or len(set(names)) != len(names)
        ):
            raise fail(
                "E0203",
                f"rearrange from {src_pattern} to {dst_pattern}: each of the {self.ndim} dimensions of {self.name} "
                f"is named once on both sides",
            )
        split = self
        for dim in reversed(range(self.ndim)):
            if len(groups[dim]) > 1:
                split = split.reshape_dim(dim, [sizes.get(name, -1) for name in groups[dim]])
        moved = split.permute([names.index(name) for group in wanted for name in group])
        for dim, group in enumerate(wanted):
            if len(group) > 1:
                moved = moved.flatten_dims(dim, dim + len(group) - 1)
        return moved

    def view(self, dtype: object) -> NkiTensor:
        """The same bytes as elements of `dtype`; the last dimension, which must be dense, grows or shrinks."""
        to, ap = as_dtype(dtype), self.access
        if ap.index is not None:
            raise fail(
                "E0203",
                f"{self.name} has a runtime index; its dtype cannot be reinterpreted",
                fix="use view before the index",
            )
        lead = int(self.on_chip)
        made = rescale(ap.pattern[lead:], ap.offset, ap.dtype.itemsize, to.itemsize)
        if made is None:
            raise fail(
                "E0203",
                f"{ap.dtype} elements, [stride, count] {self.get_pattern()} from {self.offset}, cannot be seen as {to}",
            )
        offset, pairs = made
        return NkiTensor(AccessPattern(ap.buffer, offset, (*ap.pattern[:lead], *pairs), to, ap.partition), self.shared)

    reinterpret_cast = view

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: object = None,
        vector_offset: NkiTensor | None = None,
        indirect_dim: int = 0,
        dtype: object = None,
    ) -> NkiTensor:
        """A raw access pattern on the whole buffer, whatever view this is: [[stride, count], ...] of `dtype` elements.

        `offset` counts from the start of the buffer (None: this view's own). On chip the first pair walks partitions,
        and its stride is a whole partition. `vector_offset` is as in `vector_select`, on dimension 0 of the buffer.
        Raises E0201 when the pattern reaches outside, E0203 when it is not possible, E0104 for a `scalar_offset`.
        """
        to = self.dtype if dtype is None else as_dtype(dtype)
        if scalar_offset is not None:
            raise fail(
                "E0104", "ap with a scalar_offset", fix="use vector_offset, or an offset known while the kernel is made"
            )
        if offset is None:
            offset = self.offset * self.dtype.itemsize // to.itemsize
        pairs = self._pairs(pattern)
        if any(count < 1 for _, count in pairs) or len(pairs) < 1 + self.on_chip:
            raise fail("E0203", f"the pattern {list(pattern)} has no elements or too few dimensions for {self.name}")
        buffer = self.access.buffer
        if vector_offset is not None:
            if self.on_chip or indirect_dim != 0:
                raise fail(
                    "E0203",
                    f"vector_offset selects along dimension 0 of HBM tensors, not {indirect_dim} of {self!r}",
                )
            stride = math.prod(buffer.shape[1:]) * buffer.dtype.itemsize // to.itemsize
            return self._indirect(vector_offset, stride, buffer.shape[0], offset, pairs[1:], to)
        if not self.on_chip:
            return NkiTensor(self._bounded(AccessPattern(buffer, offset, pairs, to)), self.shared)
        row = buffer.bytes_per_partition // to.itemsize
        if pairs[0][1] > 1 and pairs[0][0] != row:
            raise fail(
                "E0203",
                f"the first pair walks partitions of {self.name}, so its step is {row}, not {pairs[0][0]}",
            )
        made = AccessPattern(buffer, offset % row, ((1, pairs[0][1]), *pairs[1:]), to, offset // row)
        return NkiTensor(self._bounded(made), self.shared)

    def _pairs(self, pattern: Sequence[Sequence[int]]) -> tuple[Pair, ...]:
        try:
            return tuple((operator.index(step), operator.index(count)) for step, count in pattern)
        except (TypeError, ValueError):
            raise fail("E0203", f"the pattern is {pattern!r}; it is made of pairs [stride, count]") from None

    def _bounded(self, ap: AccessPattern) -> AccessPattern:
        if not ap.is_within_buffer:
            (low, high), limit = ap.extent, ap.buffer.bytes_per_partition
            rows = ap.partition + ap.partitions if ap.space.on_chip else 0
            raise fail(
                "E0201",
                f"the pattern touches bytes {low} to {high} of {limit} of {self.name}"
                + (f", partitions up to {rows} of {ap.buffer.partitions}" if rows else ""),
            )
        return ap

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        raise fail("E0104", "indirect views", fix="use nisa.local_gather or nisa.nc_n_gather")

    # -- values --------------------------------------------------------------------------------------------------------
    def numpy(self) -> np.ndarray:
        """The values, as a copy, in an eager run. What was never written is NaN (integers: all bits set)."""
        return current().read(self)

    def __repr__(self) -> str:
        return f"NkiTensor({self.name}, {self.shape}, {self.dtype}, {self.buffer.value})"

    def __str__(self) -> str:
        builder = maybe_current()
        return f"{self!r}\n{builder.read(self)}" if builder is not None and builder.has_values else repr(self)
