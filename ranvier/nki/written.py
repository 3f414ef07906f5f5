"""What matmuls have written in PSUM, element by element: decides what `accumulate=None` means."""

from __future__ import annotations

import numpy as np

from ranvier.isa.access import AccessPattern


class Written:
    """Regions of buffers that matmuls have written. Regions that repeat or do not touch cost a dictionary look-up."""

    def __init__(self) -> None:
        self._regions: dict[str, dict[tuple, AccessPattern]] = {}

    def add(self, ap: AccessPattern) -> bool | None:
        """Remember that a matmul writes `ap`. Had matmuls written it before? True: all, False: none, None: a part."""
        regions = self._regions.setdefault(ap.buffer.name, {})
        key = (ap.offset, ap.partition, ap.pattern, ap.dtype.itemsize)
        if key in regions:
            return True
        before = self._overlap(ap, list(regions.values())) if regions else False
        regions[key] = ap
        return before

    @staticmethod
    def _overlap(ap: AccessPattern, regions: list[AccessPattern]) -> bool | None:
        near = [other for other in regions if other.overlaps(ap)]
        if not near:
            return False
        mask = np.zeros((ap.buffer.partitions, ap.buffer.bytes_per_partition), np.bool_)
        for other in near:
            _view(mask, other)[...] = True
        touched = _view(mask, ap)
        return bool(touched.all()) or (None if touched.any() else False)

    def forget(self, name: str) -> None:
        """Forget what was written to the buffer `name`, which is no more."""
        self._regions.pop(name, None)


def _view(mask: np.ndarray, ap: AccessPattern) -> np.ndarray:
    """The first bytes of the elements of `ap` in a mask of one flag per byte."""
    size, pitch = ap.dtype.itemsize, mask.shape[1]
    strides = [pitch, *(stride * size for stride, _ in ap.pattern[1:])]
    return np.ndarray(ap.shape, np.bool_, mask, ap.partition * pitch + ap.offset * size, strides)
