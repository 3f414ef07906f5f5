"""Build the program: what the passes decided, in one immutable artifact."""

from __future__ import annotations

from ranvier.compiler.kernel.stages import Placed, Schedule, Synchronization
from ranvier.ir.program import Program, Slot, Stream


def emit(placed: Placed, plan: Schedule, sync: Synchronization) -> Program:
    """One stream per engine, with placements, queues, waits and signals."""
    kernel = placed.kernel
    streams = []
    for engine, stream in plan.streams.items():
        slots = tuple(
            Slot(kernel.body[i], sync.waits.get(i, ()), sync.signals.get(i, ()), plan.queues.get(i), i) for i in stream
        )
        streams.append(Stream(engine, slots))
    return Program(
        name=kernel.name,
        target=kernel.target,
        buffers=kernel.buffers,
        placements=tuple(placed.placements.items()),
        streams=tuple(streams),
        semaphores=sync.semaphores,
        inputs=kernel.inputs,
        outputs=kernel.outputs,
        params=kernel.params,
        constants=kernel.constants,
    )
