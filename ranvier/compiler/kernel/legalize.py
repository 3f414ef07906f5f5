"""Check a kernel against its target and drop what has no effect."""

from __future__ import annotations

import dataclasses

from ranvier.errors import error
from ranvier.ir.conflicts import footprint
from ranvier.ir.kernel import Kernel, verify_kernel
from ranvier.isa.access import AccessPattern, BufferKind
from ranvier.isa.record import Instruction
from ranvier.target.spec import Target


def legalize(kernel: Kernel, target: Target) -> Kernel:
    """The kernel without instructions whose results nobody reads and without buffers that nothing touches.

    Raises the error of any rule that the kernel breaks on `target`; E0901 for a matmul that leaves open whether it
    accumulates, which whoever records a kernel decides.
    """
    verify_kernel(kernel, target, stage="recording")
    for inst in kernel.body:
        if getattr(inst, "accumulate", False) is None:
            raise error("E0901", f"{inst.MNEMONIC}: accumulate is not decided", where=inst.loc)
    body, touched = _live(kernel)
    buffers = tuple(b for b in kernel.buffers if b.kind is not BufferKind.TEMP or b.name in touched)
    return dataclasses.replace(kernel, body=body, buffers=buffers)


def _live(kernel: Kernel) -> tuple[tuple[Instruction, ...], set[str]]:
    """The instructions that write something needed, or nothing at all (they have effects); the buffers they touch."""
    needed: set[str] = {b.name for b in kernel.buffers if b.kind is BufferKind.OUTPUT}
    touched: set[str] = set()
    kept = []
    for inst in reversed(kernel.body):
        writes, states = inst.writes(), inst.states()
        if (writes or states) and not any(ap.buffer.name in needed for ap in writes) and needed.isdisjoint(states):
            continue
        read_names = [ap.buffer.name for ap in inst.reads()]
        for ap in writes:
            name = ap.buffer.name
            touched.add(name)
            if name not in read_names and _is_whole(ap):
                needed.discard(name)
        needed.update(read_names)
        needed.update(states)
        touched.update(read_names)
        kept.append(inst)
    return tuple(reversed(kept)), touched


def _is_whole(ap: AccessPattern) -> bool:
    """Whether all of the buffer is written."""
    buffer = ap.buffer
    if ap.size_bytes != buffer.size_bytes:
        return False
    at = footprint(ap)
    rows = buffer.partitions if buffer.space.on_chip else 1
    all_bytes = at.low == 0 and at.high == buffer.bytes_per_partition and at.last - at.first == rows
    return all_bytes and at.dense and at.period == 0
