"""Free and used byte ranges of an on-chip memory while a kernel is placed."""

from __future__ import annotations

from bisect import bisect_left, insort

ALIGN_BYTES = 64
"""Ranges start at multiples of this, so that every element type and fast mode of an engine finds its alignment."""


class Memory:
    """Byte ranges of `capacity` bytes per partition. A range holds one buffer in all partitions.

    Ranges of at most `bank` bytes lie within one bank, larger ones start at a bank border and take whole banks
    (0: no banks). Search continues where the last range was taken, so that memory is reused as late as possible and
    successive tiles do not wait for each other; with banks it continues in the next bank.
    """

    def __init__(self, capacity: int, bank: int = 0):
        self.capacity, self.bank = capacity // ALIGN_BYTES * ALIGN_BYTES, bank
        self.cursor = 0
        self.blocks: list[tuple[int, int, str]] = []  # (start, end, name), sorted
        self.start: dict[str, int] = {}

    def size(self, size_bytes: int) -> int:
        """What a buffer of `size_bytes` per partition takes."""
        unit = self.bank if self.bank and size_bytes > self.bank else ALIGN_BYTES
        return -(-max(size_bytes, 1) // unit) * unit

    def fit(self, low: int, high: int, size: int) -> int | None:
        """The first start within the free range from `low` to `high` where `size` bytes may lie."""
        if self.bank:
            if size > self.bank:
                low = -(-low // self.bank) * self.bank
            elif low // self.bank != (low + size - 1) // self.bank:
                low = (low // self.bank + 1) * self.bank
        return low if low + size <= high else None

    def find(self, size: int) -> int | None:
        """Where a range of `size` bytes may start: the first place after the cursor, else the first of all."""
        k = bisect_left(self.blocks, (self.cursor,))
        at = max(self.cursor, self.blocks[k - 1][1]) if k else self.cursor
        found = self._first(k, at, size)
        return self._first(0, 0, size) if found is None else found

    def _first(self, k: int, at: int, size: int) -> int | None:
        for start, end, _ in self.blocks[k:] if k else self.blocks:
            if start - at >= size:
                found = self.fit(at, start, size)
                if found is not None:
                    return found
            at = end
        return self.fit(at, self.capacity, size)

    def find_last(self, size: int) -> int | None:
        """The last place where a range of `size` bytes may start (memory without banks)."""
        high = self.capacity
        for start, end, _ in reversed(self.blocks):
            if high - end >= size:
                return high - size
            high = start
        return high - size if high >= size else None

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
