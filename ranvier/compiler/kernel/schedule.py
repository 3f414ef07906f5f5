"""List scheduling: an order of instructions per engine."""

from __future__ import annotations

from heapq import heappop, heappush

from ranvier.compiler.kernel.costs import Costs
from ranvier.compiler.kernel.stages import Dependencies, Placed, Schedule
from ranvier.isa.record import DmaWork, Instruction
from ranvier.target.spec import Engine


def schedule(placed: Placed, dependencies: Dependencies, costs: Costs) -> Schedule:
    """Order the instructions on each engine so that the simulated end comes early.

    All engines are simulated together. The engine that can start something first takes, among its instructions whose
    operands are there by then, the one with the longest path to the end of the program. Loads therefore run as far
    ahead as the memory they fill is free. Deterministic: ties go to the earlier instruction.
    """
    return _Scheduler(placed, dependencies, costs).run()


class _Group:
    """Instructions that need one activation table (or none): those whose operands come later, and those that may start.

    `pending` holds (time, negative height, instruction), `ready` (negative height, instruction).
    """

    __slots__ = ("pending", "ready", "table")

    def __init__(self, table: str | None):
        self.table = table
        self.pending: list[tuple[float, float, int]] = []
        self.ready: list[tuple[float, int]] = []

    def arrive(self, now: float) -> None:
        """Move what may start by `now`."""
        pending = self.pending
        while pending and pending[0][0] <= now:
            _, rank, i = heappop(pending)
            heappush(self.ready, (rank, i))


class _Lane:
    """What one engine may run next, by the activation table it needs, since changing the table takes `switch_ns`."""

    def __init__(self, engine: Engine, switch_ns: float):
        self.engine, self.switch_ns = engine, switch_ns
        self.free_ns = 0.0
        self.table: str | None = None
        self.groups: dict[str | None, _Group] = {}

    def add(self, ready_ns: float, height_ns: float, i: int, table: str | None) -> None:
        group = self.groups.get(table)
        if group is None:
            group = self.groups[table] = _Group(table)
        heappush(group.pending, (ready_ns, -height_ns, i))

    def next_ns(self) -> float:
        """When this engine can start something next."""
        first = float("inf")
        for group in self.groups.values():
            if group.ready:
                return self.free_ns
            if group.pending and group.pending[0][0] < first:
                first = group.pending[0][0]
        return max(self.free_ns, first)

    def take(self) -> tuple[float, int]:
        """Remove the best instruction that can start next; returns (start, instruction).

        Another table is worth loading only for an instruction whose path is longer by two loads (there and back), and
        not when one that needs the resident table arrives before the load would be done.
        """
        now = self.next_ns()
        for group in self.groups.values():
            group.arrive(now)
        best = min((group for group in self.groups.values() if group.ready), key=self._rank)
        if self._switches(best):
            for group in self.groups.values():
                if group.pending and not self._switches(group):
                    soon, rank, _ = group.pending[0]
                    if soon < now + self.switch_ns and best.ready[0][0] + 2 * self.switch_ns >= rank:
                        now = soon
                        group.arrive(now)
                        best = group
                        break
        return now, heappop(best.ready)[1]

    def _switches(self, group: _Group) -> bool:
        return group.table is not None and self.table is not None and group.table != self.table

    def _rank(self, group: _Group) -> tuple[float, int]:
        rank, i = group.ready[0]
        return (rank + 2 * self.switch_ns if self._switches(group) else rank), i


