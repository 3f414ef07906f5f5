"""The resources of a core as the scheduler sees them: engines with what they may run next, and the DMA engines."""

from __future__ import annotations

from heapq import heappop, heappush

from ranvier.compiler.kernel.costs import Costs
from ranvier.isa.record import DmaWork, Instruction
from ranvier.target.spec import Engine

_LOOK = 8
"""How many queued instructions an estimate looks at; the others are taken to be like them."""


class _Group:
    """Instructions that need one activation table (or none): those whose operands come later, those that may start.

    `pending` holds (time, negative height, instruction, busy time), `ready` (negative height, instruction, busy time).
    """

    __slots__ = ("pending", "ready", "table")

    def __init__(self, table: str | None):
        self.table = table
        self.pending: list[tuple[float, float, int, float]] = []
        self.ready: list[tuple[float, int, float]] = []

    def arrive(self, now: float) -> None:
        """Move what may start by `now`."""
        pending = self.pending
        while pending and pending[0][0] <= now:
            _, rank, i, busy = heappop(pending)
            heappush(self.ready, (rank, i, busy))


class Lane:
    """What one engine may run next, by the activation table it needs, since changing the table takes `switch_ns`.

    `free_ns` is when the engine can start something, `next_ns` when it can start one of those it was given (`look`
    brings it up to date when `free_ns` was changed).
    """

    def __init__(self, engine: Engine, switch_ns: float):
        self.engine, self.switch_ns = engine, switch_ns
        self.free_ns, self.next_ns = 0.0, float("inf")
        self.table: str | None = None
        self._groups: dict[str | None, _Group] = {}

    def add(self, ready_ns: float, height_ns: float, i: int, busy_ns: float, table: str | None) -> None:
        """Give the engine instruction `i`, whose operands are there at `ready_ns`."""
        group = self._groups.get(table)
        if group is None:
            group = self._groups[table] = _Group(table)
        heappush(group.pending, (ready_ns, -height_ns, i, busy_ns))
        if ready_ns < self.next_ns:
            self.next_ns = max(self.free_ns, ready_ns)

    def look(self) -> None:
        """Find out when this engine can start something next."""
        first = float("inf")
        for group in self._groups.values():
            if group.ready:
                first = self.free_ns
            elif group.pending and group.pending[0][0] < first:
                first = group.pending[0][0]
        self.next_ns = max(self.free_ns, first)

    def start_ns(self, ready_ns: float, height_ns: float) -> float:
        """About when an instruction would start here: after those in the queue that would be taken before it."""
        rank, start, free = -height_ns, max(ready_ns, self.free_ns), self.free_ns
        for group in self._groups.values():
            ready, pending = group.ready, group.pending
            more = max(1.0, len(ready) / _LOOK)
            for other, _, busy in ready[:_LOOK]:
                if other <= rank:
                    free += busy * more
            more = max(1.0, len(pending) / _LOOK)
            for at, other, _, busy in pending[:_LOOK]:
                if other <= rank and at <= start:
                    free = max(free, at) + busy * more
        return max(ready_ns, free)

    def take(self) -> tuple[float, int]:
        """Remove the best instruction that can start next; returns (start, instruction).

        Another table is worth loading only for an instruction whose path is longer by two loads (there and back), and
        not when one that needs the resident table arrives before the load would be done.
        """
        now = self.next_ns
        for group in self._groups.values():
            group.arrive(now)
        best = min((group for group in self._groups.values() if group.ready), key=self._rank)
        if self._switches(best):
            for group in self._groups.values():
                if group.pending and not self._switches(group):
                    soon, rank, _, _ = group.pending[0]
                    if soon < now + self.switch_ns and best.ready[0][0] + 2 * self.switch_ns >= rank:
                        now = soon
                        group.arrive(now)
                        best = group
                        break
        i = heappop(best.ready)[1]
        self.look()
        return now, i

    def _switches(self, group: _Group) -> bool:
        return group.table is not None and self.table is not None and group.table != self.table

    def _rank(self, group: _Group) -> tuple[float, int]:
        rank, i, _ = group.ready[0]
        return (rank + 2 * self.switch_ns if self._switches(group) else rank), i


class Parked:
    """Instructions that cannot start since PSUM has no place for a buffer of theirs, by that buffer."""

    _TRIES = 4  # a bank that becomes free takes so many of the smallest tiles

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []  # (negative height, instruction), some no longer parked
        self._wanted: dict[int, str] = {}
        self._for: dict[str, list[int]] = {}

    def add(self, i: int, name: str, height_ns: float) -> None:
        """Park instruction `i` until there may be a place for buffer `name`."""
        heappush(self._heap, (-height_ns, i))
        self._wanted[i] = name
        self._for.setdefault(name, []).append(i)

    def wanting(self, name: str) -> list[int]:
        """Remove the instructions that wait for buffer `name`, which has a place now."""
        found = self._for.pop(name, [])
        for i in found:
            del self._wanted[i]
        return found

    def to_retry(self, in_turn: str | None) -> list[int]:
        """Remove a few of the most urgent, and always those on buffer `in_turn`: they are sure to get a place."""
        found = self.wanting(in_turn) if in_turn is not None else []
        heap, tries = self._heap, self._TRIES
        while heap and tries:
            i = heappop(heap)[1]
            name = self._wanted.pop(i, None)
            if name is not None:
                self._for[name].remove(i)
                found.append(i)
                tries -= 1
        return found


class Transfers:
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

    def busy_until_ns(self) -> float:
        """When the transfers triggered so far will have moved their data, on average over the DMA engines."""
        return max(self.hbm_ns, sum(self.engines_ns) / len(self.engines_ns))
