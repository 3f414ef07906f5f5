"""Loops, programs and debugging of `nki.language`, and the sizes of tiles."""

from __future__ import annotations

import contextlib

from ranvier.nki.calls import public
from ranvier.nki.context import current, current_target
from ranvier.nki.create import tensor_argument
from ranvier.nki.tensor import NkiTensor, fail


@public
def affine_range(start, stop=None, step=1) -> range:
    """Numbers for a loop that is unrolled while the kernel is made; the same as Python's range."""
    return _range(start, stop, step)


@public
def sequential_range(start, stop=None, step=1) -> range:
    """Numbers for a loop that is unrolled while the kernel is made; the same as Python's range."""
    return _range(start, stop, step)


@public
def static_range(start, stop=None, step=1) -> range:
    """Numbers for a loop that is unrolled while the kernel is made; the same as Python's range."""
    return _range(start, stop, step)


def _range(start: object, stop: object, step: object) -> range:
    if any(isinstance(bound, NkiTensor) for bound in (start, stop, step)):
        raise fail(
            "E0104",
            "a loop whose bounds are read at run time",
            fix="use bounds that are known while the kernel is made",
        )
    try:
        return range(start) if stop is None else range(start, stop, step)  # type: ignore[arg-type, call-overload]
    except (TypeError, ValueError) as failure:
        raise fail("E0103", f"the bounds of a loop are {start!r}, {stop!r}, {step!r}: {failure}") from None


@public
def program_id(axis=0) -> int:
    """Which of the programs of the launch grid this is: 0, since a kernel runs as one program."""
    _one_axis(axis)
    return 0


@public
def num_programs(axes=0) -> int:
    """How many programs the launch grid has along `axes`: 1."""
    _one_axis(axes)
    return 1


def _one_axis(axis: object) -> None:
    current()
    if axis not in (0, None, (0,), [0], (), []):
        raise fail("E0103", f"the launch grid has one axis, not axis {axis}")


@public
def program_ndim() -> int:
    """Dimensions of the launch grid: 0 without a grid."""
    current()
    return 0


@public
def no_reorder() -> contextlib.AbstractContextManager[None]:
    """Instructions in the `with` block stay in program order, as in an eager run. Raises E0104 while recording."""
    if not current().has_values:
        raise fail("E0104", "no_reorder in a recorded kernel", fix="leave it out: reordering never changes values")
    return contextlib.nullcontext()


@public
def device_print(print_prefix, tensor) -> None:
    """Print `print_prefix` and the values of a tensor, in an eager run. Raises E0104 while recording."""
    print(print_prefix, tensor_argument("tensor", tensor).numpy())


class TileSize:
    """Sizes of tiles: limits of the current kernel's target; outside a kernel, of the target that settings choose."""

    @property
    def pmax(self) -> int:
        """Partitions of SBUF and PSUM: the largest partition dimension of a tile."""
        return int(current_target().sbuf.partitions.value)

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes per partition in one PSUM bank."""
        return int(current_target().psum.bank_bytes.value)

    @property
    def psum_bank_fmax(self) -> int:
        """float32 elements per partition in one PSUM bank."""
        return self.psum_bank_fmax_bytes // 4

    @property
    def psum_fmax(self) -> int:
        """The same as psum_bank_fmax (an older name)."""
        return self.psum_bank_fmax

    @property
    def psum_num_banks(self) -> int:
        """PSUM banks per partition."""
        return int(current_target().psum.banks.value)

    @property
    def gemm_stationary_fmax(self) -> int:
        """Largest free dimension of the stationary operand of a matmul."""
        return int(current_target().tensor.stationary_fmax.value)

    @property
    def gemm_moving_fmax(self) -> int:
        """Largest free dimension of the moving operand of a matmul."""
        return int(current_target().tensor.moving_fmax.value)

    @property
    def bn_stats_fmax(self) -> int:
        """Largest free dimension of bn_stats."""
        return int(current_target().limits.bn_stats_fmax.value)

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Bytes per partition of SBUF that a kernel can use."""
        return current_target().sbuf.usable_bytes_per_partition

    @property
    def sbuf_fmax(self) -> int:
        """float32 elements per partition of SBUF that a kernel can use."""
        return self.sbuf_fmax_bytes // 4

    @property
    def total_available_sbuf_size(self) -> int:
        """The same as sbuf_fmax_bytes (an older name)."""
        return self.sbuf_fmax_bytes

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF, all partitions together."""
        return current_target().sbuf.bytes

    def __getattr__(self, name: str) -> int:
        if name in ("sbuf_min_align", "psum_min_align"):
            raise fail("E0106", f"tile_size.{name}")
        raise AttributeError(f"tile_size has no attribute {name!r}")


tile_size = TileSize()
