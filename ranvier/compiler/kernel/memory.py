"""Free and used byte ranges of an on-chip memory while a kernel is placed."""

from __future__ import annotations

from bisect import bisect_left, insort

ALIGN_BYTES = 64
"""Ranges start at multiples of this, so that every element type and every fast mode of an engine finds its alignment."""


class Memory:
    """Byte ranges of `capacity` bytes per partition. A range holds one buffer in all partitions.

    Ranges of at most `bank` bytes lie within one bank, larger ones start at a bank border and take whole banks
    (0: no banks). Search continues where the last range was taken, so that memory is reused as late as possible and
    successive tiles do not wait for each other; with banks it continues in the next bank.
    """

    def __init__(self, capacity: int, bank: int = 0):
        self.capacity, self.bank = capacity, bank
        self.cursor = 0
        self.blocks: list[tuple[int, int, str]] = []  # (start, end, name), sorted
        self.start: dict[str, int] = {}

    def size(self, size_bytes: int) -> int:
        """What a buffer of `size_bytes` per partition takes."""
        unit = self.bank if self.bank and size_bytes > self.bank else ALIGN_BYTES
        return -(-max(size_bytes, 1) // unit) * unit

    def gaps(self) -> list[tuple[int, int]]:
        """Free ranges, in order."""
        found, at = [], 0
        for start, end, _ in self.blocks:
            if start > at:
                found.append((at, start))
            at = end
        if at < self.capacity:
            found.append((at, self.capacity))
        return found

    def fit(self, low: int, high: int, size: int) -> int | None:
        """The first start within the free range from `low` to `high` where `size` bytes may lie."""
        if self.bank:
            if size > self.bank:
                low = -(-low // self.bank) * self.bank
            elif low // self.bank != (low + size - 1) // self.bank:
                low = (low // self.bank + 1) * self.bank
        return low if low + size <= high else None

    def find(self, size: int, *, from_end: bool = False) -> int | None:
        """Where a range of `size` bytes may start: after the cursor, else before it; with `from_end` the last place."""
        gaps = self.gaps()
        if from_end:
            return self._find_last(gaps, size)
        at = self.cursor
        for low, high in gaps:
            if high > at:
                found = self.fit(max(low, at), high, size)
                if found is not None:
                    return found
        for low, high in gaps:
            found = self.fit(low, high, size)
            if found is not None:
                return found
        return None

    def _find_last(self, gaps: list[tuple[int, int]], size: int) -> int | None:
        for low, high in reversed(gaps):
            at = (high - size) // ALIGN_BYTES * ALIGN_BYTES
            if self.bank:
                border = (at // self.bank + 1) * self.bank
                if size > self.bank:
                    at = at // self.bank * self.bank
                elif at + size > border:
                    at = border - size
            if at >= low:
                return at
        return None

    def take(self, name: str, start: int, size: int, *, move: bool = True) -> None:
        """Occupy a range for buffer `name`; with `move` the next search continues after it."""
        insort(self.blocks, (start, start + size, name))
        self.start[name] = start
        if move:
            at = start + size if not self.bank else (start // self.bank + max(1, size // self.bank)) * self.bank
            self.cursor = 0 if at >= self.capacity else at

    def release(self, name: str) -> None:
        """Free the range of buffer `name`."""
        start = self.start.pop(name)
        del self.blocks[bisect_left(self.blocks, (start,))]
