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

Not modelled: throttling of the tensor engine, instruction fetch, DMA arbitration below whole transfers.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush

from ranvier.errors import error
from ranvier.ir.program import Program, Slot
from ranvier.isa.access import AccessPattern, Space
from ranvier.isa.record import Cost, Instruction
from ranvier.sim.costs import CostTable, DmaTimes
from ranvier.sim.order import execution_order
from ranvier.sim.trace import Columns, Kind, Reason, Timeline
from ranvier.target.fact import Confidence
from ranvier.target.spec import Engine, Target

_SIGNAL, _STEP, _LAUNCH = 0, 1, 2
_WITH_DEPENDENCIES = (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)


def simulate(program: Program, target: Target) -> Timeline:
    """The timeline of `program` on `target`. Raises E0404 when engines wait for each other forever."""
    simulation = _Simulation(program, target)
    simulation.run()
    return simulation.timeline()


class _Lane:
    """An engine: its stream, where it is in it, and what it still has under way."""

    __slots__ = ("at", "done", "engine", "free", "last", "recent", "slots", "tracks_writes")

    def __init__(self, engine: Engine, slots: tuple[Slot, ...]):
        self.engine, self.slots = engine, slots
        self.at, self.free, self.done = 0, 0.0, 0.0
        self.last = -1  # the event before
        self.tracks_writes = engine in _WITH_DEPENDENCIES
        self.recent: list[tuple[float, list[AccessPattern], int]] = []  # results not yet visible: (when, what, event)


class _Semaphore:
    """Values that a semaphore reached, when, and through which event; lanes that wait for a value."""

    __slots__ = ("events", "times", "value", "values", "waiting")

    def __init__(self):
        self.value = 0
        self.values: list[int] = []
        self.times: list[float] = []
        self.events: list[int] = []
        self.waiting: list[tuple[int, int]] = []


