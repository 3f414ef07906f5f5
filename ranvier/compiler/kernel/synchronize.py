"""Semaphores: make each engine wait for what its instructions depend on, and for no more than that."""

from __future__ import annotations

from ranvier.compiler.kernel.stages import Dependencies, Placed, Schedule, Synchronization
from ranvier.ir.program import Signal, Wait
from ranvier.target.spec import Target


def synchronize(placed: Placed, dependencies: Dependencies, plan: Schedule, target: Target) -> Synchronization:
    """The waits and signals that enforce `dependencies` under the streams of `plan`.

    There is one semaphore per engine and one per DMA queue, each counting the completions that somebody waits for. Both
    complete in order, so one wait covers everything before it. A wait is left out when an earlier wait on the same
    engine implies it, directly or through what the awaited instruction had itself waited for (vector clocks). Within an
    engine no wait is needed, except for a data movement: it must not read or overwrite what an instruction before its
    trigger has not finished with.
    """
    return _Synchronizer(placed, dependencies, plan, target).run()


class _Synchronizer:
    def __init__(self, placed: Placed, dependencies: Dependencies, plan: Schedule, target: Target):
        self.body, self.dependencies, self.plan = placed.kernel.body, dependencies, plan
        self.amount = int(target.dma.engines.value)
        names = [e.name.lower() for e in plan.streams] + sorted(set(plan.queues.values()))
        self.sources = [f"done.{name}" for name in names]
        number = {name: k for k, name in enumerate(names)}
        count = len(self.body)
        self.engine_of, self.source_of, self.place = [0] * count, [0] * count, [0] * count
        for k, stream in enumerate(plan.streams.values()):
            for i in stream:
                self.engine_of[i] = self.source_of[i] = k
        totals = [0] * len(names)
        for i in plan.sequence:
            if i in plan.queues:
                self.source_of[i] = number[plan.queues[i]]
            source = self.source_of[i]
            totals[source] += 1
            self.place[i] = totals[source]

    def run(self) -> Synchronization:
        awaited, waits = self._choose_waits()
        signals: dict[int, tuple[Signal, ...]] = {}
        values: dict[int, int] = {}
        totals = [0] * len(self.sources)
        for i in self.plan.sequence:
            if i in awaited:
                source = self.source_of[i]
                amount = self.amount if i in self.plan.queues else 1
                totals[source] += amount
                values[i] = totals[source]
                signals[i] = (Signal(self.sources[source], amount),)
        used = tuple(name for name, total in zip(self.sources, totals, strict=True) if total)
        chosen = {i: tuple(Wait(self.sources[self.source_of[p]], values[p]) for p in ps) for i, ps in waits.items()}
        return Synchronization(chosen, signals, used)

    def _choose_waits(self) -> tuple[set[int], dict[int, list[int]]]:
        """The instructions somebody waits for, and for each instruction those it waits for.

        `known[e]` counts, per engine and queue, the completions that engine e can rely on at this point of its stream.
        """
        queues, source_of, place, engine_of = self.plan.queues, self.source_of, self.place, self.engine_of
        nothing: tuple[int, ...] = (0,) * len(self.sources)
        known: list[tuple[int, ...]] = [nothing] * len(self.plan.streams)
        at_start: list[tuple[int, ...]] = [nothing] * len(self.body)
        position = [0] * len(self.body)
        awaited: set[int] = set()
        waits: dict[int, list[int]] = {}
        for rank, i in enumerate(self.plan.sequence):
            position[i] = rank
            engine = engine_of[i]
            own, is_dma = known[engine], i in queues
            latest: dict[int, int] = {}
            for group in (self.dependencies.data[i], self.dependencies.order[i], self.plan.reuse.get(i, ())):
                for p in group:
                    source = source_of[p]
                    if source == engine and not is_dma:
                        continue
                    if place[p] > max(own[source], place[latest[source]] if source in latest else 0):
                        latest[source] = p
            if latest:
                chosen = []
                for p in sorted(latest.values(), key=position.__getitem__, reverse=True):
                    source = source_of[p]
                    if place[p] > own[source]:
                        chosen.append(p)
                        after = list(map(max, own, at_start[p]))
                        after[source] = max(after[source], place[p])
                        own = tuple(after)
                known[engine] = own
                waits[i] = chosen
                awaited.update(chosen)
            at_start[i] = own
        return awaited, waits
