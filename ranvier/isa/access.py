"""Buffers and access patterns: how an instruction names the memory it touches.

A `Buffer` is a tensor in HBM, SBUF or PSUM. An `AccessPattern` selects elements of one, in order, as the hardware does:
a start and (stride, count) pairs. On chip the first pair walks partitions and the others walk elements within a
partition, the same in every partition; in HBM all pairs walk elements of the tensor.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ranvier.dtypes import DType
from ranvier.lazy import lazy
from ranvier.loc import Loc


class Space(enum.Enum):
    """A memory: HBM (device memory), SBUF (128 partitions of on-chip memory), PSUM (matmul accumulators)."""

    HBM = "hbm"
    SBUF = "sbuf"
    PSUM = "psum"

    @property
    def on_chip(self) -> bool:
        return self is not Space.HBM


class BufferKind(enum.Enum):
    """Who provides or keeps the contents of a buffer."""

    TEMP = "temp"
    INPUT = "input"
    OUTPUT = "output"
    PARAM = "param"
    CONSTANT = "constant"

    @property
    def preset(self) -> bool:
        """Written before the program starts."""
        return self in (BufferKind.INPUT, BufferKind.PARAM, BufferKind.CONSTANT)


@dataclass(frozen=True, eq=True)
class Buffer:
    """A tensor in one memory. Names are unique within a kernel. On chip, dimension 0 is the partition dimension."""

    name: str
    space: Space
    shape: tuple[int, ...]
    dtype: DType
    kind: BufferKind = BufferKind.TEMP
    loc: Loc | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash(self.name)

    @lazy
    def partitions(self) -> int:
        return self.shape[0] if self.space.on_chip else 1

    @lazy
    def free_elements(self) -> int:
        """Elements within one partition; for HBM all elements."""
        return math.prod(self.shape[1:] if self.space.on_chip else self.shape)

    @lazy
    def bytes_per_partition(self) -> int:
        """Bytes within one partition; for HBM all bytes."""
        return self.free_elements * self.dtype.itemsize

    @property
    def size_bytes(self) -> int:
        return self.partitions * self.bytes_per_partition

    @lazy
    def all(self) -> AccessPattern:
        """The access pattern that covers the whole buffer in row-major order."""
        pairs, step = [], 1
        dims = self.shape[1:] if self.space.on_chip else self.shape
        for count in reversed(dims):
            pairs.append((step, count))
            step *= count
        if self.space.on_chip:
            pairs.append((1, self.shape[0]))
        return AccessPattern(self, 0, tuple(reversed(pairs)), self.dtype)


@dataclass(frozen=True)
class Indirect:
    """A dynamic index: row `ap[p, 0]` of the base is added, times `stride` elements, for each partition p.

    `ap` reads one integer per partition from SBUF; `bound` is the number of rows that exist (exclusive).
    """

    ap: AccessPattern
    stride: int
    bound: int


@dataclass(frozen=True)
class AccessPattern:
    """Elements of `buffer`: `offset` (in elements of `dtype`) plus all sums of stride x index over `pattern`.

    On chip `offset` counts within a partition, `partition` is the first partition (relative to the buffer) and the first
    pair is (1, partitions). With `index`, the leading pair's stride is replaced by the rows that it names.
    """

    buffer: Buffer
    offset: int
    pattern: tuple[tuple[int, int], ...]
    dtype: DType
    partition: int = 0
    index: Indirect | None = None

    @lazy
    def shape(self) -> tuple[int, ...]:
        return tuple(count for _, count in self.pattern)

    @lazy
    def partitions(self) -> int:
        """Partitions covered (the first count, for HBM as well)."""
        return self.pattern[0][1] if self.pattern else 1

    @lazy
    def free(self) -> tuple[tuple[int, int], ...]:
        return self.pattern[1:]

    @lazy
    def walk(self) -> tuple[tuple[int, int], ...]:
        """The pairs that walk elements: all in HBM, those after the partitions on chip."""
        return self.pattern[1:] if self.space.on_chip else self.pattern

    @lazy
    def inner_stride(self) -> int | None:
        """Elements from one free element to the next along the innermost axis longer than 1; None without one."""
        return next((stride for stride, count in reversed(self.free) if count > 1), None)

    @lazy
    def free_elements(self) -> int:
        """Elements per partition (N in the cost formulas)."""
        return math.prod(self.shape[1:])

    @lazy
    def free_dims(self) -> int:
        """Strides that the hardware needs for the free elements: dimensions that follow one another evenly are one."""
        pairs = [pair for pair in self.pattern[1:] if pair[1] > 1]
        return len(pairs) - sum(outer == inner * count for (outer, _), (inner, count) in pairwise(pairs))

    @lazy
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def space(self) -> Space:
        return self.buffer.space

    @lazy
    def extent(self) -> tuple[int, int]:
        """First and last-plus-one byte touched, within the partition (on chip) or within the tensor (HBM)."""
        pairs = self.walk
        if self.index is not None:
            low, high = 0, (self.index.bound - 1) * self.index.stride
            pairs = pairs[1:] if not self.space.on_chip else pairs
        else:
            low = high = 0
        for stride, count in pairs:
            reach = stride * (count - 1)
            low, high = (low + reach, high) if reach < 0 else (low, high + reach)
        size = self.dtype.itemsize
        return (self.offset + low) * size, (self.offset + high + 1) * size

    @property
    def is_within_buffer(self) -> bool:
        """Whether nothing outside of the buffer is touched; an indirect pattern counts as all rows it may name."""
        low, high = self.extent
        if low < 0 or high > self.buffer.bytes_per_partition:
            return False
        return not self.space.on_chip or 0 <= self.partition <= self.buffer.partitions - self.partitions

    @lazy
    def all_rows(self) -> AccessPattern:
        """An indirect pattern as all rows that it may name; any other as it is."""
        if self.index is None:
            return self
        return replace(self, pattern=((self.index.stride, self.index.bound), *self.pattern[1:]), index=None)

    @lazy
    def is_contiguous(self) -> bool:
        """Free elements lie one after the other (the partition stride does not count)."""
        step = 1
        for stride, count in reversed(self.walk):
            if count != 1 and stride != step:
                return False
            step *= count
        return True

    @lazy
    def run_elements(self) -> int:
        """Elements of the longest run, from the inside out, that is contiguous in memory."""
        run = 1
        for stride, count in reversed(self.walk):
            if count == 1:
                continue
            if stride != run:
                break
            run *= count
        return run

    def overlaps(self, other: AccessPattern) -> bool:
        """Whether both may touch a byte in common (bounding boxes; never false for patterns that do)."""
        if self.buffer.name != other.buffer.name:
            return False
        if self.space.on_chip and not (
            self.partition < other.partition + other.partitions and other.partition < self.partition + self.partitions
        ):
            return False
        (a, b), (c, d) = self.extent, other.extent
        return a < d and c < b
