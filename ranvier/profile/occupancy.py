"""Which on-chip memory is in use when: the memory map over time."""

from __future__ import annotations

from dataclasses import dataclass

from ranvier.ir.program import Program
from ranvier.isa.access import Buffer, Space
from ranvier.sim.trace import Kind, Timeline


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A tile at its place, from its first access to the end of its last one."""

    buffer: Buffer
    partition: int
    byte: int
    start_ns: float
    end_ns: float


def lifetimes(program: Program, timeline: Timeline) -> list[Lifetime]:
    """Lifetimes of all tiles in SBUF and PSUM that anything touches, in order of their start."""
    c = timeline.columns
    spans: dict[str, list[float]] = {}
    names = [
        {ap.buffer.name for ap in (*slot.instruction.reads(), *slot.instruction.writes()) if ap.buffer.space.on_chip}
        for _, slot in timeline.slots
    ]
    for i, slot in enumerate(c.slot):
        if c.kind[i] not in (Kind.INSTRUCTION, Kind.TRANSFER):
            continue
        start, end = c.start_ns[i], c.done_ns[i]
        for name in names[slot]:
            span = spans.setdefault(name, [start, end])
            span[0], span[1] = min(span[0], start), max(span[1], end)
    found = []
    for name, (start, end) in spans.items():
        place = program.placed[name]
        found.append(Lifetime(program.by_name[name], place.partition, place.byte, start, end))
    return sorted(found, key=lambda life: (life.start_ns, life.buffer.name))


def peak_bytes(lives: list[Lifetime], space: Space) -> int:
    """Largest number of bytes per partition in use at once in `space`, tiles counted in full width."""
    changes: list[tuple[float, int]] = []
    for life in lives:
        if life.buffer.space is space:
            changes.append((life.start_ns, life.buffer.bytes_per_partition))
            changes.append((life.end_ns, -life.buffer.bytes_per_partition))
    peak = used = 0
    for _, change in sorted(changes):  # what ends at a time comes before what starts then
        used += change
        peak = max(peak, used)
    return peak
