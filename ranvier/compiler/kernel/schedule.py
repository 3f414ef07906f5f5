"""List scheduling: an engine for each instruction, and an order of instructions per engine."""

from __future__ import annotations

import operator

from ranvier.compiler.kernel.banks import Banks
from ranvier.compiler.kernel.costs import Costs, Option
from ranvier.compiler.kernel.lanes import Lane, Parked, Transfers
from ranvier.compiler.kernel.stages import Dependencies, Placed, Schedule
from ranvier.errors import error
from ranvier.isa.record import Cost
from ranvier.target.spec import Engine


def schedule(placed: Placed, dependencies: Dependencies, costs: Costs) -> Schedule:
    """Choose engines and an order on each so that the simulated end comes early.

    All engines are simulated together. The engine that can start something first takes, among its instructions whose
    operands are there by then, the one with the longest path to the end of the program. Where the instruction leaves
    its engine open, it goes to the legal one that is expected to be done with it first. Loads run ahead as far as the
    memory they fill is free, but only so far that the DMA engines never run dry: what comes later may be more urgent.
    Floating PSUM buffers get a bank when their first instruction starts (`Banks`).
    Deterministic: ties go to the earlier instruction and to the engine that the record prefers.
    """
    return _Scheduler(placed, dependencies, costs).run()


