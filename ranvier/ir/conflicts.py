"""Which accesses of one memory conflict: the bytes of an access pattern, and a memory of who touched them last.

Dependencies between instructions, and the check that a schedule respects them, both come from here. A pair of accesses
conflicts when they may have a byte in common and one of them writes.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from typing import NamedTuple

from ranvier.isa.access import AccessPattern, Space


class Footprint(NamedTuple):
    """The bytes that an access touches, as rows of a rectangle in each of some partitions.

    Bytes `low` to `high` (exclusive) bound them. With `period` 0 they are all of those; otherwise runs of `run` bytes
    start at `low` and every `period` bytes after it. `dense` says that every byte so described is touched; if not, they
    are an upper bound. Accesses of HBM lie in partition 0. `left` and `right` are `low` and `high` rounded outwards to
    whole rows, so that tiles of one matrix have few different borders.
    """

    low: int
    high: int
    first: int
    last: int
    period: int
    run: int
    dense: bool
    left: int
    right: int


def footprint(ap: AccessPattern, partition: int = 0, byte: int = 0) -> Footprint:
    """The bytes of `ap` when its buffer lies at `partition` and `byte`."""
    pattern, index, buffer = ap.pattern, ap.index, ap.buffer
    if buffer.space is Space.HBM:
        first, last = 0, 1
        if index is not None:
            pattern = ((index.stride, index.bound), *pattern[1:])
    else:
        first = partition + ap.partition
        last = first + pattern[0][1]
        pattern = pattern[1:] if index is None else ((index.stride, index.bound), *pattern[1:])
    low, high, period, run, dense = _bytes(ap.offset, pattern, ap.dtype.itemsize)
    if index is not None:
        dense = False
    if period:
        left = low // period * period
        right = min(-(-high // period) * period, max(high, buffer.bytes_per_partition))
        return Footprint(low + byte, high + byte, first, last, period, run, dense, left + byte, right + byte)
    low, high = low + byte, high + byte
    return Footprint(low, high, first, last, 0, run, dense, low, high)


@functools.lru_cache(maxsize=1 << 16)
def _bytes(offset: int, pairs: tuple[tuple[int, int], ...], size: int) -> tuple[int, int, int, int, bool]:
    """(low, high, period, run, dense) of elements of `size` bytes at `offset` plus strides and counts of `pairs`."""
    low = offset * size
    steps = []
    for stride, count in pairs:
        if count > 1 and stride != 0:
            low += min(0, stride * (count - 1)) * size
            steps.append((abs(stride) * size, count))
    high = low + size + sum(stride * (count - 1) for stride, count in steps)
    run = size
    rows: list[tuple[int, int]] = []
    for stride, count in sorted(steps):
        if not rows and stride <= run:
            run += stride * (count - 1)
        elif rows and stride == rows[-1][0] * rows[-1][1]:
            rows[-1] = (rows[-1][0], rows[-1][1] * count)
        else:
            rows.append((stride, count))
    if not rows:
        return low, high, 0, high - low, True
    period = rows[0][0]
    if all(stride % period == 0 for stride, _ in rows):
        return low, high, period, run, len(rows) == 1
    # Rows of rows that do not repeat evenly: the span of the inner ones stands for one run of the outermost.
    period = rows[-1][0]
    span = run + sum(stride * (count - 1) for stride, count in rows[:-1])
    if span < period:
        return low, high, period, span, False
    return low, high, 0, high - low, False


def overlap(a: Footprint, b: Footprint) -> bool:
    """Whether both may touch a byte in common. Exact for dense footprints of equal period or none."""
    if a.low >= b.high or b.low >= a.high or a.first >= b.last or b.first >= a.last:
        return False
    if a.period == b.period and a.period:
        shift = (b.low - a.low) % a.period
        return shift < a.run or a.period - shift < b.run
    return True


def _covers(a: Footprint, b: Footprint, low: int, high: int) -> bool:
    """Whether `a` touches every byte that `b` touches within bytes `low` to `high`, partitions aside."""
    if not a.dense or a.low > max(b.low, low) or a.high < min(b.high, high):
        return False
    if a.period == 0:
        return True
    return a.period == b.period and (b.low - a.low) % a.period + b.run <= a.run


class _Segment:
    """A range of bytes and the accesses that may still matter there, as (index, footprint)."""

    __slots__ = ("reads", "writes")

    def __init__(self, reads: list[tuple[int, Footprint]], writes: list[tuple[int, Footprint]]):
        self.reads = reads
        self.writes = writes


class ConflictMap:
    """The accesses so far to one memory, by address, without those that a later write hides completely.

    Accesses are given in program order. A hidden one needs no edge of its own: the write that hides it is ordered after
    it, and whatever conflicts with it conflicts with that write as well.
    """

    def __init__(self) -> None:
        self._starts: list[int] = [0]
        self._segments: list[_Segment] = [_Segment([], [])]

    def _split(self, at: int) -> int:
        """The number of the segment that starts at byte `at`, made if there is none."""
        i = bisect_left(self._starts, at)
        if i == len(self._starts) or self._starts[i] != at:
            before = self._segments[i - 1]
            self._starts.insert(i, at)
            self._segments.insert(i, _Segment(before.reads.copy(), before.writes.copy()))
        return i

    def read(self, index: int, at: Footprint, found: set[int]) -> None:
        """Add to `found` the earlier writes that a read of `at` by instruction `index` conflicts with."""
        starts, segments = self._starts, self._segments
        i = bisect_left(starts, at.left)
        end = i + 1
        if end >= len(starts) or starts[i] != at.left or starts[end] != at.right:
            i, end = self._split(at.left), self._split(at.right)
        entry = index, at
        for segment in segments[i:end]:
            for other, place in segment.writes:
                if overlap(place, at):
                    found.add(other)
            segment.reads.append(entry)

    def write(self, index: int, at: Footprint, found: set[int]) -> None:
        """Add to `found` the earlier accesses that a write of `at` by instruction `index` conflicts with."""
        starts, segments = self._starts, self._segments
        i = bisect_left(starts, at.left)
        end = i + 1
        if end >= len(starts) or starts[i] != at.left or starts[end] != at.right:
            i, end = self._split(at.left), self._split(at.right)
        entry = index, at
        empty = True
        for k in range(i, end):
            segment = segments[k]
            low, high = starts[k], starts[k + 1]
            if segment.reads:
                segment.reads = _meet(segment.reads, at, low, high, found)
            if segment.writes:
                segment.writes = _meet(segment.writes, at, low, high, found)
            empty = empty and not segment.reads and not segment.writes
            segment.writes.append(entry)
        if empty and end > i + 1:
            del starts[i + 1 : end], segments[i + 1 : end]


def _meet(
    entries: list[tuple[int, Footprint]], at: Footprint, low: int, high: int, found: set[int]
) -> list[tuple[int, Footprint]]:
    """Note which `entries` a write of `at` conflicts with; return what it leaves visible of them in `low` to `high`."""
    left = []
    if at.dense and not at.period and at.low <= low and high <= at.high:
        # The whole segment is overwritten in these partitions: the usual case, without the tests of bytes.
        first, last = at.first, at.last
        for entry in entries:
            other, place = entry
            if place.last <= first or last <= place.first or (place.period and not overlap(place, at)):
                left.append(entry)
                continue
            found.add(other)
            if place.first < first or last < place.last:
                left += _rest(entry, at)
        return left
    for entry in entries:
        other, place = entry
        if not overlap(place, at):
            left.append(entry)
            continue
        found.add(other)
        if not _covers(at, place, low, high):
            left.append(entry)
            continue
        left += _rest(entry, at)
    return left


def _rest(entry: tuple[int, Footprint], at: Footprint) -> list[tuple[int, Footprint]]:
    """What is left of `entry` in partitions other than those of `at`."""
    other, place = entry
    rest = []
    if place.first < at.first:
        rest.append((other, place._replace(last=at.first)))
    if at.last < place.last:
        rest.append((other, place._replace(first=at.last)))
    return rest