class _Simulation:
    """State of one simulation; `heap` holds (time, what, sequence number, argument...) and is emptied in order of time."""

    def __init__(self, program: Program, target: Target):
        self.program, self.target = program, target
        self.costs, self.dma, self.ports = CostTable(target), DmaTimes(target), _Ports(program, target)
        self.columns = Columns()
        self.lanes = [_Lane(stream.engine, stream.slots) for stream in program.streams]
        self.first_slot = [0]
        for lane in self.lanes:
            self.first_slot.append(self.first_slot[-1] + len(lane.slots))
        queues = sorted({slot.queue for _, slot in program.slots() if slot.queue is not None})
        self.tracks = tuple(lane.engine.name.lower() for lane in self.lanes) + tuple(queues)
        self.queue_track = {queue: len(self.lanes) + i for i, queue in enumerate(queues)}
        self.queue_launch = dict.fromkeys(queues, 0.0)
        self.queue_done = dict.fromkeys(queues, 0.0)
        self.semaphores = {name: _Semaphore() for name in program.semaphores}
        self.table: str | None = None
        self.dma_free, self.dma_busy = [0.0] * self.dma.engines, [0.0] * self.dma.engines
        self.dma_last = [-1] * self.dma.engines
        self.hbm_free, self.hbm_last = 0.0, -1
        hop = target.sync.semaphore_hop_ns
        self.hop, self.hop_estimated = float(hop.value), hop.confidence is Confidence.ESTIMATED
        load = target.scalar.table_load_ns
        self.table_load, self.table_estimated = float(load.value), load.confidence is Confidence.ESTIMATED
        self.heap: list[tuple] = []
        self.sequence = 0

    def push(self, time: float, what: int, *argument) -> None:
        self.sequence += 1
        heappush(self.heap, (time, what, self.sequence, *argument))

    def run(self) -> None:
        for index, lane in enumerate(self.lanes):
            if lane.slots:
                self.push(0.0, _STEP, index)
        heap = self.heap
        while heap:
            item = heappop(heap)
            if item[1] == _STEP:
                self.step(item[3], item[0])
            elif item[1] == _SIGNAL:
                self.signal(item[3], item[4], item[0])
            else:
                self.transfer(item[3], item[4], item[5], item[6], item[0])
        if any(lane.at < len(lane.slots) for lane in self.lanes):
            execution_order(self.program)  # finds the same deadlock, and says who waits for whom
            raise error("E0901", f"{self.program.name}: the timing model stopped before the end of the program")

    def timeline(self) -> Timeline:
        return Timeline(
            self.program.name, self.target.name, self.tracks, tuple(self.program.slots()), self.columns,
            tuple(self.dma_busy), self.hop, self.hop_estimated,
        )  # fmt: skip

    # -- engines ------------------------------------------------------------------------------------------------------
    def step(self, index: int, now: float) -> None:
        """Start slots of one engine until it must wait for something, or another event comes first."""
        lane, heap = self.lanes[index], self.heap
        while lane.at < len(lane.slots):
            if not self.start_slot(index, lane, now):
                return
            now = lane.free
            if heap and heap[0][0] <= now:
                if lane.at < len(lane.slots):
                    self.push(now, _STEP, index)
                return

    def start_slot(self, index: int, lane: _Lane, now: float) -> bool:
        """Start the next slot, at `now` or later. False if it must be looked at again (then that is arranged)."""
        slot = lane.slots[lane.at]
        inst = slot.instruction
        cost = self.costs.cost(inst, lane.engine)
        if cost.table is not None and cost.table != self.table:
            self.load_table(index, lane, cost.table)
        start, cause = lane.free, lane.last
        reason = Reason.START if cause < 0 else Reason.ENGINE
        for wait in slot.waits:
            semaphore = self.semaphores[wait.semaphore]
            if semaphore.value < wait.value:
                semaphore.waiting.append((wait.value, index))
                return False
            if wait.value > 0:
                reached = bisect_left(semaphore.values, wait.value)
                time = semaphore.times[reached] + self.hop
                if time > start:
                    start, cause, reason = time, semaphore.events[reached], Reason.SEMAPHORE
        if lane.recent:
            when, event = _visible(lane, inst, start)
            if when > start:
                start, cause, reason = when, event, Reason.DEPENDENCY
        needs = self.ports.needs(lane.engine, inst)
        if needs:
            when, event = self.ports.free(needs, lane.engine)
            if when > start:
                start, cause, reason = when, event, Reason.PORT
            if start > now:  # others may come first to the port
                self.push(start, _STEP, index)
                return False
        self.record(index, lane, slot, cost, start, cause, reason, needs)
        return True

    def record(self, index: int, lane: _Lane, slot: Slot, cost: Cost, start, cause, reason, needs) -> None:
        """Let the slot happen, starting at `start`."""
        busy = cost.busy
        end = start + busy.ns
        if cost.dma is None:
            done = max(start + cost.latency.ns, lane.done)
            tail = cost.latency.estimated_ns - busy.estimated_ns
            event = self.event(index, Kind.INSTRUCTION, start, end, done, lane.free, reason, cause, index, lane.at, busy.estimated_ns, tail)
            if slot.signals:
                self.push(done, _SIGNAL, slot, event)
            if lane.tracks_writes:
                lane.recent.append((done, slot.instruction.writes(), event))
            lane.done = done
        else:
            event = self.event(index, Kind.TRIGGER, start, end, end, lane.free, reason, cause, index, lane.at, busy.estimated_ns, 0.0)
            launch = self.dma.launch[cost.dma.mode][0]
            time = self.queue_launch[slot.queue] = max(end + launch, self.queue_launch[slot.queue])
            self.push(time, _LAUNCH, slot, cost, event, self.first_slot[index] + lane.at)
        if needs:
            self.ports.take(needs, lane.engine, end, event)
        lane.free, lane.last = end, event
        lane.at += 1

    def load_table(self, index: int, lane: _Lane, table: str) -> None:
        start, end = lane.free, lane.free + self.table_load
        reason = Reason.START if lane.last < 0 else Reason.ENGINE
        estimated = self.table_load if self.table_estimated else 0.0
        lane.last = self.event(index, Kind.TABLE_LOAD, start, end, end, start, reason, lane.last, index, lane.at, estimated, 0.0)
        lane.free, self.table = end, table

    def event(self, track, kind, start, end, done, ready, reason, cause, lane, at, estimated, tail) -> int:
        c = self.columns
        c.track.append(track)
        c.kind.append(int(kind))
        c.start_ns.append(start)
        c.begin_ns.append(start)
        c.end_ns.append(end)
        c.done_ns.append(done)
        c.ready_ns.append(ready)
        c.reason.append(int(reason))
        c.cause.append(cause)
        c.slot.append(self.first_slot[lane] + at)
        c.hbm_bytes.append(0)
        c.estimated_ns.append(estimated)
        c.estimated_tail_ns.append(tail)
        return len(c.start_ns) - 1

    # -- semaphores ---------------------------------------------------------------------------------------------------
    def signal(self, slot: Slot, event: int, now: float) -> None:
        for entry in slot.signals:
            semaphore = self.semaphores[entry.semaphore]
            semaphore.value += entry.amount
            semaphore.values.append(semaphore.value)
            semaphore.times.append(now)
            semaphore.events.append(event)
            if semaphore.waiting:
                for value, lane in semaphore.waiting:
                    if value <= semaphore.value:
                        self.push(now, _STEP, lane)
                semaphore.waiting = [entry for entry in semaphore.waiting if entry[0] > semaphore.value]

    # -- DMA ----------------------------------------------------------------------------------------------------------
    def transfer(self, slot: Slot, cost: Cost, trigger: int, slot_index: int, now: float) -> None:
        """Move the data of `slot`: from `now` on its descriptors arrive at the DMA engines."""
        work, times = cost.dma, self.dma
        assert work is not None and slot.queue is not None
        each = times.descriptor_ns(work)
        first_engine = _first_partition(slot.instruction) // times.partitions_per_engine
        start, end, begin, cause, reason = float("inf"), now, now, trigger, Reason.LAUNCH
        event = len(self.columns.start_ns)
        share, more = divmod(work.descriptors, work.engines)
        for i in range(work.engines):
            count = share + (i < more)
            engine = (first_engine + i) % times.engines
            arrival, free = now + i * times.stagger_ns, self.dma_free[engine]
            from_ns = max(arrival, free)
            to_ns = from_ns + count * each
            start = min(start, from_ns)
            if to_ns > end:
                end, begin = to_ns, from_ns
                cause, reason = (self.dma_last[engine], Reason.DMA_ENGINE) if free > arrival else (trigger, Reason.LAUNCH)
            self.dma_free[engine] = to_ns + times.semaphore_write_ns
            self.dma_busy[engine] += to_ns - from_ns
            self.dma_last[engine] = event
        if work.hbm_bytes:
            busy, hbm_from = self.hbm_free > now, max(self.hbm_free, now)
            self.hbm_free = hbm_from + work.hbm_bytes / times.hbm_bytes_per_ns
            if self.hbm_free > end:
                end, begin = self.hbm_free, hbm_from
                cause, reason = (self.hbm_last, Reason.HBM) if busy else (trigger, Reason.LAUNCH)
            self.hbm_last = event
        end += times.semaphore_write_ns
        self.finish_transfer(slot, slot_index, work, start, begin, end, now, cause, reason)

    def finish_transfer(self, slot: Slot, slot_index, work, start, begin, end, now, cause, reason) -> None:
        c, times, queue = self.columns, self.dma, slot.queue
        assert queue is not None
        done = self.queue_done[queue] = max(end + times.completion_ns, self.queue_done[queue])
        c.track.append(self.queue_track[queue])
        c.kind.append(int(Kind.TRANSFER))
        c.start_ns.append(start)
        c.begin_ns.append(begin)
        c.end_ns.append(end)
        c.done_ns.append(done)
        c.ready_ns.append(now)
        c.reason.append(int(reason))
        c.cause.append(cause)
        c.slot.append(slot_index)
        c.hbm_bytes.append(work.hbm_bytes)
        c.estimated_ns.append(end - start if times.data_is_estimated else 0.0)
        c.estimated_tail_ns.append(done - end if times.completion_is_estimated else 0.0)
        if slot.signals:
            self.push(done, _SIGNAL, slot, len(c.start_ns) - 1)


