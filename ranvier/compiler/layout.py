"""Layouts: which axis of a tensor lies on partitions.

A tensor's elements in row-major order are seen as a box [a, b, c]. Axis b lies on partitions, in chunks of at most 128;
a and c lie in the free dimension of each partition. All layouts that matter are of this form: rows on partitions is
[1, rows, columns], columns on partitions is [rows, columns, 1], channels of images is [images, channels, pixels]. A
reshape never changes a layout, since it never changes the order of the elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ranvier.errors import error
from ranvier.kernels.sizes import PARTITIONS


@dataclass(frozen=True, slots=True)
class Layout:
    """The box [a, b, c] with b on partitions. Chunks of b do not cross multiples of `segment` (0: no such limit)."""

    a: int
    b: int
    c: int
    segment: int = 0

    def __post_init__(self):
        # Limits that the chunks of 128 respect anyway are dropped, so that equal chunkings compare equal.
        if self.segment and (self.segment >= self.b or self.segment % PARTITIONS == 0):
            object.__setattr__(self, "segment", 0)

    def chunks(self) -> list[tuple[int, int]]:
        """(start, size) of the chunks of axis b, one per on-chip tile."""
        found = []
        limit = self.segment or self.b
        for base in range(0, self.b, limit):
            end = min(base + limit, self.b)
            found += [(start, min(PARTITIONS, end - start)) for start in range(base, end, PARTITIONS)]
        return found

    @property
    def free(self) -> int:
        """Elements per partition."""
        return self.a * self.c

    @property
    def size(self) -> int:
        return self.a * self.b * self.c

    def __str__(self) -> str:
        return f"[{self.a}|{self.b}|{self.c}]" + (f"/{self.segment}" if self.segment else "")


def rows(shape: tuple[int, ...], split: int = -1, segment: int = 0) -> Layout:
    """The dimensions before `split` on partitions, the others free."""
    at = split % len(shape) if shape else 0
    return Layout(1, math.prod(shape[:at]), math.prod(shape[at:]), segment)


def columns(shape: tuple[int, ...], split: int = -1, segment: int = 0) -> Layout:
    """The dimensions from `split` on on partitions, the others free."""
    at = split % len(shape) if shape else 0
    return Layout(math.prod(shape[:at]), math.prod(shape[at:]), 1, segment)


def channels(shape: tuple[int, ...]) -> Layout:
    """Dimension 1 (the channels of a batch of images) on partitions."""
    return Layout(shape[0], shape[1], math.prod(shape[2:]))


def dims_of(layout: Layout, shape: tuple[int, ...]) -> tuple[range, range, range] | None:
    """The dimensions of `shape` that make up a, b and c; None where a border falls inside a dimension."""
    borders, product, index = [], 1, 0
    for target in (layout.a, layout.a * layout.b):
        while product < target and index < len(shape):
            product *= shape[index]
            index += 1
        if product != target:
            return None
        borders.append(index)
    if product * math.prod(shape[index:]) != layout.size:
        raise error("E0901", f"layout {layout} does not fit shape {shape}")
    first, second = borders
    return range(first), range(first, second), range(second, len(shape))
