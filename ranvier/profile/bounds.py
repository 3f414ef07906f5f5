"""Lower bounds of a program's time: what the arithmetic and the data alone would take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ranvier import dtypes as dt
from ranvier.ir.program import Program
from ranvier.isa.access import AccessPattern, Buffer, BufferKind
from ranvier.isa.record import Instruction
from ranvier.target.spec import Target

KINDS = ("weights", "inputs", "outputs", "intermediates", "spills")


@dataclass(frozen=True, slots=True)
class Work:
    """What a program does, whatever the schedule.

    `flops` are floating-point operations of matmuls by dtype of their operands; `moved_bytes` what crosses the HBM
    port by kind; `read_bytes` and `written_bytes` what of inputs, weights and outputs must cross it once.
    """

    flops: dict[str, int]
    moved_bytes: dict[str, int]
    read_bytes: int
    written_bytes: int

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values())

    @property
    def main_dtype(self) -> str:
        """The dtype with the most matmul work (bfloat16 when there is none)."""
        return max(self.flops, key=self.flops.__getitem__, default=dt.bfloat16.name)


def kind_of(buffer: Buffer) -> str:
    """Why data of an HBM buffer moves."""
    match buffer.kind:
        case BufferKind.PARAM | BufferKind.CONSTANT:
            return "weights"
        case BufferKind.INPUT:
            return "inputs"
        case BufferKind.OUTPUT:
            return "outputs"
    return "spills" if buffer.name.endswith(".spill") else "intermediates"


def hbm_accesses(inst: Instruction) -> Iterable[AccessPattern]:
    """What a DMA instruction reads and writes in HBM."""
    return (ap for ap in (*inst.reads(), *inst.writes()) if not ap.buffer.space.on_chip)


def work_of(program: Program) -> Work:
    """Count the work of `program`."""
    flops: dict[str, int] = {}
    moved: dict[str, int] = dict.fromkeys(KINDS, 0)
    read: dict[str, int] = {}
    for _, slot in program.slots():
        inst = slot.instruction
        if inst.IS_DMA:
            for ap in hbm_accesses(inst):
                moved[kind_of(ap.buffer)] += ap.size_bytes
                if ap.buffer.kind.preset:
                    read[ap.buffer.name] = read.get(ap.buffer.name, 0) + ap.size_bytes
        elif count := inst.flops():
            name = next(inst.operands("src"))[1].dtype.name
            flops[name] = flops.get(name, 0) + count
    # An indexed table is read in part, a tensor that is loaded twice needs to be loaded once.
    once = sum(min(count, program.by_name[name].size_bytes) for name, count in read.items())
    written = sum(program.by_name[name].size_bytes for name in program.outputs)
    return Work(flops, moved, once, written)


def compute_ns(work: Work, target: Target) -> float:
    """Time of the matmuls at the tensor engine's peak for each dtype."""
    return sum(count / target.peak_flops(name) * 1e9 for name, count in work.flops.items())


def hbm_bytes_per_ns(target: Target) -> float:
    """Bandwidth between HBM and one core whose neighbours are idle: HBM's, or that of the core's DMA engines."""
    return min(target.hbm.stack_bytes_per_ns.value, dma_bytes_per_ns(target))


def dma_bytes_per_ns(target: Target) -> float:
    """Peak of the DMA engines of a core together."""
    return target.dma.engines.value * max(target.dma.peak_bytes_per_ns.value, target.dma.bytes_per_ns.value)


def memory_ns(work: Work, target: Target) -> float:
    """Time to read what must be read and to write what must be written, once, at the peaks of HBM and DMA engines.

    A DMA engine reads and writes at the same time, so the larger of both counts there; at HBM they add.
    """
    at_hbm = (work.read_bytes + work.written_bytes) / target.hbm.stack_bytes_per_ns.value
    return max(at_hbm, max(work.read_bytes, work.written_bytes) / dma_bytes_per_ns(target))
