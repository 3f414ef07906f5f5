"""A shadow of a buffer: which of its bytes were written."""

from __future__ import annotations

import numpy as np

from ranvier.isa.access import AccessPattern, Buffer

_WORD = 64


class Shadow:
    """Written bytes of one buffer, a bit per partition and byte (HBM: a flag per byte).

    On chip, plane i holds a 64-bit word per byte of the partitions 64 i to 64 i + 63; planes are made when something is
    first written there. A buffer that is known to be written everywhere keeps no planes at all, which is what nearly
    all buffers come to after one instruction.
    """

    __slots__ = ("_kind", "_planes", "_size_bytes", "_width", "complete")

    def __init__(self, buffer: Buffer, *, complete: bool = False):
        self.complete = complete
        self._size_bytes = buffer.size_bytes  # not the buffer, whose end is the end of its storage in an eager run
        self._width = max(1, buffer.bytes_per_partition)
        self._kind = np.dtype(np.uint64 if buffer.space.on_chip else np.uint8)
        self._planes: dict[int, np.ndarray] = {}

    def mark(self, ap: AccessPattern) -> None:
        """Remember that the elements of `ap` are written."""
        if self.complete:
            return
        if self._is_everything(ap):
            self._complete()
            return
        for index, mask in self._masks(ap):
            plane = self._planes.get(index)
            if plane is None:
                plane = self._planes[index] = np.zeros(self._width, self._kind)
            view = self._select(plane, ap)
            np.bitwise_or(view, mask, out=view)

    def written(self, ap: AccessPattern) -> bool:
        """Whether every element of `ap` was written."""
        if self.complete:
            return True
        for index, mask in self._masks(ap):
            plane = self._planes.get(index)
            if plane is None or np.bitwise_and.reduce(self._select(plane, ap), axis=None) & mask != mask:
                return False
        if self._is_everything(ap):
            self._complete()
        return True

    def _complete(self) -> None:
        self.complete = True
        self._planes.clear()

    def _is_everything(self, ap: AccessPattern) -> bool:
        if ap.size_bytes != self._size_bytes or not ap.is_contiguous:
            return False
        return ap.offset == 0 and ap.partition == 0

    def _masks(self, ap: AccessPattern) -> list[tuple[int, np.generic]]:
        """Plane numbers with the bits of the partitions that `ap` covers."""
        kind = self._kind.type
        if not ap.space.on_chip:
            return [(0, kind(1))]
        bits, found, index = ((1 << ap.partitions) - 1) << ap.partition, [], 0
        while bits:
            word = bits & (2**_WORD - 1)
            if word:
                found.append((index, kind(word)))
            bits, index = bits >> _WORD, index + 1
        return found

    def _select(self, plane: np.ndarray, ap: AccessPattern) -> np.ndarray:
        """The entries of `plane` that stand for the bytes of `ap`."""
        size, item = ap.dtype.itemsize, plane.itemsize
        if ap.is_contiguous:
            low = ap.offset * size
            count = ap.free_elements if ap.space.on_chip else ap.size
            return plane[low : low + count * size]
        shape = [*(count for _, count in ap.walk), size]
        strides = [*(stride * size * item for stride, _ in ap.walk), item]
        return np.ndarray(shape, plane.dtype, plane, ap.offset * size * item, strides)
