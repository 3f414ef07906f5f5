"""How long a program takes: engines, semaphores, DMA engines and memory ports, event by event.

The model never touches values. What it knows:

- An engine starts its slots in order, one `busy` time after the other; a result is visible `latency` after the start,
  and in order. A slot starts when its semaphores have been there for a hop, and when the results that it reads from
  earlier slots of its own engine are visible (the tensor engine accumulates in PSUM itself and never waits for that).
- A change of activation table costs a table load, which does not wait for the semaphores of the slot that needs it.
- A trigger occupies its engine for the issue time. The transfer starts a launch time later, its descriptors spread over
  DMA engines by partition, each of which serves transfers in the order of their arrival; transfers of one queue
  complete in order. HBM serves at most its bandwidth to all transfers together.
- Where a generation lets two engines use a memory only one at a time, or two engines use the same PSUM bank, the later
  one waits.

- Where asked for, the tensor engine's clock depends on how busy it was.

Not modelled: instruction fetch, DMA arbitration below whole transfers, power limits of a whole chip.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush

from ranvier.errors import error
from ranvier.ir.program import Program, Slot
from ranvier.isa.access import AccessPattern
from ranvier.isa.record import Cost, DmaWork, Instruction
from ranvier.sim.costs import CostTable, DmaTimes, first_partition
from ranvier.sim.order import execution_order
from ranvier.sim.ports import Ports
from ranvier.sim.throttle import Throttle
from ranvier.sim.trace import Columns, Kind, Reason, Timeline
from ranvier.target.fact import Confidence
from ranvier.target.spec import Engine, Target

_SIGNAL, _STEP, _LAUNCH = 0, 1, 2  # at equal times signals come first
_GATING = "tensor_clock_gating"
_WITH_DEPENDENCIES = (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)


def simulate(program: Program, target: Target, *, throttle: bool = False) -> Timeline:
    """The timeline of `program` on `target`.

    With `throttle` the tensor engine is slow until it has been busy for a while (see `Throttle`), on targets that do
    that; without, it always runs at its full clock. Raises E0404 when engines wait for each other forever.
    """
    simulation = _Simulation(program, target, Throttle(target) if throttle and target.has(_GATING) else None)
    simulation.run()
    return simulation.timeline()


class _Lane:
    """An engine: its stream, where it is in it, and what it still has under way."""

    __slots__ = (
        "at", "cost", "costs", "done", "engine", "first_slot", "free", "last", "needs", "reads", "recent", "slots",
        "track", "writes",
    )  # fmt: skip

    def __init__(self, track: int, engine: Engine, slots: tuple[Slot, ...], first_slot: int, target: Target):
        self.track, self.engine, self.slots, self.first_slot = track, engine, slots, first_slot
        self.costs = CostTable(target, engine)
        self.at, self.free, self.done = 0, 0.0, 0.0
        self.last = -1  # the event before
        self.recent: list[tuple[float, list[AccessPattern], int]] = []  # results not yet visible: (when, what, event)
        self.cost: Cost | None = None  # of the next slot, once it was looked at; and what else it needs:
        self.reads: list[AccessPattern] = []
        self.writes: list[AccessPattern] = []
        self.needs: Sequence[int] = ()

    def look(self, inst: Instruction, ports: Ports) -> Cost:
        """Find out what the next slot, `inst`, needs."""
        cost = self.cost = self.costs.cost(inst)
        if self.engine in _WITH_DEPENDENCIES and cost.dma is None:
            self.reads, self.writes = inst.reads(), inst.writes()
            self.needs = ports.needs(self.engine, (*self.reads, *self.writes))
        else:
            self.reads, self.writes, self.needs = [], [], ()
        return cost

    def visible(self, start: float) -> tuple[float, int]:
        """When the results of this engine that the next slot reads are visible, and the event that wrote the last."""
        when, event = 0.0, -1
        self.recent = [entry for entry in self.recent if entry[0] > start]
        for done, writes, writer in self.recent:
            if done > when and any(w.overlaps(r) for w in writes for r in self.reads):
                when, event = done, writer
        return when, event


class _Semaphore:
    """Values that a semaphore reached, when, and through which event; lanes that wait for a value."""

    __slots__ = ("events", "times", "value", "values", "waiting")

    def __init__(self):
        self.value = 0
        self.values: list[int] = []
        self.times: list[float] = []
        self.events: list[int] = []
        self.waiting: list[tuple[int, _Lane]] = []


class _Simulation:
    """State of one simulation. `heap` holds (time, what, sequence number, arguments...), emptied in order of time."""

    def __init__(self, program: Program, target: Target, throttle: Throttle | None):
        self.program, self.target, self.throttle = program, target, throttle
        self.ports = Ports(program, target)
        self.columns = Columns()
        self.slots = tuple(program.slots())
        self.lanes: list[_Lane] = []
        first = 0
        for stream in program.streams:
            self.lanes.append(_Lane(len(self.lanes), stream.engine, stream.slots, first, target))
            first += len(stream.slots)
        queues = sorted({slot.queue for _, slot in self.slots if slot.queue is not None}, key=_numbers_by_value)
        self.dma = _Dma(target, self.columns, {queue: len(self.lanes) + i for i, queue in enumerate(queues)})
        self.tracks = tuple(lane.engine.name.lower() for lane in self.lanes) + tuple(queues)
        self.semaphores = {name: _Semaphore() for name in program.semaphores}
        self.table: str | None = None
        hop = target.sync.semaphore_hop_ns
        self.hop, self.hop_is_estimated = float(hop.value), hop.confidence is Confidence.ESTIMATED
        load = target.scalar.table_load_ns
        self.table_load, self.table_is_estimated = float(load.value), load.confidence is Confidence.ESTIMATED
        self.heap: list[tuple] = []
        self.sequence = 0

    def push(self, time: float, what: int, *arguments) -> None:
        self.sequence += 1
        heappush(self.heap, (time, what, self.sequence, *arguments))

    def run(self) -> None:
        for lane in self.lanes:
            self.push(0.0, _STEP, lane)
        heap = self.heap
        while heap:
            time, what, _, *arguments = heappop(heap)
            if what == _STEP:
                self.step(arguments[0], time)
            elif what == _SIGNAL:
                self.signal(arguments[0], arguments[1], time)
            else:
                self.transfer(arguments[0], arguments[1], arguments[2], arguments[3], time)
        if any(lane.at < len(lane.slots) for lane in self.lanes):
            execution_order(self.program)  # finds the same deadlock, and says who waits for whom
            raise error("E0901", f"{self.program.name}: the timing model stopped before the end of the program")

    def timeline(self) -> Timeline:
        return Timeline(
            self.program.name, self.target.name, self.tracks, self.slots, self.columns, tuple(self.dma.busy), self.hop,
            self.hop_is_estimated,
        )  # fmt: skip

    # -- engines ------------------------------------------------------------------------------------------------------
    def step(self, lane: _Lane, now: float) -> None:
        """Start slots of one engine until it must wait for something, or another event comes first."""
        heap, slots = self.heap, lane.slots
        while lane.at < len(slots):
            if not self.start_slot(lane, slots[lane.at], now):
                return
            now = lane.free
            if heap and heap[0][0] <= now:
                if lane.at < len(slots):
                    self.push(now, _STEP, lane)
                return

    def start_slot(self, lane: _Lane, slot: Slot, now: float) -> bool:
        """Start the next slot, at `now` or later. False if it must be looked at again (then that is arranged)."""
        cost = lane.cost or lane.look(slot.instruction, self.ports)
        if cost.table is not None and cost.table != self.table:
            self.load_table(lane, cost.table)
        start, cause = lane.free, lane.last
        reason = Reason.START if cause < 0 else Reason.ENGINE
        for wait in slot.waits:
            semaphore = self.semaphores[wait.semaphore]
            if semaphore.value < wait.value:
                semaphore.waiting.append((wait.value, lane))
                return False
            if wait.value > 0:
                reached = bisect_left(semaphore.values, wait.value)
                time = semaphore.times[reached] + self.hop
                if time > start:
                    start, cause, reason = time, semaphore.events[reached], Reason.SEMAPHORE
        if lane.recent:
            when, event = lane.visible(start)
            if when > start:
                start, cause, reason = when, event, Reason.DEPENDENCY
        if lane.needs:
            when, event = self.ports.free(lane.needs)
            if when > start:
                start, cause, reason = when, event, Reason.PORT
            if start > now:  # another engine may come first to the port
                self.push(start, _STEP, lane)
                return False
        self.happen(lane, slot, cost, start, reason, cause)
        return True

    def happen(self, lane: _Lane, slot: Slot, cost: Cost, start: float, reason: Reason, cause: int) -> None:
        """Let the next slot start at `start`."""
        busy, latency, dma = cost.busy, cost.latency, cost.dma
        end = start + busy.ns
        if self.throttle is not None and lane.engine is Engine.TENSOR and dma is None:
            end = self.throttle.finish(start, busy.ns)
        columns, slot_index = self.columns, lane.first_slot + lane.at
        event = len(columns)
        if dma is None:
            done = end + (latency.ns - busy.ns)
            if done < lane.done:
                done = lane.done
            tail = latency.estimated_ns - busy.estimated_ns
            columns.add(
                lane.track, Kind.INSTRUCTION, start, start, end, done, lane.free, reason, cause, slot_index, 0,
                busy.estimated_ns, tail,
            )  # fmt: skip
            if slot.signals:
                self.push(done, _SIGNAL, slot, event)
            if lane.writes:
                lane.recent.append((done, lane.writes, event))
            lane.done = done
        else:
            launch, is_estimated = self.dma.launch[dma.mode]
            columns.add(
                lane.track, Kind.TRIGGER, start, start, end, end + launch, lane.free, reason, cause, slot_index, 0,
                busy.estimated_ns, launch if is_estimated else 0.0,
            )  # fmt: skip
            assert slot.queue is not None
            self.push(self.dma.arrival(slot.queue, end + launch), _LAUNCH, slot, dma, event, slot_index)
        if lane.needs:
            self.ports.take(lane.needs, end, event)
        lane.free, lane.last, lane.cost = end, event, None
        lane.at += 1

    def load_table(self, lane: _Lane, table: str) -> None:
        start, end = lane.free, lane.free + self.table_load
        reason = Reason.START if lane.last < 0 else Reason.ENGINE
        estimated = self.table_load if self.table_is_estimated else 0.0
        slot_index = lane.first_slot + lane.at
        event = len(self.columns)
        self.columns.add(
            lane.track, Kind.TABLE_LOAD, start, start, end, end, start, reason, lane.last, slot_index, 0, estimated, 0.0
        )
        lane.last, lane.free, self.table = event, end, table

    # -- semaphores and transfers -----------------------------------------------------------------------------------
    def signal(self, slot: Slot, event: int, now: float) -> None:
        for entry in slot.signals:
            semaphore = self.semaphores[entry.semaphore]
            semaphore.value += entry.amount
            semaphore.values.append(semaphore.value)
            semaphore.times.append(now)
            semaphore.events.append(event)
            if semaphore.waiting:
                still = []
                for value, lane in semaphore.waiting:
                    if value <= semaphore.value:
                        self.push(now, _STEP, lane)
                    else:
                        still.append((value, lane))
                semaphore.waiting = still

    def transfer(self, slot: Slot, dma: DmaWork, trigger: int, slot_index: int, now: float) -> None:
        done = self.dma.transfer(slot, dma, trigger, slot_index, now)
        if slot.signals:
            self.push(done, _SIGNAL, slot, len(self.columns) - 1)


class _Dma:
    """The DMA engines and queues of a core. `busy` is how long each engine moved data so far."""

    def __init__(self, target: Target, columns: Columns, tracks: dict[str, int]):
        self.times, self.columns, self.tracks = DmaTimes(target), columns, tracks
        self.launch = self.times.launch
        self.launched = dict.fromkeys(tracks, 0.0)
        self.done = dict.fromkeys(tracks, 0.0)
        self.free, self.busy = [0.0] * self.times.engines, [0.0] * self.times.engines
        self.last = [-1] * self.times.engines  # the transfer each engine served last
        self.hbm_free, self.hbm_last = 0.0, -1

    def arrival(self, queue: str, time: float) -> float:
        """When a transfer that could start at `time` starts: not before those in front of it in its queue."""
        time = self.launched[queue] = max(time, self.launched[queue])
        return time

    def transfer(self, slot: Slot, work: DmaWork, trigger: int, slot_index: int, now: float) -> float:
        """Move the data of `slot`, its descriptors being at the DMA engines `now`; when its semaphore is seen."""
        times, free, busy, last = self.times, self.free, self.busy, self.last
        each = times.descriptor_ns(work)
        engine = first_partition(slot.instruction) // times.partitions_per_engine % times.engines
        start, end, begin, cause, reason = float("inf"), now, now, trigger, Reason.LAUNCH
        event = len(self.columns)
        share, more = divmod(work.descriptors, work.engines)
        arrival = now
        for i in range(work.engines):
            before = free[engine]
            from_ns = before if before > arrival else arrival
            to_ns = from_ns + (share + 1 if i < more else share) * each
            if from_ns < start:
                start = from_ns
            if to_ns > end:
                end, begin = to_ns, from_ns
                cause, reason = (last[engine], Reason.DMA_ENGINE) if before > arrival else (trigger, Reason.LAUNCH)
            free[engine] = to_ns + times.semaphore_write_ns
            busy[engine] += to_ns - from_ns
            last[engine] = event
            arrival += times.stagger_ns
            engine = engine + 1 if engine + 1 < times.engines else 0
        if work.hbm_bytes:
            from_ns = max(self.hbm_free, now)
            to_ns = from_ns + work.hbm_bytes / times.hbm_bytes_per_ns
            if to_ns > end:
                end, begin = to_ns, from_ns
                cause, reason = (self.hbm_last, Reason.HBM) if self.hbm_free > now else (trigger, Reason.LAUNCH)
            self.hbm_free, self.hbm_last = to_ns, event
        end += times.semaphore_write_ns
        queue = slot.queue
        assert queue is not None
        done = self.done[queue] = max(end + times.completion_ns, self.done[queue])
        self.columns.add(
            self.tracks[queue], Kind.TRANSFER, start, begin, end, done, now, reason, cause, slot_index, work.hbm_bytes,
            end - start if times.data_is_estimated else 0.0, done - end if times.completion_is_estimated else 0.0,
        )  # fmt: skip
        return done


def _numbers_by_value(name: str) -> tuple[str, int, str]:
    """A key that sorts "sync2" before "sync10"."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0), name
