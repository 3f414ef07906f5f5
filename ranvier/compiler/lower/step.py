"""Parts of a group's result, operands of element-wise work, and instructions that are held back."""

from __future__ import annotations

from dataclasses import dataclass

from ranvier.nki.tensor import NkiTensor

Operand = NkiTensor | float
"""A tile [P, ...], one value per partition [P, 1], or a number."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of a group's result: rows [b0, b0 + b) of axis b, [a0, a0 + a) of a, [c0, c0 + c) of c."""

    b0: int
    b: int
    a0: int
    a: int
    c0: int
    c: int

    def of(self, tile: NkiTensor) -> NkiTensor:
        """This chunk of a [b, a, c] tile that holds the chunk's rows."""
        whole = tile.shape[1:] == (self.a, self.c)
        return tile if whole else tile[:, self.a0 : self.a0 + self.a, self.c0 : self.c0 + self.c]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.b, self.a, self.c


@dataclass(frozen=True, slots=True)
class Step:
    """One pending instruction. `kind`: "scalar" (tensor_scalar with one or two operations), "tensor", "act"."""

    kind: str
    data: Operand
    operations: tuple[tuple[str, Operand, bool], ...] = ()
    function: str = ""
    scale: Operand = 1.0
    bias: Operand | None = None


def is_vector(x: Operand, chunk: Chunk) -> bool:
    """One value per partition where the chunk has more than one."""
    return isinstance(x, NkiTensor) and x.shape == (chunk.b, 1)
