"""Strided views of HBM tensors, and how they meet the layouts of on-chip tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ranvier.compiler.layout import Layout
from ranvier.dtypes import DType
from ranvier.isa.access import AccessPattern, Buffer

Pairs = tuple[tuple[int, int], ...]
"""(stride, count) in elements, outermost first."""


def merged(pairs: Pairs) -> Pairs:
    """The same walk with fewer pairs: counts of 1 dropped, neighbours that continue each other joined."""
    out: list[tuple[int, int]] = []
    for stride, count in pairs:
        if count == 1:
            continue
        if out and out[-1][0] == stride * count:
            out[-1] = (stride, out[-1][1] * count)
        else:
            out.append((stride, count))
    return tuple(out)


@dataclass(frozen=True, slots=True)
class HbmView:
    """A tensor of `shape` that lies in HBM `buffer` with any strides (0 for broadcast dimensions), in elements."""

    buffer: Buffer
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def whole(cls, buffer: Buffer) -> HbmView:
        strides, step = [], 1
        for count in reversed(buffer.shape):
            strides.append(step)
            step *= count
        return cls(buffer, 0, buffer.shape, tuple(reversed(strides)))

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def pairs(self) -> Pairs:
        return tuple(zip(self.strides, self.shape, strict=True))

    def permute(self, order: tuple[int, ...]) -> HbmView:
        return replace(self, shape=tuple(self.shape[i] for i in order), strides=tuple(self.strides[i] for i in order))

    def broadcast(self, shape: tuple[int, ...]) -> HbmView:
        """As numpy broadcasts to `shape`."""
        lead = len(shape) - len(self.shape)
        strides = [0] * lead
        for size, stride, wanted in zip(self.shape, self.strides, shape[lead:], strict=True):
            strides.append(0 if size == 1 and wanted != 1 else stride)
        return replace(self, shape=shape, strides=tuple(strides))

    def slice(self, starts: tuple[int, ...], limits: tuple[int, ...], steps: tuple[int, ...]) -> HbmView:
        offset = self.offset + sum(s * start for s, start in zip(self.strides, starts, strict=True))
        shape = tuple(-(-(hi - lo) // st) for lo, hi, st in zip(starts, limits, steps, strict=True))
        strides = tuple(s * st for s, st in zip(self.strides, steps, strict=True))
        return HbmView(self.buffer, offset, shape, strides)

    def reshape(self, shape: tuple[int, ...]) -> HbmView | None:
        """The view with another shape, or None where the strides would need a copy."""
        pairs = self.regroup(shape)
        if pairs is None:
            return None
        strides = []
        for group, size in zip(pairs, shape, strict=True):
            if len(group) > 1:
                return None
            strides.append(group[0][0] if group else 1 if size == 1 else 0)
        return HbmView(self.buffer, self.offset, shape, tuple(strides))

    def regroup(self, sizes: tuple[int, ...]) -> list[Pairs] | None:
        """The walk in row-major order cut into groups of `sizes` elements; None where a border falls inside a pair."""
        todo = list(reversed(merged(self.pairs)))
        groups: list[Pairs] = []
        for size in reversed(sizes):
            group: list[tuple[int, int]] = []
            have = 1
            while have < size:
                if not todo:
                    return None
                stride, count = todo.pop(0)
                need = size // have
                if count > need:
                    if size % have or count % need:
                        return None
                    todo.insert(0, (stride * need, count // need))
                    count = need
                if size % (have * count):
                    return None
                group.insert(0, (stride, count))
                have *= count
            groups.insert(0, merged(tuple(group)))
        return groups

    def access(self, pairs: Pairs, offset: int = 0) -> AccessPattern:
        return AccessPattern(self.buffer, self.offset + offset, pairs or ((1, 1),), self.buffer.dtype)

    def boxes(self, layout: Layout, start: int, size: int) -> Iterator[tuple[int, int, AccessPattern]] | None:
        """Rows [start, start + size) of axis b of `layout` as HBM accesses.

        Each is (first row, rows, access of shape [rows, a..., c...]).

        None where the view's dimensions do not split at the layout's borders (a contiguous copy always does).
        """
        groups = self.regroup((layout.a, layout.b, layout.c))
        if groups is None:
            return None
        a, b, c = groups
        return self._runs(a + c, b, start, size)

    def _runs(self, free: Pairs, b: Pairs, start: int, size: int) -> Iterator[tuple[int, int, AccessPattern]]:
        """Cut [start, start + size) of the walk `b` into pieces with one stride."""
        stride, inner = b[-1] if b else (0, 1)
        outer = b[:-1]
        done = 0
        while done < size:
            block, within = divmod(start + done, inner)
            count = min(inner - within, size - done)
            offset = within * stride
            for outer_stride, outer_count in reversed(outer):
                block, digit = divmod(block, outer_count)
                offset += digit * outer_stride
            yield done, count, self.access(((stride, count), *free), offset)
            done += count
