"""List scheduling: an order of instructions per engine."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from ranvier.compiler.kernel.costs import Costs
from ranvier.compiler.kernel.stages import Dependencies, Placed, Schedule
from ranvier.isa.record import Cost
from ranvier.target.spec import Engine


def schedule(placed: Placed, dependencies: Dependencies, costs: Costs) -> Schedule:
    """Order the instructions on each engine so that the simulated end comes early.

    All engines are simulated together. The engine that can start something first takes, among its instructions whose
    operands are there by then, the one with the longest path to the end of the program. Loads therefore run as far ahead
    as the memory they fill is free. Deterministic: ties go to the earlier instruction.
    """
    return _Scheduler(placed, dependencies, costs).run()


@dataclass(slots=True)
class _Lane:
    """One engine: the time when it is free, what it may run by the time operands are there, what it may run now."""

    engine: Engine
    free_ns: float
    pending: list[tuple[float, int]]
    ready: list[tuple[float, int]]
    table: str | None = None

    def next_ns(self) -> float:
        if self.ready:
            return self.free_ns
        return max(self.free_ns, self.pending[0][0]) if self.pending else float("inf")

    def take(self, now: float, table_load_ns: float, cost: list[Cost]) -> int:
        """Remove and return the best instruction that can start at `now`."""
        while self.pending and self.pending[0][0] <= now:
            i = heappop(self.pending)[1]
            heappush(self.ready, (self._rank[i], i))
        return heappop(self.ready)[1]


class _Scheduler:
    def __init__(self, placed: Placed, dependencies: Dependencies, costs: Costs):
        self.target = costs.target
        self.costs = costs
        self.dependencies = dependencies
