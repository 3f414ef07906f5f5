"""Shape rules shared by several operations."""

from __future__ import annotations

from collections.abc import Sequence

from ranvier.graph.core import Op, TensorType


def broadcast_shapes(op: Op, *types: TensorType) -> tuple[int, ...]:
    """The common shape of `types` by numpy's broadcasting. Raises E0601."""
    rank = max(t.rank for t in types)
    result = []
    for axis in range(-rank, 0):
        extents = {t.shape[axis] for t in types if -axis <= t.rank} - {1}
        if len(extents) > 1:
            raise op.reject(f"shapes do not broadcast: axis {axis} has extents {sorted(extents)}", *types)
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def check_axis(op: Op, axis: int, rank: int, *types: TensorType) -> None:
    """Raises E0601 unless ``0 <= axis < rank``."""
    if not 0 <= axis < rank:
        raise op.reject(f"axis {axis} is not in 0..{rank - 1}", *types)


def check_axes(op: Op, axes: Sequence[int], rank: int, *types: TensorType) -> None:
    """Raises E0601 unless `axes` ascend, without repetition, within the rank."""
    if list(axes) != sorted(set(axes)) or any(not 0 <= a < rank for a in axes):
        raise op.reject(f"axes {tuple(axes)} must ascend within 0..{rank - 1}", *types)


def check_same_dtype(op: Op, *types: TensorType) -> None:
    """Raises E0601 unless all dtypes are one."""
    if any(t.dtype is not types[0].dtype for t in types):
        raise op.reject("operands differ in dtype; insert a cast", *types)


def check_float(op: Op, *types: TensorType) -> None:
    """Raises E0601 unless all dtypes are floats."""
    if not all(t.dtype.is_float for t in types):
        raise op.reject("operands must be floats", *types)


def check_integer(op: Op, *types: TensorType) -> None:
    """Raises E0601 unless all dtypes are integers."""
    if not all(t.dtype.is_integer for t in types):
        raise op.reject("indices must be integers", *types)
