"""Annotations for arguments of kernels, `nki.typing`: `def kernel(x: nt.tensor[128, 512])`. They are not checked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorShape:
    """What `tensor[128, 512]` is: a tensor of this shape."""

    shape: tuple[object, ...]


class tensor:
    """A tensor of any shape; `tensor[128, 512]` is one of that shape."""

    def __class_getitem__(cls, shape: object) -> TensorShape:
        return TensorShape(shape if isinstance(shape, tuple) else (shape,))
