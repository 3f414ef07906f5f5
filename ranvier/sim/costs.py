"""Times of the instructions of a program, found once per distinct shape."""

from __future__ import annotations

from functools import cache

from ranvier.isa.access import AccessPattern
from ranvier.isa.record import Cost, DmaWork, Instruction
from ranvier.target.fact import Confidence
from ranvier.target.spec import Engine, Target


def cost_key(inst: Instruction) -> tuple:
    """What costs and legal engines depend on: memories, dtypes, shapes and strides of operands, and attributes, but not
    which buffers the operands name or where in them they begin."""
    key: list[object] = [type(inst)]
    for name in _field_names(type(inst)):
        value = getattr(inst, name)
        if type(value) is AccessPattern:
            # Members of an enumeration hash in Python code; the memories exist once, so their ids will do.
            key += (id(value.buffer.space), value.dtype, value.pattern, value.index is None)
        else:
            key.append(value)
    return tuple(key)


def first_partition(inst: Instruction) -> int:
    """First partition of a transfer's operand on chip, within its buffer; 0 between two places in HBM."""
    return next((ap.partition for ap in (*inst.writes(), *inst.reads()) if ap.buffer.space.on_chip), 0)


class CostTable:
    """`cost` of instructions on one engine of a target.

    Instructions with equal `cost_key` share one computation.
    """

    def __init__(self, target: Target, engine: Engine):
        self.target, self.engine = target, engine
        self._known: dict[tuple, Cost] = {}

    def cost(self, inst: Instruction) -> Cost:
        found = self._known.get(key := cost_key(inst))
        if found is None:
            found = self._known[key] = inst.cost(self.target, self.engine)
        return found


@cache
def _field_names(cls: type[Instruction]) -> tuple[str, ...]:
    return tuple(spec.name for spec in cls.SPECS if spec.role != "state")


class DmaTimes:
    """The facts of the DMA engines as plain numbers, and the time of a descriptor (see `DmaSpec`)."""

    def __init__(self, target: Target):
        dma, hbm = target.dma, target.hbm
        self.engines = int(dma.engines.value)
        self.partitions_per_engine = int(dma.partitions_per_engine.value)
        self.stagger_ns = float(dma.engine_stagger_ns.value)
        self.semaphore_write_ns = float(dma.semaphore_write_ns.value)
        self.completion_ns = float(dma.completion_ns.value)
        self.completion_is_estimated = dma.completion_ns.confidence is Confidence.ESTIMATED
        self.hbm_bytes_per_ns = float(hbm.stack_bytes_per_ns.value)
        self.launch = {
            name: (float(dma.mode(name).launch_ns.value), dma.mode(name).launch_ns.confidence is Confidence.ESTIMATED)
            for name in dma.modes
        }
        self._dma = dma
        facts = (dma.bytes_per_ns, dma.burst_bytes, dma.descriptor_overhead_ns, dma.engine_stagger_ns)
        self.data_is_estimated = any(fact.confidence is Confidence.ESTIMATED for fact in facts)

    def descriptor_ns(self, work: DmaWork) -> float:
        """Time of one of the transfer's descriptors on a DMA engine."""
        bursts = -(-work.descriptor_bytes // int(self._dma.burst_bytes.value))
        moving = work.descriptor_bytes / (self._dma.bytes_per_ns.value * work.efficiency)
        return bursts * self._dma.descriptor_overhead_ns.value + moving
