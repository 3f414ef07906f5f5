"""Enumerations that instructions take as attributes. Names and values are those of `nki.isa`, so they are lower case.

Source: NKI documentation, nki.isa, version 0.6.
"""

from __future__ import annotations

import enum
from typing import TypeVar

from ranvier.errors import error


class ReduceCmd(enum.Enum):
    """What an instruction does with the reduce registers of its engine (one float32 per partition)."""

    idle = 0
    """Leaves them alone."""
    reset = 1
    """Sets them to the identity of the reduction."""
    reduce = 2
    """Reduces the results into what they hold."""
    reset_reduce = 3
    """Sets them to the identity, then reduces the results into them."""
    load_reduce = 4
    """Loads a start value that the instruction names, then reduces the results into it."""

    @property
    def reduces(self) -> bool:
        return self in (ReduceCmd.reduce, ReduceCmd.reset_reduce, ReduceCmd.load_reduce)


class DgeMode(enum.Enum):
    """Who makes the descriptors of a DMA transfer."""

    unknown = 0
    """Chosen by the compiler."""
    swdge = 1
    """gpsimd, at run time."""
    hwdge = 2
    """Hardware, at run time, asked for by the scalar or the sync engine."""
    none = 3
    """The host, when the program is loaded; they lie in HBM."""


class OobMode(enum.Enum):
    """What happens to an element whose dynamic index is out of bounds."""

    error = 0
    """The program stops."""
    skip = 1
    """The element is not transferred; what the destination held stays."""


class MatmulPerfMode(enum.Enum):
    """Modes of the tensor engine beyond the normal one."""

    none = "none"
    double_row = "double_row"
    """float8 operands, two contraction rows at a time."""


class NcVersion(enum.Enum):
    """Generations of the core."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class DmaEngine(enum.Enum):
    """Which engines exchange tiles between the cores of a logical core."""

    dma = 1
    gpsimd_dma = 2


E = TypeVar("E", bound=enum.Enum)


def member(kind: type[E], what: object) -> E:
    """The member of `kind` that `what` is or names ("reset_reduce"). Raises E0309 for anything else."""
    if isinstance(what, kind):
        return what
    if isinstance(what, str) and what in kind.__members__:
        return kind[what]
    raise error("E0309", f"{what!r} is not a {kind.__name__}; known are {', '.join(kind.__members__)}")
