"""Arithmetic of strided views: (stride, count) pairs in, pairs out. Nothing here knows tensors or memories."""

from __future__ import annotations

import math
from collections.abc import Sequence

Pair = tuple[int, int]


def row_major(shape: Sequence[int]) -> tuple[Pair, ...]:
    """The pairs of a dense tensor of `shape`."""
    pairs, step = [], 1
    for count in reversed(shape):
        pairs.append((step, count))
        step *= count
    return tuple(reversed(pairs))


def restride(pairs: Sequence[Pair], shape: Sequence[int]) -> tuple[Pair, ...] | None:
    """Pairs that walk the same elements in the same order with `shape`; None when that is not possible without a copy.

    `shape` has as many elements as `pairs`. Neighbours that follow each other without a gap are merged into runs; each
    new dimension must come out of one run.
    """
    runs: list[list[int]] = []
    for stride, count in pairs:
        if count == 1:
            continue
        if runs and runs[-1][0] == stride * count:
            runs[-1] = [stride, runs[-1][1] * count]
        else:
            runs.append([stride, count])
    result: list[Pair] = []
    for size in reversed(shape):
        if size == 1:
            result.append((result[-1][0] * result[-1][1] if result else 1, 1))
            continue
        stride, count = runs[-1]
        if count % size:
            return None
        result.append((stride, size))
        runs[-1] = [stride * size, count // size]
        if runs[-1][1] == 1:
            runs.pop()
    return tuple(reversed(result))


def infer(shape: Sequence[int], total: int) -> tuple[int, ...] | None:
    """`shape` with its one -1 replaced so that it has `total` elements; None when that is not possible."""
    unknown = [i for i, size in enumerate(shape) if size == -1]
    known = math.prod(size for size in shape if size != -1)
    if not unknown:
        return tuple(shape) if known == total else None
    if len(unknown) > 1 or known <= 0 or total % known:
        return None
    filled = list(shape)
    filled[unknown[0]] = total // known
    return tuple(filled)


def rescale(pairs: Sequence[Pair], offset: int, before: int, after: int) -> tuple[int, tuple[Pair, ...]] | None:
    """Offset and pairs of the same bytes when elements grow or shrink from `before` to `after` bytes.

    The last pair is the one whose count changes; it must be dense. None when the new elements do not fit.
    """
    stride, count = pairs[-1]
    if count != 1 and stride != 1:
        return None
    if before % after == 0:
        ratio = before // after
        outer = tuple((s * ratio, c) for s, c in pairs[:-1])
        return offset * ratio, (*outer, (1, count * ratio))
    ratio = after // before
    strides = [s for s, c in pairs[:-1] if c != 1]
    if after % before or count % ratio or offset % ratio or any(s % ratio for s in strides):
        return None
    outer = tuple((s // ratio, c) for s, c in pairs[:-1])
    return offset // ratio, (*outer, (1, count // ratio))
