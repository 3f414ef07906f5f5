"""The rules of the program level, as code: a program that passes computes the same on every run and never hangs.

Checked here: every buffer lies within its memory; semaphores and queues are used in the one way that lets waits be
understood; the engines cannot deadlock; and of any two instructions that touch the same bytes, one of which
writes, one is certain to be complete before the other starts: on one buffer the earlier in kernel order.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ranvier.errors import error
from ranvier.ir.conflicts import ConflictMap, footprint
from ranvier.ir.program import Program, Slot
from ranvier.isa.access import AccessPattern, Buffer, Space
from ranvier.isa.record import Instruction, form, verify
from ranvier.target.spec import Engine, Target

Touched = dict[int, tuple[list[AccessPattern], list[AccessPattern]]]
"""What each slot, by its place in kernel order, reads and writes."""


def verify_program(program: Program, target: Target) -> None:
    """Raise the error of the first rule that `program` breaks on `target`.

    E0901 for placement, semaphores and queues, E0404 for engines that wait for each other forever, E0402 for two
    accesses that nothing orders or that are ordered against the kernel, E0306 for an instruction on the wrong engine.
    """
    _check_placements(program, target)
    touched: Touched = {s.order: (s.instruction.reads(), s.instruction.writes()) for _, s in program.slots()}
    _check_slots(program, touched, target)
    _check_order(program, run_abstractly(program), touched, target)


def _check_placements(program: Program, target: Target) -> None:
    partitions = int(target.sbuf.partitions.value)
    limits = {
        Space.SBUF: target.sbuf.usable_bytes_per_partition,
        Space.PSUM: target.psum.bytes_per_partition,
        Space.HBM: target.hbm.usable_bytes,
    }
    if len(program.by_name) != len(program.buffers):
        raise error("E0901", "two buffers of the program share a name")
    for buffer in program.buffers:
        place = program.placed.get(buffer.name)
        if place is None:
            raise error("E0901", f"buffer {buffer.name} is not placed")
        end = place.byte + buffer.bytes_per_partition
        if place.byte < 0 or end > limits[buffer.space]:
            where = f"bytes {place.byte} to {end} of {buffer.space.value}, which has {limits[buffer.space]}"
            raise error("E0901", f"{buffer.name} lies at {where}")
        if place.byte % buffer.dtype.itemsize:
            raise error("E0901", f"{buffer.name} ({buffer.dtype}) lies at byte {place.byte}, which is not aligned")
        if buffer.space.on_chip and place.partition + buffer.partitions > partitions:
            raise error("E0901", f"{buffer.name} has {buffer.partitions} partitions from {place.partition} on")
        if buffer.space is Space.PSUM:
            _check_bank(buffer, place.byte, int(target.psum.bank_bytes.value))
    tensors = sorted((b for b in program.buffers if not b.space.on_chip), key=lambda b: program.placed[b.name].byte)
    for one, other in pairwise(tensors):
        if program.placed[one.name].byte + one.size_bytes > program.placed[other.name].byte:
            raise error("E0901", f"{one.name} and {other.name} overlap in hbm")


def _check_bank(buffer: Buffer, byte: int, bank: int) -> None:
    size = buffer.bytes_per_partition
    fits = byte % bank == 0 if size > bank else byte // bank == (byte + size - 1) // bank
    if size and not fits:
        raise error("E0901", f"{buffer.name} lies at bytes {byte} to {byte + size} of psum, across a border of banks")


def _check_slots(program: Program, touched: Touched, target: Target) -> None:
    """Engines, names, queues, and that each semaphore counts the completions of one engine or one queue."""
    declared, known = set(program.semaphores), program.by_name
    checked: set[tuple] = set()
    sources: dict[str, tuple[Engine, str | None]] = {}
    queues: dict[str, Engine] = {}
    orders: set[int] = set()
    if len(program.semaphores) > target.limits.semaphores.value:
        raise error("E0901", f"{len(program.semaphores)} semaphores; there are {target.limits.semaphores.value}")
    for engine, slot in program.slots():
        inst = slot.instruction
        shape = (engine, form(inst))
        if shape not in checked:
            if engine not in inst.legal_engines(target):
                message = f"{inst.MNEMONIC} is in the stream of {engine.name.lower()}"
                raise error("E0306", message, where=inst.loc, rule="ISA-5")
            verify(inst, target)
            checked.add(shape)
        for group in touched[slot.order]:
            for ap in group:
                buffer = known.get(ap.buffer.name)
                if buffer is not ap.buffer and buffer != ap.buffer:
                    raise error("E0901", f"{inst.MNEMONIC} names the unknown buffer {ap.buffer.name}", where=inst.loc)
                if ap.buffer.kind.preset and group is touched[slot.order][1]:
                    raise error("E0901", f"{inst.MNEMONIC} writes {ap.buffer.name}, an input", where=inst.loc)
        if (slot.queue is not None) is not inst.IS_DMA:
            raise error("E0901", f"{inst.MNEMONIC} has queue {slot.queue}", where=inst.loc)
        if slot.queue is not None and queues.setdefault(slot.queue, engine) is not engine:
            raise error("E0901", f"two engines trigger transfers of queue {slot.queue}", where=inst.loc)
        if slot.order in orders:
            raise error("E0901", f"two slots have place {slot.order} in kernel order", where=inst.loc)
        orders.add(slot.order)
        for signal in slot.signals:
            source = (engine, slot.queue)
            if signal.amount <= 0 or sources.setdefault(signal.semaphore, source) != source:
                raise error("E0901", f"semaphore {signal.semaphore} counts more than one thing", where=inst.loc)
        for entry in (*slot.waits, *slot.signals):
            if entry.semaphore not in declared:
                raise error("E0901", f"semaphore {entry.semaphore} is not declared", where=inst.loc)
    if len(queues) > target.dma.queues_per_engine.value:
        raise error("E0901", f"{len(queues)} DMA queues; there are {target.dma.queues_per_engine.value}")


@dataclass(slots=True)
class Ordering:
    """What is certain about the order of slots, whatever the engines' speeds.

    A source is an engine's data path or a DMA queue; each completes in order. By place in kernel order: `source` and
    `position` say where a slot completes, `before` how many completions of each source are certain when it starts,
    `engine` who runs or triggers it.
    """

    slots: dict[int, Slot]
    engine: dict[int, int]
    source: dict[int, int]
    position: dict[int, int]
    before: dict[int, tuple[int, ...]]

    def precedes(self, first: int, second: int) -> bool:
        """Whether `first` is certainly complete (as far as `second` can tell) when `second` starts.

        Within an engine that is the order of the stream: the data path itself waits for earlier results.
        """
        source = self.source[first]
        if source == self.engine[second] and self.slots[second].queue is None:
            return self.position[first] < self.position[second]
        return self.before[second][source] >= self.position[first]


def run_abstractly(program: Program) -> Ordering:
    """Run the semaphores without the instructions: what each wait implies. Raises E0404 when the engines get stuck."""
    queues = sorted({slot.queue for _, slot in program.slots() if slot.queue is not None})
    number = {name: len(program.streams) + k for k, name in enumerate(queues)}
    width = len(program.streams) + len(queues)
    ordering = Ordering({}, {}, {}, {}, {})
    counts = [0] * width
    values = dict.fromkeys(program.semaphores, 0)
    reached: dict[str, list[tuple[int, int]]] = {name: [] for name in program.semaphores}  # (value, order)
    known: list[tuple[int, ...]] = [(0,) * width] * len(program.streams)
    at = [0] * len(program.streams)
    progress = True
    while progress:
        progress = False
        for e, stream in enumerate(program.streams):
            slots = stream.slots
            while at[e] < len(slots):
                slot = slots[at[e]]
                if any(values[w.semaphore] < w.value for w in slot.waits):
                    break
                for wait in slot.waits:
                    known[e] = _after(known[e], _who(reached[wait.semaphore], wait.value), ordering)
                source = e if slot.queue is None else number[slot.queue]
                counts[source] += 1
                ordering.slots[slot.order], ordering.engine[slot.order] = slot, e
                ordering.source[slot.order], ordering.position[slot.order] = source, counts[source]
                ordering.before[slot.order] = known[e]
                for signal in slot.signals:
                    values[signal.semaphore] += signal.amount
                    reached[signal.semaphore].append((values[signal.semaphore], slot.order))
                at[e] += 1
                progress = True
    if any(at[e] < len(stream.slots) for e, stream in enumerate(program.streams)):
        raise _deadlock(program, at, values)
    return ordering


def _who(reached: list[tuple[int, int]], value: int) -> int | None:
    """The slot whose signal brought the semaphore to `value`."""
    return reached[bisect_left(reached, (value,))][1] if value > 0 else None


def _after(known: tuple[int, ...], order: int | None, ordering: Ordering) -> tuple[int, ...]:
    """What is known once the slot `order` is known to be complete."""
    if order is None:
        return known
    source = ordering.source[order]
    joined = list(map(max, known, ordering.before[order]))
    joined[source] = max(joined[source], ordering.position[order])
    return tuple(joined)


def _deadlock(program: Program, at: list[int], values: dict[str, int]) -> Exception:
    notes, where = [], None
    for e, stream in enumerate(program.streams):
        if at[e] < len(stream.slots):
            slot = stream.slots[at[e]]
            unmet = [w for w in slot.waits if values[w.semaphore] < w.value]
            wanted = ", ".join(f"{w.semaphore} >= {w.value} (it stays at {values[w.semaphore]})" for w in unmet)
            place = f" at {slot.instruction.loc}" if slot.instruction.loc else ""
            who = f"{stream.engine.name.lower()} slot {at[e]}: {slot.instruction.MNEMONIC}{place}"
            notes.append(f"{who} waits for {wanted}")
            where = where or slot.instruction.loc
    return error("E0404", f"{len(notes)} engines of {program.name} wait forever", where=where, notes=tuple(notes))


def _check_order(program: Program, ordering: Ordering, touched: Touched, target: Target) -> None:
    """Every pair of conflicting accesses is ordered by streams and semaphores; on one buffer as the kernel orders them.

    The slots are walked in one order in which they can run: if every conflict along it is enforced, all runs are alike.
    Which of two buffers has an address first is the schedule's choice, but a read must find its own buffer's bytes.
    """
    maps = {space: ConflictMap() for space in Space}
    states: dict[str, int] = {}
    placed, slots = program.placed, ordering.slots
    sequence = list(slots)
    is_mixed = False  # a read that meets a write to another buffer, perhaps one that a later write hides
    for rank, order in enumerate(sequence):
        found: set[int] = set()
        for group in touched[order]:
            for ap in group:
                name, space = ap.buffer.name, ap.buffer.space
                if ap.buffer.kind.preset:
                    continue  # nothing writes it
                place, before = placed[name], set[int]()
                is_read = group is touched[order][0]
                look = maps[space].read if is_read else maps[space].write
                look(rank, footprint(ap, place.partition, place.byte), before)
                before.discard(rank)
                for other in before:
                    reads, writes = touched[sequence[other]]
                    if sequence[other] > order and any(a.buffer.name == name for a in (*reads, *writes)):
                        raise _race(slots[order], slots[sequence[other]])
                    is_mixed = is_mixed or (is_read and any(a.buffer.name != name for a in writes))
                found |= before
        for state in slots[order].instruction.states():
            if state in states:
                found.add(states[state])
                if sequence[states[state]] > order:
                    raise _race(slots[order], slots[sequence[states[state]]])
            states[state] = rank
        for other in found:
            if not ordering.precedes(sequence[other], order):
                raise _race(slots[sequence[other]], slots[order])
    if is_mixed:
        owners = _Owners(program, target)
        for order in sequence:
            owners.follow(slots[order].instruction, *touched[order])


class _Owners:
    """Which buffer wrote each byte last, along one order of execution; per quadrant of partitions."""

    def __init__(self, program: Program, target: Target):
        self.program = program
        self.number = {b.name: k + 1 for k, b in enumerate(program.buffers)}
        self.quadrant = int(target.limits.partition_quadrant.value)
        quadrants = -(-int(target.sbuf.partitions.value) // self.quadrant)
        sizes = {Space.SBUF: int(target.sbuf.bytes_per_partition.value), Space.PSUM: target.psum.bytes_per_partition}
        self.bytes = {space: np.zeros((quadrants, size), np.int32) for space, size in sizes.items()}

    def _cells(self, ap: AccessPattern) -> tuple[np.ndarray, bool]:
        """The owners of the bytes of `ap`, and whether it touches all of them."""
        place = self.program.placed[ap.buffer.name]
        at = footprint(ap, place.partition, place.byte)
        quadrants = self.bytes[ap.space][at.first // self.quadrant : -(-at.last // self.quadrant)]
        if not at.period:
            return quadrants[:, at.low : at.high], at.dense
        count = (at.high - at.low - at.run) // at.period + 1
        step, unit = quadrants.strides
        shape, strides = (quadrants.shape[0], count, at.run), (step, at.period * unit, unit)
        return np.lib.stride_tricks.as_strided(quadrants[:, at.low :], shape, strides), at.dense

    def follow(self, inst: Instruction, reads: list[AccessPattern], writes: list[AccessPattern]) -> None:
        """Check that `inst` reads bytes that were written to the buffers it names, and note what it writes."""
        for ap in reads:
            if ap.space.on_chip:
                cells, is_exact = self._cells(ap)
                foreign = cells[(cells != self.number[ap.buffer.name]) & (cells != 0)]
                if is_exact and foreign.size:
                    thief = self.program.buffers[int(foreign[0]) - 1].name
                    message = f"{thief} has overwritten what {inst.MNEMONIC} reads of {ap.buffer.name}"
                    raise error("E0901", message, where=inst.loc)
        for ap in writes:
            if ap.space.on_chip:
                self._cells(ap)[0][...] = self.number[ap.buffer.name]


def _race(first: Slot, second: Slot) -> Exception:
    a, b = first.instruction, second.instruction
    buffers = sorted({ap.buffer.name for ap in (*a.reads(), *a.writes(), *b.reads(), *b.writes()) if ap.space.on_chip})
    return error(
        "E0402",
        f"{a.MNEMONIC} (place {first.order}) and {b.MNEMONIC} (place {second.order}) touch the same memory and nothing "
        f"makes the second wait for the first",
        where=b.loc,
        notes=(f"buffers: {', '.join(buffers)}", *((f"the first is at {a.loc}",) if a.loc else ())),
    )
