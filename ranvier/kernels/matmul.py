"""Matrix multiplication on the tensor engine: sums of products of tiles."""

from __future__ import annotations

from collections.abc import Sequence

from ranvier.nki import isa as nisa
from ranvier.nki.tensor import NkiTensor


def spans(size: int, step: int) -> list[tuple[int, int]]:
    """(start, length) of the pieces of `size` that are at most `step` long."""
    return [(start, min(step, size - start)) for start in range(0, size, step)]


def accumulate(
    dst: NkiTensor, stationary: Sequence[NkiTensor], moving: Sequence[NkiTensor], first: bool = True
) -> None:
    """dst [M, N] in PSUM (+)= sum over i of stationary[i]^T [K_i, M] x moving[i] [K_i, N]; overwrites if `first`."""
    for i, (s, m) in enumerate(zip(stationary, moving, strict=True)):
        nisa.nc_matmul(dst=dst, stationary=s, moving=m, accumulate=not first or i > 0)
