"""Build the program: what the passes decided, in one immutable artifact."""

from __future__ import annotations

import dataclasses

from ranvier.compiler.kernel.stages import Placed, Schedule, Synchronization
from ranvier.ir.program import Program, Slot, Stream


def emit(placed: Placed, plan: Schedule, sync: Synchronization) -> Program:
    """One stream per engine, with placements, queues, waits and signals."""
    kernel = placed.kernel
    streams = []
    for engine, stream in plan.streams.items():
        slots = []
        for i in stream:
            inst = kernel.body[i]
            if getattr(inst, "engine", engine) is not engine:
                inst = dataclasses.replace(inst, engine=engine)  # type: ignore[call-arg]
            slots.append(Slot(inst, sync.waits.get(i, ()), sync.signals.get(i, ()), plan.queues.get(i), i))
        streams.append(Stream(engine, tuple(slots)))
    return Program(
        name=kernel.name,
        target=kernel.target,
        buffers=kernel.buffers,
        placements=tuple((placed.placements | plan.placements).items()),
        streams=tuple(streams),
        semaphores=sync.semaphores,
        inputs=kernel.inputs,
        outputs=kernel.outputs,
        params=kernel.params,
        constants=kernel.constants,
    )