class _Transfers:
    """The DMA engines, and the queues that each triggering engine deals its transfers to."""

    def __init__(self, costs: Costs, triggers: list[Engine]):
        dma = costs.target.dma
        self.costs, self.completion_ns = costs, float(dma.completion_ns.value)
        self.hbm_bytes_per_ns = float(costs.target.hbm.stack_bytes_per_ns.value)
        self.engines_ns = [0.0] * int(dma.engines.value)
        self.hbm_ns = 0.0
        count = max(1, int(dma.queues_per_engine.value) // max(1, len(triggers)))
        self.last = {e: dict.fromkeys((f"{e.name.lower()}{k}" for k in range(count)), 0.0) for e in triggers}

    def start(self, engine: Engine, inst: Instruction, work: DmaWork, launched_ns: float) -> tuple[str, float]:
        """Move the data of `inst` from `launched_ns` on; returns the queue and the time of completion."""
        duration, free = self.costs.transfer_ns(work), self.engines_ns
        first = self.costs.first_dma_engine(inst)
        end = launched_ns + duration
        for k in range(first, first + work.engines):
            k %= len(free)
            free[k] = max(free[k], launched_ns) + duration
            end = max(end, free[k])
        self.hbm_ns = max(self.hbm_ns, launched_ns) + work.hbm_bytes / self.hbm_bytes_per_ns
        queues = self.last[engine]
        queue = min(queues, key=queues.__getitem__)
        queues[queue] = max(queues[queue], max(end, self.hbm_ns) + self.completion_ns)
        return queue, queues[queue]


class _Scheduler:
    def __init__(self, placed: Placed, dependencies: Dependencies, costs: Costs):
        target = costs.target
        self.body = placed.kernel.body
        self.data, self.order = dependencies.data, dependencies.order
        self.hop_ns = target.sync.semaphore_hop_ns.value
        self.engines = [inst.engine_on(target) for inst in self.body]
        self.costs = [costs.of(inst, engine) for inst, engine in zip(self.body, self.engines, strict=True)]
        triggers = sorted({e for e, c in zip(self.engines, self.costs, strict=True) if c.dma}, key=lambda e: e.value)
        self.costs_of, self.transfers = costs, _Transfers(costs, triggers)
        self.table_load_ns = target.scalar.table_load_ns.value
        self.delays = [costs.delay_ns(c) for c in self.costs]

    def _heights(self) -> list[float]:
        """For each instruction the time from its start to the end of the program, along the longest path."""
        delays, data, order, hop = self.delays, self.data, self.order, self.hop_ns
        heights = delays.copy()
        for i in range(len(self.body) - 1, -1, -1):
            below = heights[i] + hop
            for group in (data[i], order[i]):
                for p in group:
                    if heights[p] < below + delays[p]:
                        heights[p] = below + delays[p]
        return heights

    def run(self) -> Schedule:
        count = len(self.body)
        heights = self._heights()
        engines, costs, delays, hop = self.engines, self.costs, self.delays, self.hop_ns
        waiting = [len(d) + len(o) for d, o in zip(self.data, self.order, strict=True)]
        data_users: list[list[int]] = [[] for _ in range(count)]
        order_users: list[list[int]] = [[] for _ in range(count)]
        for i in range(count):
            for p in self.data[i]:
                data_users[p].append(i)
            for p in self.order[i]:
                order_users[p].append(i)
        lanes = {e: _Lane(e, self.table_load_ns) for e in sorted(set(engines), key=lambda e: e.value)}
        for i in range(count):
            if not waiting[i]:
                lanes[engines[i]].add(0.0, heights[i], i, costs[i].table)
        ready, starts = [0.0] * count, [0.0] * count
        result = Schedule({e: [] for e in lanes}, [], {}, starts, 0.0)
        end = 0.0
        for _ in range(count):
            lane = min(lanes.values(), key=_Lane.next_ns)
            now, i = lane.take()
            engine, cost = lane.engine, costs[i]
            if cost.table is not None and cost.table != lane.table:
                now, lane.table = now + self.table_load_ns, cost.table
            starts[i] = now
            lane.free_ns = now + cost.busy.ns
            done = now + delays[i]
            if cost.dma is not None:
                launched_ns = lane.free_ns + self.costs_of.launch_ns(cost.dma)
                result.queues[i], done = self.transfers.start(engine, self.body[i], cost.dma, launched_ns)
            end = max(end, done)
            result.streams[engine].append(i)
            result.sequence.append(i)
            for users, own in ((data_users[i], done), (order_users[i], now)):
                for user in users:
                    at_once = engines[user] is engine and cost.dma is None and costs[user].dma is None
                    at = own if at_once else done + hop
                    if at > ready[user]:
                        ready[user] = at
                    waiting[user] -= 1
                    if not waiting[user]:
                        lanes[engines[user]].add(ready[user], heights[user], user, costs[user].table)
        return Schedule(result.streams, result.sequence, result.queues, starts, end)
