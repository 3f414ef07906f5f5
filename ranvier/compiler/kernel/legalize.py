"""Check a kernel against its target and drop what has no effect."""

from __future__ import annotations

import dataclasses

from ranvier.errors import error
from ranvier.ir.conflicts import footprint
from ranvier.ir.kernel import Kernel, verify_kernel
from ranvier.isa.access import AccessPattern, BufferKind, Space
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
    body = _live(kernel)
    touched = {name for inst in body for ap in (*inst.reads(), *inst.writes()) for name in (ap.buffer.name,)}
    buffers = tuple(b for b in kernel.buffers if b.kind is not BufferKind.TEMP or b.name in touched)
    return dataclasses.replace(kernel, body=body, buffers=buffers)


def _live(kernel: Kernel) -> tuple[Instruction, ...]:
    """Walking backwards, the instructions that write something still needed, or nothing at all (they have effects)."""
    needed: set[str] = set()
    kept = []
    for inst in reversed(kernel.body):
        writes, states = inst.writes(), inst.states()
        if writes or states:
            useful = any(ap.buffer.name in needed or ap.buffer.kind is BufferKind.OUTPUT for ap in writes)
            if not useful and needed.isdisjoint(states):
                continue
        reads = inst.reads()
        read_names = {ap.buffer.name for ap in reads}
        needed.difference_update(ap.buffer.name for ap in writes if ap.buffer.name not in read_names and _is_whole(ap))
        needed |= read_names
        needed.update(states)
        kept.append(inst)
    return tuple(reversed(kept))


def _is_whole(ap: AccessPattern) -> bool:
    """Whether all of the buffer is written."""
    at, whole = footprint(ap), footprint(ap.buffer.all)
    return at.dense and at.period == 0 and at[:4] == whole[:4] and (ap.space is not Space.HBM or at.low == 0)
