"""Move buffers out of SBUF when it is full: which ones, and the data movements that this takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ranvier import dtypes as dt
from ranvier.compiler.kernel.memory import Memory
from ranvier.ir.conflicts import footprint
from ranvier.isa.access import AccessPattern, Buffer, Space
from ranvier.isa.dma import DmaCopy
from ranvier.isa.record import Instruction
from ranvier.loc import Loc
from ranvier.target.spec import Engine

_PITCH_BYTES = 8
"""Rows of a spill buffer start at multiples of this: any element type then sees a whole number of elements a row."""


def choose_victims(memory: Memory, size: int, next_use: Callable[[str], int | None]) -> tuple[int, list[str]] | None:
    """A start for a range of `size` bytes and the buffers to move out for it.

    Of all places, the one whose buffers are needed again the latest (Belady's rule). `next_use` gives the position of
    the next access to a buffer, None for one that must stay. None if there is no place.
    """
    blocks = memory.blocks
    uses = [next_use(name) for _, _, name in blocks]
    best: tuple[int, int, list[str]] | None = None
    starts = sorted({0, *(start for start, _, _ in blocks), *(end for _, end, _ in blocks)})
    k = 0
    for at in starts:
        while k < len(blocks) and blocks[k][1] <= at:
            k += 1
        start = memory.fit(at, memory.capacity, size)
        if start is None:
            continue
        soonest, victims, j = 1 << 60, [], k
        while j < len(blocks) and blocks[j][0] < start + size:
            use = uses[j]
            if blocks[j][1] > start:
                if use is None:
                    break
                soonest = min(soonest, use)
                victims.append(blocks[j][2])
            j += 1
        else:
            if best is None or soonest > best[0]:
                best = soonest, start, victims
    return None if best is None else (best[1], best[2])


def spill_buffer(buffer: Buffer) -> Buffer:
    """The HBM tensor that takes the contents of `buffer`: one row of bytes per partition."""
    pitch = -(-buffer.bytes_per_partition // _PITCH_BYTES) * _PITCH_BYTES
    return Buffer(f"{buffer.name}.spill", Space.HBM, (buffer.partitions, pitch), dt.uint8, loc=buffer.loc)


def _row(ap: AccessPattern, spilled: Buffer) -> AccessPattern:
    """The bytes in the spill buffer that keep those of `ap`."""
    row = spilled.shape[1] // ap.dtype.itemsize
    pattern = ((row, ap.partitions), *ap.pattern[1:])
    return AccessPattern(spilled, ap.partition * row + ap.offset, pattern, ap.dtype)


def _copy(name: str, to: AccessPattern, source: AccessPattern, loc: Loc | None) -> Instruction:
    fields: dict[str, Any] = {"dst": to, "src": source, "engine": Engine.SYNC, "name": name, "loc": loc}
    return DmaCopy(**fields)


def store(buffer: Buffer, regions: list[AccessPattern], spilled: Buffer, loc: Loc | None) -> list[Instruction]:
    """Data movements that save `regions` of `buffer`."""
    return [_copy("spill", _row(ap, spilled), dataclasses.replace(ap, buffer=buffer), loc) for ap in regions]


def reload(buffer: Buffer, regions: list[AccessPattern], spilled: Buffer, loc: Loc | None) -> list[Instruction]:
    """Data movements that bring `regions` back into `buffer`."""
    return [_copy("reload", dataclasses.replace(ap, buffer=buffer), _row(ap, spilled), loc) for ap in regions]


def written_regions(buffer: Buffer, writes: list[AccessPattern]) -> list[AccessPattern]:
    """Access patterns that together touch exactly what `writes` do, joined where they make up rectangles.

    Only these are saved: reading the rest of the buffer would read what nothing has written.
    """
    whole = footprint(buffer.all)
    rectangles: set[tuple[int, int, int, int]] = set()
    others: dict[tuple, AccessPattern] = {}
    for ap in writes:
        at = footprint(ap)
        if at.period == 0 and at.dense:
            rectangles.add((at.first, at.last, at.low, at.high))
        else:
            others[(ap.offset, ap.pattern, ap.dtype, ap.partition)] = ap
    joined = _join(_join(sorted(rectangles), 2), 0)
    if (whole.first, whole.last, whole.low, whole.high) in joined:
        return [buffer.all]
    return [_rectangle(buffer, *r) for r in joined] + list(others.values())


def _join(rectangles: list[tuple[int, int, int, int]], axis: int) -> list[tuple[int, int, int, int]]:
    """Join rectangles (first, last, low, high) that touch along `axis` (0 partitions, 2 bytes) and agree otherwise."""
    other = 2 - axis
    joined: list[tuple[int, int, int, int]] = []
    for r in sorted(rectangles, key=lambda r: (r[other], r[other + 1], r[axis])):
        if joined:
            last = joined[-1]
            if last[other : other + 2] == r[other : other + 2] and r[axis] <= last[axis + 1]:
                merged = list(last)
                merged[axis + 1] = max(last[axis + 1], r[axis + 1])
                joined[-1] = (merged[0], merged[1], merged[2], merged[3])
                continue
        joined.append(r)
    return joined


def _rectangle(buffer: Buffer, first: int, last: int, low: int, high: int) -> AccessPattern:
    size = buffer.dtype.itemsize
    dtype = buffer.dtype if low % size == 0 and high % size == 0 else dt.uint8
    pattern = ((1, last - first), (1, (high - low) // dtype.itemsize))
    return AccessPattern(buffer, low // dtype.itemsize, pattern, dtype, first)
