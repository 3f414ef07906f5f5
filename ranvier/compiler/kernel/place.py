"""Give every buffer a place in its memory."""

from __future__ import annotations

import dataclasses

from ranvier.compiler.kernel.memory import ALIGN_BYTES, Memory
from ranvier.compiler.kernel.stages import Placed
from ranvier.errors import error
from ranvier.ir.kernel import Kernel, accesses
from ranvier.ir.program import Placement
from ranvier.isa.access import Buffer, Space
from ranvier.isa.record import Instruction
from ranvier.target.spec import Target


def place(kernel: Kernel, target: Target) -> Placed:
    """Place all buffers, walking the instructions in program order.

    An on-chip buffer lives from its first to its last access and takes a byte range in all partitions meanwhile. Memory is
    reused in rotation, so that an instruction that fills a tile rarely waits for the last reader of what was there.
    Buffers that outlive a whole rotation are kept out of the way, at the end of the memory.

    Raises E0501 when the live buffers do not fit, E0502 when HBM is too small.
    """
    return _Placer(kernel, target).run()