def _visible(lane: _Lane, inst: Instruction, start: float) -> tuple[float, int]:
    """When the results that `inst` reads from its own engine are visible, and the event that wrote the last of them."""
    when, event = 0.0, -1
    lane.recent = recent = [entry for entry in lane.recent if entry[0] > start]
    if recent:
        reads = inst.reads()
        for done, writes, writer in recent:
            if done > when and any(w.overlaps(r) for w in writes for r in reads):
                when, event = done, writer
    return when, event


def _first_partition(inst: Instruction) -> int:
    """First partition of the transfer's operand on chip; 0 between two places in HBM."""
    for ap in (*inst.writes(), *inst.reads()):
        if ap.space.on_chip:
            return ap.partition
    return 0


class _Ports:
    """What two engines cannot use at the same time: (name, engines) pairs that depend on the generation."""

    def __init__(self, program: Program, target: Target):
        self.placed = program.placed
        self.bank_bytes = int(target.psum.bank_bytes.value)
        self.share_psum = target.has("vector_scalar_parallel_psum")
        self.share_sbuf = target.has("vector_gpsimd_parallel_sbuf")
        self.taken: dict[object, list[tuple[Engine, float, int]]] = {}

    def needs(self, engine: Engine, inst: Instruction) -> list[object]:
        """Names of what `inst` must have for itself on `engine`."""
        found: list[object] = []
        if engine in (Engine.VECTOR, Engine.SCALAR):
            found += self._psum(inst)
        if not self.share_sbuf and engine in (Engine.VECTOR, Engine.GPSIMD) and not inst.IS_DMA:
            if any(ap.space is Space.SBUF for ap in (*inst.reads(), *inst.writes())):
                found.append("sbuf")
        return found

    def _psum(self, inst: Instruction) -> list[object]:
        banks: set[object] = set()
        for ap in (*inst.reads(), *inst.writes()):
            if ap.buffer.space is Space.PSUM:
                if not self.share_psum:
                    return ["psum"]
                low, high = ap.extent
                byte = self.placed[ap.buffer.name].byte
                banks.update(range((byte + low) // self.bank_bytes, (byte + high - 1) // self.bank_bytes + 1))
        return list(banks)

    def free(self, needs: list[object], engine: Engine) -> tuple[float, int]:
        """When other engines let go of all that is needed, and the event that does so last."""
        when, event = 0.0, -1
        for name in needs:
            for other, until, by in self.taken.get(name, ()):
                if other is not engine and until > when:
                    when, event = until, by
        return when, event

    def take(self, needs: list[object], engine: Engine, until: float, event: int) -> None:
        for name in needs:
            holders = self.taken.setdefault(name, [])
            holders[:] = [entry for entry in holders if entry[0] is not engine]
            holders.append((engine, until, event))
