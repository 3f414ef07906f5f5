"""Dependencies between the instructions of a placed kernel, by address."""

from __future__ import annotations

from ranvier.compiler.kernel.stages import Dependencies, Placed
from ranvier.ir.conflicts import ConflictMap, footprint
from ranvier.ir.program import Placement
from ranvier.isa.access import Space
from ranvier.target.spec import Engine


def find_dependencies(placed: Placed) -> Dependencies:
    """Which earlier instructions each instruction comes after: read after write, write after read, write after write.

    Addresses decide, not buffers, so that the reuse of memory is ordered by the same rule. Hidden hardware state counts
    as memory that each of its users reads and writes. Near-linear in the number of instructions.
    """
    maps = {space: ConflictMap() for space in Space}
    states: dict[str, int] = {}
    # Floating buffers get places of their own, apart from all others: whose bank they reuse is not known yet.
    apart = {name: Placement(0, (k + 1) << 32) for k, name in enumerate(placed.floating)}
    placements = placed.placements | apart
    dependencies = Dependencies([], [])
    for i, inst in enumerate(placed.kernel.body):
        data: set[int] = set()
        order: set[int] = set()
        accumulates = inst.ENGINES == (Engine.TENSOR,)
        for ap in inst.reads():
            buffer = ap.buffer
            if buffer.kind.preset:
                continue
            place = placements[buffer.name]
            found = order if accumulates and buffer.space is Space.PSUM else data
            maps[buffer.space].read(i, footprint(ap, place.partition, place.byte), found)
        for ap in inst.writes():
            buffer = ap.buffer
            place = placements[buffer.name]
            maps[buffer.space].write(i, footprint(ap, place.partition, place.byte), order)
        for state in inst.states():
            if state in states:
                order.add(states[state])  # it lives in the pipeline of one engine, which does not stall for it
            states[state] = i
        order -= data
        order.discard(i)
        dependencies.data.append(sorted(data))
        dependencies.order.append(sorted(order))
    return dependencies