class _Scheduler:
    def __init__(self, placed: Placed, dependencies: Dependencies, costs: Costs):
        target = costs.target
        self.body, self.costs = placed.kernel.body, costs
        self.data, self.order = dependencies.data, dependencies.order
        self.hop_ns = float(target.sync.semaphore_hop_ns.value)
        self.table_load_ns = float(target.scalar.table_load_ns.value)
        self.options = [costs.options(inst) for inst in self.body]
        # The engine first thought of: the one with the least delay. Flexible instructions may change theirs.
        self.chosen = [min(found, key=_delay_of) for found in self.options]
        self.heights = self._heights()
        triggers = {engine for engine, cost, _ in self.chosen if cost.dma is not None}
        self.transfers = Transfers(costs, sorted(triggers, key=_number))
        engines = {engine for options in self.options for engine, _, _ in options}
        self.lanes = {engine: Lane(engine, self.table_load_ns) for engine in sorted(engines, key=_number)}
        count = len(self.body)
        self.start_ns, self.done_ns = [0.0] * count, [0.0] * count
        self.queues: dict[int, str] = {}
        self.banks = Banks(placed, target)
        self.parked = Parked()
        # Triggers keep the DMA engines supplied for as long as a new one takes to get there.
        static = target.dma.static
        self.ahead_ns = float(static.issue_ns.value + static.launch_ns.value)

    def _heights(self) -> list[float]:
        """For each instruction the time from its start to the end of the program, along the longest path."""
        chosen, hop = self.chosen, self.hop_ns
        heights = [delay for _, _, delay in chosen]
        for i in range(len(self.body) - 1, -1, -1):
            below, (engine, cost, _) = heights[i], chosen[i]
            for p in self.data[i]:
                other, _, delay = chosen[p]
                path = below + delay if other is engine else below + delay + hop
                if heights[p] < path:
                    heights[p] = path
            for p in self.order[i]:
                other, before, delay = chosen[p]
                at_once = other is engine and cost.dma is None and before.dma is None
                path = below + before.busy.ns if at_once else below + delay + hop
                if heights[p] < path:
                    heights[p] = path
        return heights

    def run(self) -> Schedule:
        count = len(self.body)
        waiting = [len(d) + len(o) for d, o in zip(self.data, self.order, strict=True)]
        users: list[list[int]] = [[] for _ in range(count)]
        for i in range(count):
            for group in (self.data[i], self.order[i]):
                for p in group:
                    users[p].append(i)
        for i in range(count):
            if not waiting[i]:
                self._admit(i)
        streams: dict[Engine, list[int]] = {engine: [] for engine in self.lanes}
        sequence: list[int] = []
        lanes = list(self.lanes.values())
        while len(sequence) < count:
            lane = min(lanes, key=_next_ns)
            if lane.next_ns == float("inf"):
                raise error("E0901", "schedule: every instruction that is left waits for a PSUM bank")
            now, i = lane.take()
            if not self._gets_bank(i, lane, now):
                continue
            self._start(i, lane, now)
            streams[lane.engine].append(i)
            sequence.append(i)
            for user in users[i]:
                waiting[user] -= 1
                if not waiting[user]:
                    self._admit(user)
        used = {engine: stream for engine, stream in streams.items() if stream}
        reuse = {i: before for i in range(count) if (before := self.banks.predecessors(i))}
        end_ns = max(self.done_ns, default=0.0)
        return Schedule(used, sequence, self.queues, self.start_ns, end_ns, self.banks.placements, reuse)

    def _gets_bank(self, i: int, lane: Lane, now: float) -> bool:
        """Whether instruction `i` can start as far as PSUM is concerned; if not it waits for a bank."""
        name = self.banks.wanted(i)
        if name is None:
            return True
        place = self.banks.find(name)
        if place is None:
            self.parked.add(i, name, self.heights[i])
            return False
        free_ns, part = place
        if free_ns + self.hop_ns > max(now, self.hop_ns):
            self._add(i, free_ns + self.hop_ns)
            return False
        self.banks.take(name, part)
        for other in self.parked.wanting(name):
            self._add(other, now)
        return self._gets_bank(i, lane, now)

    def _add(self, i: int, ready_ns: float) -> None:
        """Queue instruction `i` on its engine."""
        engine, cost, _ = self.chosen[i]
        self.lanes[engine].add(ready_ns, self.heights[i], i, cost.busy.ns, cost.table)

    def _admit(self, i: int) -> None:
        """Give instruction `i`, whose predecessors are all scheduled, to an engine."""
        options = self.options[i]
        if len(options) == 1:
            engine, cost, _ = options[0]
            ready_ns = self._ready_ns(i, engine, cost)
        else:
            height, best = self.heights[i], float("inf")
            ready_ns = 0.0
            for option in options:
                at = self._ready_ns(i, option[0], option[1])
                done = self.lanes[option[0]].start_ns(at, height) + option[2]
                if done < best:
                    best, ready_ns, self.chosen[i] = done, at, option
        self._add(i, ready_ns)

    def _ready_ns(self, i: int, engine: Engine, cost: Cost) -> float:
        """When instruction `i` can start on `engine` as far as its predecessors are concerned."""
        chosen, done_ns, start_ns, hop = self.chosen, self.done_ns, self.start_ns, self.hop_ns
        ready = 0.0
        for group, own_ns in ((self.data[i], done_ns), (self.order[i], start_ns)):
            for p in group:
                other, before, _ = chosen[p]
                at_once = other is engine and cost.dma is None and before.dma is None
                at = own_ns[p] if at_once else done_ns[p] + hop
                if at > ready:
                    ready = at
        return ready

    def _start(self, i: int, lane: Lane, now: float) -> None:
        """Start instruction `i` on its engine at `now`."""
        engine, cost, delay = self.chosen[i]
        if cost.table is not None and cost.table != lane.table:
            now, lane.table = now + self.table_load_ns, cost.table
        self.start_ns[i], self.done_ns[i] = now, now + delay
        lane.free_ns = now + cost.busy.ns
        if cost.dma is not None:
            launched_ns = lane.free_ns + self.costs.launch_ns(cost.dma)
            self.queues[i], self.done_ns[i] = self.transfers.start(engine, self.body[i], cost.dma, launched_ns)
            if engine is Engine.SYNC:
                lane.free_ns = max(lane.free_ns, self.transfers.busy_until_ns() - self.ahead_ns)
        lane.look()
        self.banks.finish(i, engine, self.done_ns[i])
        if self.banks.has_changed:
            self.banks.has_changed = False
            for other in self.parked.to_retry(self.banks.in_turn()):
                self._add(other, now)


_next_ns = operator.attrgetter("next_ns")


def _number(engine: Engine) -> int:
    return engine.value


def _delay_of(option: Option) -> float:
    return option[2]
