"""Times of instructions and transfers, as the passes need them: the same numbers that the timing model uses."""

from __future__ import annotations

from ranvier.isa.record import Cost, DmaWork, Instruction
from ranvier.sim.costs import CostTable, DmaTimes, cost_key, first_partition
from ranvier.target.spec import Engine, Target

Option = tuple[Engine, Cost, float]
"""An engine that may run an instruction, the cost there, and the time from its start to its result in ns."""


class Costs:
    """Costs on one target, each found once per distinct shape of instruction."""

    def __init__(self, target: Target):
        self.target = target
        self._options: dict[tuple, tuple[Option, ...]] = {}
        self._tables = {engine: CostTable(target, engine) for engine in Engine}
        self._dma = DmaTimes(target)

    def options(self, inst: Instruction) -> tuple[Option, ...]:
        """The engines that may run `inst`, best first: one, unless it leaves the choice open.

        Transfers that leave it open are triggered by the sync engine, which does nothing else, where it may.
        """
        found = self._options.get(key := cost_key(inst))
        if found is None:
            found = self._options[key] = self._find_options(inst)
        return found

    def _find_options(self, inst: Instruction) -> tuple[Option, ...]:
        if getattr(inst, "engine", None) is Engine.UNKNOWN:
            engines = inst.legal_engines(self.target)
            if inst.IS_DMA:
                engines = (Engine.SYNC,) if Engine.SYNC in engines else engines[:1]
        else:
            engines = (inst.engine_on(self.target),)
        return tuple((engine, cost, self.delay_ns(cost)) for engine in engines for cost in (self.of(inst, engine),))

    def of(self, inst: Instruction, engine: Engine) -> Cost:
        """Time of `inst` on `engine`."""
        return self._tables[engine].cost(inst)

    def transfer_ns(self, work: DmaWork) -> float:
        """From the first to the last byte of a transfer that has its DMA engines for itself."""
        return -(-work.descriptors // max(1, work.engines)) * self._dma.descriptor_ns(work)

    def launch_ns(self, work: DmaWork) -> float:
        """From the end of a trigger to the first byte."""
        return self._dma.launch[work.mode][0]

    def first_dma_engine(self, inst: Instruction) -> int:
        """The DMA engine that moves the first partition of a transfer."""
        return first_partition(inst) // self._dma.partitions_per_engine % self._dma.engines

    def delay_ns(self, cost: Cost) -> float:
        """From the start of an instruction to its result; for a data movement, if nothing is in its way."""
        if cost.dma is None:
            return cost.latency.ns
        return cost.busy.ns + self.launch_ns(cost.dma) + self.transfer_ns(cost.dma) + self._dma.completion_ns
