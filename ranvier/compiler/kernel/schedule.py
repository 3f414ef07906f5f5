"""List scheduling: an order of instructions per engine."""

from __future__ import annotations

from heapq import heappop, heappush

from ranvier.compiler.kernel.costs import Costs
from ranvier.compiler.kernel.stages import Dependencies, Placed, Schedule
from ranvier.isa.record import Cost
from ranvier.target.spec import Engine


def schedule(placed: Placed, dependencies: Dependencies, costs: Costs) -> Schedule:
    """Order the instructions on each engine so that the simulated end comes early.

    All engines are simulated together. The engine that can start something first takes, among its instructions whose
    operands are there by then, the one with the longest path to the end of the program. Loads therefore run as far
    ahead as the memory they fill is free. Deterministic: ties go to the earlier instruction.
    """
    return _Scheduler(placed, dependencies, costs).run()


class _Lane:
    """What one engine may run: instructions by the time their operands are there, and those that may start now.

    The ones that may start are kept apart by the activation table they need, since changing it takes time.
    """

    def __init__(self, engine: Engine, switch_ns: float):
        self.engine = engine
        self.free_ns = 0.0
        self.table: str | None = None
        self.switch_ns = switch_ns
        self.pending: list[tuple[float, float, int, str | None]] = []
        self.ready: dict[str | None, list[tuple[float, int]]] = {}

    def add(self, ready_ns: float, height_ns: float, i: int, table: str | None) -> None:
        heappush(self.pending, (ready_ns, -height_ns, i, table))

    def next_ns(self) -> float:
        """When this engine can start something next."""
        if any(self.ready.values()):
            return self.free_ns
        return max(self.free_ns, self.pending[0][0]) if self.pending else float("inf")

    def _arrive(self, now: float) -> None:
        pending, ready = self.pending, self.ready
        while pending and pending[0][0] <= now:
            _, rank, i, table = heappop(pending)
            heap = ready.get(table)
            if heap is None:
                heap = ready[table] = []
            heappush(heap, (rank, i))

    def take(self) -> tuple[float, int]:
        """Remove the best instruction that can start next; returns (start, instruction).

        Another table is worth loading only for an instruction whose path is longer by two loads (there and back), and
        not when one that needs the resident table arrives before the load would be done.
        """
        now = self.next_ns()
        self._arrive(now)
        table, heap = min((entry for entry in self.ready.items() if entry[1]), key=self._rank)
        if self._switches(table) and self.pending:
            soon, rank, _, other = self.pending[0]
            worth = heap[0][0] + 2 * self.switch_ns < rank
            if not worth and not self._switches(other) and soon < now + self.switch_ns:
                now = soon
                self._arrive(now)
                heap = self.ready[other]
        return now, heappop(heap)[1]

    def _switches(self, table: str | None) -> bool:
        return table is not None and self.table is not None and table != self.table

    def _rank(self, entry: tuple[str | None, list[tuple[float, int]]]) -> tuple[float, int]:
        table, heap = entry
        rank, i = heap[0]
        return (rank + 2 * self.switch_ns if self._switches(table) else rank), i


class _Transfers:
    """The DMA engines as one resource, and the queues that each triggering engine deals its transfers to."""

    def __init__(self, costs: Costs, engines: list[Engine]):
        dma = costs.target.dma
        self.costs, self.engines, self.completion_ns = costs, float(dma.engines.value), float(dma.completion_ns.value)
        self.free_ns = 0.0
        count = max(1, int(dma.queues_per_engine.value) // max(1, len(engines)))
        self.last = {e: dict.fromkeys((f"{e.name.lower()}{k}" for k in range(count)), 0.0) for e in engines}

    def start(self, engine: Engine, cost: Cost, delay_ns: float, now: float) -> tuple[str, float]:
        """Trigger at `now` what would take `delay_ns` alone; returns the queue and the time of completion."""
        assert cost.dma is not None
        duration = self.costs.transfer_ns(cost.dma)
        begin = max(now + delay_ns - duration - self.completion_ns, self.free_ns)
        self.free_ns = begin + duration * min(1.0, cost.dma.engines / self.engines)
        queues = self.last[engine]
        queue = min(queues, key=queues.__getitem__)
        queues[queue] = max(queues[queue], begin + duration + self.completion_ns)
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
        self.transfers = _Transfers(costs, triggers)
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
                result.queues[i], done = self.transfers.start(engine, cost, delays[i], now)
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
