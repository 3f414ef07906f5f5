"""Times of instructions, each kind computed once."""

from __future__ import annotations

from ranvier.isa.access import AccessPattern
from ranvier.isa.record import Cost, Instruction
from ranvier.target.spec import Engine, Target


class Costs:
    """`Instruction.cost` on one target, remembered for instructions that differ only in what they address."""

    def __init__(self, target: Target):
        self.target = target
        self._known: dict[tuple, Cost] = {}

    def of(self, inst: Instruction, engine: Engine) -> Cost:
        key = [type(inst), engine]
        for spec in inst.SPECS:
            value = getattr(inst, spec.name)
            if isinstance(value, AccessPattern):
                key += (value.buffer.space, value.dtype, value.pattern, value.index is None)
            else:
                key.append(value)
        found = self._known.get(tuple(key))
        if found is None:
            found = self._known[tuple(key)] = inst.cost(self.target, engine)
        return found

    def transfer_ns(self, cost: Cost) -> float:
        """Time from the first to the last byte of the transfer that a trigger of this cost starts, if it is alone."""
        dma, work = self.target.dma, cost.dma
        assert work is not None
        bursts = -(-work.descriptor_bytes // int(dma.burst_bytes.value))
        each = bursts * dma.descriptor_overhead_ns.value + work.descriptor_bytes / dma.bytes_per_ns.value
        return -(-work.descriptors // max(1, work.engines)) * each / work.efficiency
